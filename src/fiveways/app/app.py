"""An application: methods, event handlers and workers of queues, each declared by a decorator."""

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec

from fiveways.app.arguments import ArgumentReader
from fiveways.app.events import Event
from fiveways.app.job_arguments import JobArgumentReader
from fiveways.app.signature import ExecutionMode, execution_mode
from fiveways.model import names, topics
from fiveways.model.topics import Pattern

F = TypeVar("F", bound=Callable[..., object])
E = TypeVar("E", bound=Callable[[Event], object])
U = TypeVar("U", bound=Callable[..., object])

Function: TypeAlias = Callable[..., Any]
"""What it returns is an awaitable, an async generator or a value; its `Style` says which."""

SHARE_POLICIES: Final = ("", "round_robin", "random", "first", "open")


class Method(msgspec.Struct, frozen=True):
    """One method on offer."""

    name: str
    """Folded."""
    function: Function
    mode: ExecutionMode
    arguments: ArgumentReader
    doc: str = ""
    share: str = ""
    spelling: str = ""
    """As it was written: `Account:getBalance`."""

    @property
    def kind(self) -> str:
        """Which side streams."""
        if self.mode is ExecutionMode.STREAM:
            return "both" if self.arguments.wants_stream else "server"
        return "client" if self.arguments.wants_stream else "unary"


class Route(msgspec.Struct, frozen=True):
    """One function for all names below a prefix."""

    method: Method
    """Its name is the folded prefix; its arguments are the rest of a name, and the body."""
    discover: Function | None = None

    @property
    def name(self) -> str:
        """The folded prefix."""
        return self.method.name


class EventHandler(msgspec.Struct, frozen=True):
    """One function that gets events."""

    topic: str
    """As it was written."""
    pattern: Pattern
    function: Function
    mode: ExecutionMode


class UpdateHandler(msgspec.Struct, frozen=True):
    """One function that gets updates of peers."""

    topic: str
    """The pattern of topic ids, as it was written."""
    function: Function
    mode: ExecutionMode

    def matches(self, topic_id: str) -> bool:
        """Say whether an update on this topic id is for the function."""
        pattern = ".*".join(map(re.escape, self.topic.split("*")))
        return re.fullmatch(pattern, topic_id, re.DOTALL) is not None


class Worker(msgspec.Struct, frozen=True):
    """One function that handles the jobs of a work queue."""

    queue: str
    function: Function
    mode: ExecutionMode
    arguments: JobArgumentReader
    concurrency: int = 1


class Hook(msgspec.Struct, frozen=True):
    """One function that runs at the start or at the end."""

    function: Function
    mode: ExecutionMode
    arguments: ArgumentReader


class App:
    """What an application offers. It needs neither a hub nor an event loop until it is served.

    Async functions run as tasks, plain ones in threads, and async generators answer in parts. A docstring is what
    others read when they ask what there is. Arguments are checked against the annotations; `arguments.py` says how.

    A caller is told the text of a `Fail`. Of any other exception it is told a reference, under which the log has the
    traceback. For development, `show_errors` tells it the exception's class and text instead.
    """

    def __init__(self, *, show_errors: bool = False) -> None:
        self.show_errors = show_errors
        self.methods: dict[str, Method] = {}
        """By folded name."""
        self.routes: dict[str, Route] = {}
        """By folded prefix."""
        self.handlers: list[EventHandler] = []
        self.update_handlers: list[UpdateHandler] = []
        self.workers: list[Worker] = []
        self.startups: list[Hook] = []
        self.shutdowns: list[Hook] = []

    @overload
    def method(self, name: F) -> F: ...

    @overload
    def method(self, name: str | None = None, *, doc: str | None = None, share: str = "") -> Callable[[F], F]: ...

    def method(self, name: F | str | None = None, *, doc: str | None = None, share: str = "") -> F | Callable[[F], F]:
        """Offer a function under a name such as `account.get_balance` or `Account:getBalance`, or else under its own.

        `doc` stands instead of the docstring; `share` (round_robin, random, first, open) says who of several
        that offer the same method gets a call.

        Raises:
            BadName: the name cannot be a method's.
            TypeError: no call could be served by the function; the message says why.
            ValueError: the name is taken, or `share` is none of these.
        """
        if share not in SHARE_POLICIES:
            raise ValueError(f"share is one of {', '.join(filter(None, SHARE_POLICIES))}, not {share!r}")

        def offer(function: F) -> F:
            written = name if isinstance(name, str) else _function_name(function)
            folded, is_route = names.fold_registration(written, names.UMQ)
            if is_route:
                raise names.BadName(f"{written!r} ends in a separator, as no method does")
            method = make_method(function, written, folded, doc, share)
            self._check_method_free(folded)
            self.methods[folded] = method
            return function

        return offer if name is None or isinstance(name, str) else offer(name)

    @overload
    def route(self, prefix: str, function: F, *, doc: str | None = None, discover: Function | None = None) -> F: ...

    @overload
    def route(
        self, prefix: str, function: None = None, *, doc: str | None = None, discover: Function | None = None
    ) -> Callable[[F], F]: ...

    def route(
        self, prefix: str, function: F | None = None, *, doc: str | None = None, discover: Function | None = None
    ) -> F | Callable[[F], F]:
        """Offer all names below a prefix, such as `Account:`, by one function: `@app.route("Account:")`.

        The function gets the rest of the name, folded (`get_balance`), and the body of the call, unless that is null;
        it may take a `Context`. An exact name wins over a route, a longer route over a shorter. `discover` is called
        with the rest of a name that somebody asks about, or with nothing for the whole route. It returns a list of
        names, where those that end in a dot are routes, the documentation as a text, or None if there is no such name.

        Raises:
            BadName: the prefix cannot be one of a method.
            TypeError: no call could be served by the function.
            ValueError: the route is taken.
        """
        folded, _ = names.fold_registration(prefix.rstrip(names.UMQ.separators) + names.UMQ.joiner, names.UMQ)
        label = f"route {prefix}"

        def offer(function: F) -> F:
            method = make_method(function, label, folded, doc)
            if method.arguments.wants_stream or method.arguments.is_empty:
                raise TypeError(f"{label}: the function takes the rest of a name, and a body")
            self._check_route_free(folded)
            self.routes[folded] = Route(method, discover)
            return function

        return offer if function is None else offer(function)

    def on(self, topic: str) -> Callable[[E], E]:
        """Have a function called with each `Event` on a topic, or on all that fit a pattern (`sensors.*.temperature`).

        Its events come one after the other.

        Raises:
            BadTopic: neither a topic nor a pattern is written so.
            TypeError: the function cannot be called with an event.
        """
        if not isinstance(topic, str):
            raise TypeError('on needs a topic: @app.on("sensors.*.temperature")')
        pattern = topics.parse_pattern(topic, topics.UMQ)

        def follow(function: E) -> E:
            self.handlers.append(
                EventHandler(topic, pattern, function, _handler_mode(function, f"on {topic}", "event"))
            )
            return function

        return follow

    def on_update(self, topic_id: str) -> Callable[[U], U]:
        """Have a function called with each `Update` that a peer publishes to the application (UMQ `T`).

        In the topic id, `*` stands for any characters. Such peers need the permission to publish on a topic of that
        name. Updates come one after the other. Only an application in the hub gets them.

        Raises:
            TypeError: the function cannot be called with an update.
        """
        if not isinstance(topic_id, str):
            raise TypeError('on_update needs a topic id: @app.on_update("prices.*")')

        def follow(function: U) -> U:
            style = _handler_mode(function, f"on_update {topic_id}", "update")
            self.update_handlers.append(UpdateHandler(topic_id, function, style))
            return function

        return follow

    def worker(self, queue: str, *, concurrency: int = 1) -> Callable[[F], F]:
        """Have a function handle the jobs of a work queue: `@app.worker("thumbnails")`, `concurrency` jobs at once.

        The function takes one argument: the `Job` where its annotation says so, otherwise the data of the job, checked
        against the annotation. It may take a `Context` as well. A job is done when the function returns, and fails when
        it raises, or when the data does not fit; the hub then redelivers it after a delay, `limits.max_tries` times.
        Delivery is at-least-once: a job that takes longer than `calls.timeout` of the hub, or is in progress when the
        connection is lost, is redelivered.

        Raises:
            TypeError: the function cannot handle a job, or `concurrency` is no integer; the message says why.
            ValueError: the name of the queue is empty, or `concurrency` is below 1.
        """
        if not isinstance(queue, str):
            raise TypeError('worker needs a queue: @app.worker("thumbnails")')
        if not queue:
            raise ValueError("the name of a queue must not be empty")
        label = f"worker {queue}"
        if not isinstance(concurrency, int) or isinstance(concurrency, bool):
            raise TypeError(f"{label}: concurrency is an integer, not {concurrency!r}")
        if concurrency < 1:
            raise ValueError(f"{label}: concurrency is at least 1, not {concurrency}")

        def declare(function: F) -> F:
            style = execution_mode(function, label)
            if style is ExecutionMode.STREAM:
                raise TypeError(f"{label}: an async generator cannot handle jobs; return the result instead")
            self.workers.append(Worker(queue, function, style, JobArgumentReader(function, label), concurrency))
            return function

        return declare

    def startup(self, function: F) -> F:
        """Have a function run before the first call; it may take a `Context` to reach the hub."""
        self.startups.append(_make_hook(function, "startup"))
        return function

    def shutdown(self, function: F) -> F:
        """Have a function run after the last call; it may take a `Context`."""
        self.shutdowns.append(_make_hook(function, "shutdown"))
        return function

    def include(self, other: "App", prefix: str = "") -> None:
        """Offer all that another application offers now, its methods below `prefix`.

        Raises:
            BadName: prefix and name together cannot be a method's.
            ValueError: a name is taken.
        """
        above = names.fold_prefix(prefix, names.UMQ)[0] + "." if prefix else ""
        offered = [
            msgspec.structs.replace(
                method,
                name=names.fold_registration(above + method.name, names.UMQ)[0],
                spelling=f"{prefix.rstrip(':.')}:{method.spelling}" if prefix else method.spelling,
            )
            for method in other.methods.values()
        ]
        for method in offered:
            self._check_method_free(method.name)
        routes = [
            msgspec.structs.replace(route, method=msgspec.structs.replace(route.method, name=above + route.name))
            for route in other.routes.values()
        ]
        for route in routes:
            self._check_route_free(route.name)
        self.methods |= {method.name: method for method in offered}
        self.routes |= {route.name: route for route in routes}
        self.handlers += other.handlers
        self.update_handlers += other.update_handlers
        self.workers += other.workers
        self.startups += other.startups
        self.shutdowns += other.shutdowns

    def _check_method_free(self, name: str) -> None:
        if name in self.methods:
            raise ValueError(f"there is a method {name!r} already")

    def _check_route_free(self, prefix: str) -> None:
        if prefix in self.routes:
            raise ValueError(f"there is a route {prefix!r} already")


def make_method(function: Function, label: str, name: str = "", doc: str | None = None, share: str = "") -> Method:
    """Return a function as a method; TypeError if no call could be served by it, with the label in its text."""
    told = inspect.getdoc(function) if doc is None else doc
    style = execution_mode(function, label)
    arguments = ArgumentReader(function, label)
    if style is ExecutionMode.THREAD and arguments.wants_stream:
        raise TypeError(f"{label}: only an async function can read a stream")
    return Method(name, function, style, arguments, told or "", share, label if name else "")


def _handler_mode(function: Function, label: str, what: str) -> ExecutionMode:
    style = execution_mode(function, label)
    try:
        inspect.signature(function).bind(None)
    except TypeError as exc:
        raise TypeError(f"{label}: the function must take one argument, the {what}: {exc}") from exc
    if style is ExecutionMode.STREAM:
        raise TypeError(f"{label}: there is nobody to whom it could yield anything")
    return style


def _function_name(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "")
    if not str(name).isidentifier():
        raise TypeError(f"{function!r} has no name of its own; give it one: @app.method('name')")
    return str(name)


def _make_hook(function: Callable[..., object], label: str) -> Hook:
    style = execution_mode(function, label)
    arguments = ArgumentReader(function, label)
    if style is ExecutionMode.STREAM or not arguments.is_empty:
        raise TypeError(f"{label}: the function may take a Context, and nothing else")
    return Hook(function, style, arguments)
