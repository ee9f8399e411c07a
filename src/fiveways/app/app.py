"""An application: methods, event handlers and workers of work queues, each declared by a decorator."""

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
"""A function that returns an awaitable, an async generator or a value, according to its `ExecutionMode`."""

SHARE_POLICIES: Final = ("", "round_robin", "random", "first", "open")


class Method(msgspec.Struct, frozen=True):
    """A method of an application."""

    name: str
    """Folded name."""
    function: Function
    mode: ExecutionMode
    arguments: ArgumentReader
    doc: str = ""
    share: str = ""
    spelling: str = ""
    """Name as it was declared: `Account:getBalance`."""

    @property
    def kind(self) -> str:
        """Streaming kind: unary, server, client or both."""
        if self.mode is ExecutionMode.STREAM:
            return "both" if self.arguments.wants_stream else "server"
        return "client" if self.arguments.wants_stream else "unary"


class Route(msgspec.Struct, frozen=True):
    """A function for all names below a prefix."""

    method: Method
    """The function; its name is the folded prefix, its arguments are the rest of a name and the body."""
    discover: Function | None = None

    @property
    def name(self) -> str:
        """Folded prefix."""
        return self.method.name


class EventHandler(msgspec.Struct, frozen=True):
    """A function that handles events."""

    topic: str
    """Topic or pattern as it was declared."""
    pattern: Pattern
    function: Function
    mode: ExecutionMode


class UpdateHandler(msgspec.Struct, frozen=True):
    """A function that handles updates of peers."""

    topic: str
    """Pattern of topic ids as it was declared."""
    function: Function
    mode: ExecutionMode

    def matches(self, topic_id: str) -> bool:
        """Return whether the function handles updates on this topic id."""
        pattern = ".*".join(map(re.escape, self.topic.split("*")))
        return re.fullmatch(pattern, topic_id, re.DOTALL) is not None


class Worker(msgspec.Struct, frozen=True):
    """A function that handles the jobs of a work queue."""

    queue: str
    function: Function
    mode: ExecutionMode
    arguments: JobArgumentReader
    concurrency: int = 1


class Hook(msgspec.Struct, frozen=True):
    """A function that runs at startup or shutdown."""

    function: Function
    mode: ExecutionMode
    arguments: ArgumentReader


class App:
    """Methods, event handlers and workers of an application. It needs no hub and no event loop until it is served.

    `fiveways serve --app module:app` runs it in the hub, `peer.serve(app)` in a client. Async functions run as tasks,
    other functions in threads, and async generators stream their results. The docstring of a function is its
    documentation for discovery. Arguments of calls are checked against the annotations; `fiveways.app.arguments`
    describes the rules.

    A method raises `Fail` to send an error to its caller. Of any other exception the caller gets a reference to the
    traceback in the log, or with `show_errors`, for development, its class and text.
    """

    def __init__(self, *, show_errors: bool = False) -> None:
        self.show_errors = show_errors
        self.methods: dict[str, Method] = {}
        """Methods by folded name."""
        self.routes: dict[str, Route] = {}
        """Routes by folded prefix."""
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
        """Declare a method: `@app.method`, or `@app.method("account.get_balance")`.

        Args:
            name: name such as `account.get_balance` or `Account:getBalance`; by default that of the function.
            doc: documentation; by default the docstring.
            share: how the hub chooses among several callees of this method: round_robin, random, first or open.

        Raises:
            BadName: the name is invalid.
            TypeError: the function cannot be called as a method; the message says why.
            ValueError: the name is declared already, or `share` is invalid.
        """
        if share not in SHARE_POLICIES:
            raise ValueError(f"share must be one of {', '.join(filter(None, SHARE_POLICIES))}, not {share!r}")

        def declare(function: F) -> F:
            spelling = name if isinstance(name, str) else _function_name(function)
            folded, is_route = names.fold_registration(spelling, names.UMQ)
            if is_route:
                raise names.BadName(f"{spelling!r} ends in a separator; a method name must not")
            method = make_method(function, spelling, folded, doc, share)
            self._check_method_free(folded)
            self.methods[folded] = method
            return function

        return declare if name is None or isinstance(name, str) else declare(name)

    @overload
    def route(self, prefix: str, function: F, *, doc: str | None = None, discover: Function | None = None) -> F: ...

    @overload
    def route(
        self, prefix: str, function: None = None, *, doc: str | None = None, discover: Function | None = None
    ) -> Callable[[F], F]: ...

    def route(
        self, prefix: str, function: F | None = None, *, doc: str | None = None, discover: Function | None = None
    ) -> F | Callable[[F], F]:
        """Declare a function for all names below a prefix: `@app.route("Account:")`.

        The function gets the rest of the name, folded (`get_balance`), and the body of the call unless that is null; it
        may take a `Context`. An exact name wins over a route, a longer route over a shorter one. Routes work only in
        the hub.

        Args:
            prefix: prefix of the names.
            function: the function, if this is not used as a decorator.
            doc: documentation; by default the docstring.
            discover: called with the rest of a name, or with an empty string for the whole route. It returns a list of
                names, in which routes end in a dot, or the documentation of one name as a string, or None if there is
                no such name.

        Raises:
            BadName: the prefix is invalid.
            TypeError: the function cannot be called with a name and a body.
            ValueError: the route is declared already.
        """
        folded, _ = names.fold_registration(prefix.rstrip(names.UMQ.separators) + names.UMQ.joiner, names.UMQ)
        label = f"route {prefix}"

        def declare(function: F) -> F:
            method = make_method(function, label, folded, doc)
            if method.arguments.wants_stream or method.arguments.is_empty:
                raise TypeError(f"{label}: the function must take the rest of a name and a body")
            self._check_route_free(folded)
            self.routes[folded] = Route(method, discover)
            return function

        return declare if function is None else declare(function)

    def on(self, topic: str) -> Callable[[E], E]:
        """Declare a handler of the events of a topic or pattern: `@app.on("sensors.*.temperature")`.

        The function is called with one `Event` at a time, in order.

        Raises:
            BadTopic: the topic or pattern is invalid.
            TypeError: the function cannot be called with an event.
        """
        if not isinstance(topic, str):
            raise TypeError('on needs a topic: @app.on("sensors.*.temperature")')
        pattern = topics.parse_pattern(topic, topics.UMQ)

        def declare(function: E) -> E:
            self.handlers.append(
                EventHandler(topic, pattern, function, _handler_mode(function, f"on {topic}", "event"))
            )
            return function

        return declare

    def on_update(self, topic_id: str) -> Callable[[U], U]:
        """Declare a handler of updates that peers publish to the application (UMQ `T`): `@app.on_update("prices.*")`.

        `*` in the topic id matches any characters. The function is called with one `Update` at a time, in order. Peers
        need the permission to publish on a topic of that name. Updates work only in the hub.

        Raises:
            TypeError: the function cannot be called with an update.
        """
        if not isinstance(topic_id, str):
            raise TypeError('on_update needs a topic id: @app.on_update("prices.*")')

        def declare(function: U) -> U:
            mode = _handler_mode(function, f"on_update {topic_id}", "update")
            self.update_handlers.append(UpdateHandler(topic_id, function, mode))
            return function

        return declare

    def worker(self, queue: str, *, concurrency: int = 1) -> Callable[[F], F]:
        """Declare a worker function for a work queue: `@app.worker("thumbnails", concurrency=4)`.

        The function takes one argument: the `Job`, if annotated as such, otherwise the data of the job, checked against
        the annotation. It may take a `Context` as well. A job is done when the function returns. It fails when the
        function raises, or when the data does not fit; the hub redelivers it after a delay, up to `limits.max_tries`
        times. Delivery is at-least-once: the hub also redelivers a job that takes longer than `calls.timeout`, or whose
        connection is lost.

        Args:
            queue: name of the work queue.
            concurrency: jobs that are handled at the same time.

        Raises:
            TypeError: the function cannot handle a job, or an argument has the wrong type.
            ValueError: the queue name is empty, or `concurrency` is below 1.
        """
        if not isinstance(queue, str):
            raise TypeError('worker needs a queue: @app.worker("thumbnails")')
        if not queue:
            raise ValueError("the name of a queue must not be empty")
        label = f"worker {queue}"
        if not isinstance(concurrency, int) or isinstance(concurrency, bool):
            raise TypeError(f"{label}: concurrency must be an integer, not {concurrency!r}")
        if concurrency < 1:
            raise ValueError(f"{label}: concurrency must be at least 1, not {concurrency}")

        def declare(function: F) -> F:
            mode = execution_mode(function, label)
            if mode is ExecutionMode.STREAM:
                raise TypeError(f"{label}: an async generator cannot handle jobs; return the result instead")
            self.workers.append(Worker(queue, function, mode, JobArgumentReader(function, label), concurrency))
            return function

        return declare

    def startup(self, function: F) -> F:
        """Declare a function that runs before the first call: `@app.startup`. It may take a `Context` to reach the hub.

        Raises:
            TypeError: the function takes other arguments, or is a generator.
        """
        self.startups.append(_make_hook(function, "startup"))
        return function

    def shutdown(self, function: F) -> F:
        """Declare a function that runs after the last call: `@app.shutdown`. It may take a `Context`.

        Raises:
            TypeError: the function takes other arguments, or is a generator.
        """
        self.shutdowns.append(_make_hook(function, "shutdown"))
        return function

    def include(self, other: "App", prefix: str = "") -> None:
        """Add everything that another application has declared so far, its methods and routes below `prefix`.

        Raises:
            BadName: a prefixed name is invalid.
            ValueError: a name is declared already.
        """
        parent = names.fold_prefix(prefix, names.UMQ)[0] + "." if prefix else ""
        methods = [
            msgspec.structs.replace(
                method,
                name=names.fold_registration(parent + method.name, names.UMQ)[0],
                spelling=f"{prefix.rstrip(':.')}:{method.spelling}" if prefix else method.spelling,
            )
            for method in other.methods.values()
        ]
        for method in methods:
            self._check_method_free(method.name)
        routes = [
            msgspec.structs.replace(route, method=msgspec.structs.replace(route.method, name=parent + route.name))
            for route in other.routes.values()
        ]
        for route in routes:
            self._check_route_free(route.name)
        self.methods |= {method.name: method for method in methods}
        self.routes |= {route.name: route for route in routes}
        self.handlers += other.handlers
        self.update_handlers += other.update_handlers
        self.workers += other.workers
        self.startups += other.startups
        self.shutdowns += other.shutdowns

    def _check_method_free(self, name: str) -> None:
        if name in self.methods:
            raise ValueError(f"the method {name!r} is declared already")

    def _check_route_free(self, prefix: str) -> None:
        if prefix in self.routes:
            raise ValueError(f"the route {prefix!r} is declared already")


def make_method(function: Function, label: str, name: str = "", doc: str | None = None, share: str = "") -> Method:
    """Return a function as a method; TypeError, with the label in its text, if it cannot be called as one."""
    documentation = inspect.getdoc(function) if doc is None else doc
    mode = execution_mode(function, label)
    arguments = ArgumentReader(function, label)
    if mode is ExecutionMode.THREAD and arguments.wants_stream:
        raise TypeError(f"{label}: only an async function can read a streamed request")
    return Method(
        name=name,
        function=function,
        mode=mode,
        arguments=arguments,
        doc=documentation or "",
        share=share,
        spelling=label if name else "",
    )


def _handler_mode(function: Function, label: str, argument_name: str) -> ExecutionMode:
    mode = execution_mode(function, label)
    try:
        inspect.signature(function).bind(None)
    except TypeError as exc:
        raise TypeError(f"{label}: the function must take one argument, the {argument_name}: {exc}") from exc
    if mode is ExecutionMode.STREAM:
        raise TypeError(f"{label}: an async generator cannot handle events or updates, which have no response")
    return mode


def _function_name(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "")
    if not str(name).isidentifier():
        raise TypeError(f"{function!r} has no name; pass one: @app.method('name')")
    return str(name)


def _make_hook(function: Callable[..., object], label: str) -> Hook:
    mode = execution_mode(function, label)
    arguments = ArgumentReader(function, label)
    if mode is ExecutionMode.STREAM or not arguments.is_empty:
        raise TypeError(f"{label}: the function may take a Context, and nothing else")
    return Hook(function, mode, arguments)
