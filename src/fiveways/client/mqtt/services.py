"""Services that we offer on a broker, and their functions at work."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Self

from google.protobuf.message import Message

from fiveways.app.answers import Fail, logged
from fiveways.app.signature import Style
from fiveways.app.threads import Threads
from fiveways.client.mqtt.implementation import Handler, Incoming, MqttContext, failure_of, handlers
from fiveways.client.mqtt.runs import Run, Workers
from fiveways.client.mqtt.session import MqttSession
from fiveways.client.settings import NO_TIME
from fiveways.errors import LocalProtocolError, Malformed
from fiveways.model import names
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Cancel, Failure, Part, Result
from fiveways.schemas import Service
from fiveways.wire.payload import Binary

GRACE: Final = 5.0
"""Seconds that running calls get when a service is stopped."""
_ROUTES: Final = 1024
"""Spellings of methods that are remembered."""
_BREATH: Final = 32
"""Parts of a streamed answer after which everybody else gets a turn."""
_IN_THREADS, _STREAM = Style.PLAIN, Style.STREAM
"""To reach a member of an Enum through its class takes a while."""
_log = logging.getLogger("fiveways.client.mqtt")


class Served:
    """A service on its topic: `async with peer.serve(Greeter, MyGreeter()):`, or `served = await peer.serve(...)`."""

    def __init__(
        self, services: "Services", service: Service, implementation: object, topic: str, timeout: float
    ) -> None:
        if timeout <= 0:
            raise ValueError(NO_TIME)
        self.service = service
        self.topic = topic
        self.timeout = timeout
        self._handlers = handlers(service, implementation)
        self.kinds = {name: handler.method.kind for name, handler in self._handlers.items()}
        """Who streams in each method that we have a function for."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._untimed: dict[str, Run] = {}
        """Calls without a timeout of their own: all get the same, so that the oldest is overdue first."""
        self._timer: asyncio.TimerHandle | None = None
        self.changed: asyncio.Event | None = None
        """Set when a call ends, for who waits for the last one."""

    def __repr__(self) -> str:
        return f"<Served {self.service.full_name} on {self.topic}>"

    async def start(self) -> Self:
        """Begin to serve; return when the broker delivers calls.

        Raises:
            NotExecuted: the broker refuses the topic, or there is no link to it.
            ValueError: the topic is served by this peer already.
        """
        await self._services.start(self)
        return self

    async def stop(self, grace: float = GRACE) -> None:
        """Take no more calls; those that run have `grace` seconds to end, then they fail as lost."""
        await self._services.stop(self, grace)

    def __await__(self) -> Generator[object, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def find(self, kind: str) -> Handler | None:
        """Return the function for the type of a request."""
        handler = self._handlers.get(kind)
        if handler is None:
            method = self.service.find(kind)
            handler = None if method is None else self._handlers.get(method.name)
        return handler

    def kind_of(self, kind: str) -> str:
        """Return who streams in the method that the type of a request names, however it is spelled."""
        handler = self.find(kind)
        return "unary" if handler is None else handler.method.kind

    # Our own timeout.

    def watch(self, run: Run) -> None:
        """End a call when our own timeout is over."""
        loop = self._loop
        run.deadline = loop.time() + self.timeout
        self._untimed[run.id] = run
        if self._timer is None:
            self._timer = loop.call_at(run.deadline, self._expire)

    def forget(self, run: Run) -> None:
        """Know that a call is over."""
        if run.deadline:
            self._untimed.pop(run.id, None)

    def _expire(self) -> None:
        loop = self._loop
        now = loop.time()
        self._timer = None
        for run in list(self._untimed.values()):
            if run.deadline > now:
                self._timer = loop.call_at(run.deadline, self._expire)
                return
            self._services.abandon(run, Reason.TIMEOUT, f"not done within {self.timeout:g} s")

    def close(self) -> None:
        """Watch nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Services:
    """All services of one client. Fulfils `session.Servant`."""

    def __init__(self, session: MqttSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._served: dict[str, Served] = {}
        self._running: dict[str, Run] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks of calls that were answered without them."""
        self._threads = Threads()
        self._workers = Workers(self._answer, self._fail)
        self._routes: dict[str, tuple[Served, Handler]] = {}
        """Functions that were called already, by how they are called."""

    def new(self, service: Service, implementation: object, topic: str, timeout: float) -> Served:
        """Make a service that is not served yet; BadName if nothing can be served on such a topic."""
        for method in service.methods:
            names.fold_offer(f"{topic}/{method}", names.MQTT)
        return Served(self, service, implementation, topic, timeout)

    async def start(self, served: Served) -> None:
        """Let calls come."""
        topic = served.topic
        if self._served.get(topic) is not None:
            raise ValueError(f"{topic} is served by this peer already")
        self._served[topic] = served
        topics = self._session.topics
        topics.held.add(topic)
        try:
            await self._session.ready(topic, None)
        except BaseException:
            self._served.pop(topic, None)
            self._routes.clear()
            topics.held.discard(topic)
            raise

    async def stop(self, served: Served, grace: float) -> None:
        """Let no more calls come, and those that run end."""
        if self._served.get(served.topic) is not served:
            return
        del self._served[served.topic]
        self._routes.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                served.changed = asyncio.Event()
                while self._runs_of(served):
                    served.changed.clear()
                    await served.changed.wait()
        for run in self._runs_of(served):
            self.abandon(run, Reason.LOST, "the service was stopped before it answered")
        served.close()
        self._session.topics.release(served.topic)

    def _runs_of(self, served: Served) -> list[Run]:
        return [run for run in self._running.values() if run.served is served]

    async def close(self) -> None:
        """Stop all at once; tasks get a while to end."""
        for served in list(self._served.values()):
            await self.stop(served, 0)
        ending = self._ending - {asyncio.current_task()}
        if ending:
            _, stubborn = await asyncio.wait(ending, timeout=GRACE)
            if stubborn:
                _log.warning("%d tasks do not end though they were cancelled", len(stubborn))
        self._threads.close()

    # What the session tells.

    def serves(self, topic: str) -> bool:
        """Whether a topic is served here."""
        return topic in self._served

    def kind_of(self, topic: str, kind: str) -> str | None:
        """Return who streams in a method; None if the topic is not served here."""
        served = self._served.get(topic)
        if served is None:
            return None
        return served.kinds.get(kind) or served.kind_of(kind)

    def called(self, word: Call) -> None:
        """Run a function."""
        route = self._routes.get(word.spelling) or self._route(word)
        if route is None:
            return
        served, handler = route
        if handler.style is _IN_THREADS and self._threads.is_full:
            self._refuse(word, Reason.BUSY, "too many calls wait for a thread")
            return
        run, body = Run(word.id, served, handler), word.body
        data = body.data if type(body) is Binary else body.binary()
        argument: Message | Incoming
        if handler.takes_stream:
            run.inflow = self._session.new_inflow()
            run.inflow.put(data)
            if not word.more:
                run.inflow.end()
            argument = Incoming(handler, run.inflow)
        else:
            try:
                argument = handler.read(data)
            except Malformed as exc:
                self._refuse(word, Reason.BAD_ARGUMENTS, str(exc))
                return
        self._start(run, argument, word.timeout)

    def _route(self, word: Call) -> "tuple[Served, Handler] | None":
        """Find the function that is called; where there is none, the caller is told."""
        topic, _, kind = word.spelling.rpartition("/")
        served = self._served.get(topic)
        handler = None if served is None else served.find(kind)
        if served is None or handler is None:
            name = topic if served is None else served.service.full_name
            self._refuse(word, Reason.NO_METHOD, f"{name} has no method {kind} here")
            return None
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        route = self._routes[word.spelling] = served, handler
        return route

    def part(self, word: Part) -> None:
        """Take one more element of a streamed request."""
        run = self._running.get(word.id)
        if run is None or run.inflow is None:
            return
        if word.body is not None and not run.inflow.put(word.body.binary()):
            # It may have done half of its work, so it cannot be told that the call was refused.
            self.abandon(run, Reason.RAISED, "the method reads the stream too slowly")
        elif word.last:
            run.inflow.end()

    def cancelled(self, word: Cancel) -> None:
        """Know that the caller's time is over, or that its stream broke; it was told."""
        run = self._running.get(word.id)
        if run is not None:
            self._drop(run)

    def lost(self) -> None:
        """End streams of which parts are lost; all else goes on, and is answered by the next link."""
        for run in [run for run in self._running.values() if run.has_hole]:
            self.abandon(run, Reason.LOST, "the link to the broker was lost in the middle of the stream")

    # The functions.

    def _start(self, run: Run, argument: Message | Incoming, timeout: float | None) -> None:
        handler, served = run.handler, run.served
        arguments: tuple[Any, ...] = (argument,)
        if handler.wants_context:
            given = served.timeout if timeout is None else timeout
            arguments = argument, MqttContext(served.topic, handler.method.name, given)
        self._running[run.id] = run
        if timeout is None:
            served.watch(run)
        if handler.style is _IN_THREADS:
            self._threads.start(partial(_outcome, run, handler.function, arguments), partial(self._from_thread, run))
        elif handler.style is _STREAM:
            run.task = self._loop.create_task(self._in_parts(run, arguments))
        else:
            self._workers.start(run, arguments)

    async def _in_parts(self, run: Run, arguments: tuple[Any, ...]) -> None:
        session = self._session
        try:
            async with aclosing(run.handler.function(*arguments)) as parts:
                async for value in parts:
                    if run.over:
                        return
                    session.say(Result(run.id, run.handler.write(value), (), True, False))
                    run.parts += 1
                    link = session.keeper.link
                    if link is None or link.is_full:
                        await session.keeper.room()
                    elif run.parts % _BREATH == 0:
                        await asyncio.sleep(0)
            if not run.over:
                session.say(Result(run.id, None, (), True, True))
                self._end(run)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  the caller gets it
            self._fail(run, exc)

    def _from_thread(self, run: Run, outcome: tuple[Any, BaseException | None]) -> None:
        value, error = outcome
        if error is not None:
            self._fail(run, error)
            return
        try:
            self._answer(run, value)
        except LocalProtocolError as exc:
            self._fail(run, exc)

    # The answers.

    def _answer(self, run: Run, value: object) -> None:
        if not run.over:
            self._session.say(Result(run.id, run.handler.write(value)))
            self._end(run)

    def _fail(self, run: Run, error: BaseException) -> None:
        if run.over:
            return
        name = f"{run.served.service.full_name}.{run.handler.method.name}"
        if isinstance(error, Fail):
            self._tell(run, failure_of(run.id, error))
        elif isinstance(error, LocalProtocolError):
            _log.warning("%s ran, but its answer cannot be written: %s", name, error)
            text = f"the method ran, but its answer cannot be written: {error}"
            self._tell(run, Failure(run.id, Reason.RAISED, text))
        else:
            self._tell(run, logged(run.id, name, error, show_errors=self._session.settings.show_errors))
        self._end(run)

    def abandon(self, run: Run, reason: Reason, text: str) -> None:
        """End a call without its function."""
        if not run.over:
            self._tell(run, Failure(run.id, reason, text))
            self._drop(run)

    def _drop(self, run: Run) -> None:
        """End the work: it was answered without it."""
        self._end(run)
        task = run.task
        if task is not None and not task.done():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    def _end(self, run: Run) -> None:
        run.over = True
        self._running.pop(run.id, None)
        served = run.served
        served.forget(run)
        if served.changed is not None:
            served.changed.set()
        if run.inflow is not None:
            run.inflow.drop()

    def _refuse(self, word: Call, reason: Reason, text: str) -> None:
        self._session.say(Failure(word.id, reason, text))

    def _tell(self, run: Run, word: Failure) -> None:
        try:
            self._session.say(word)
        except LocalProtocolError as exc:
            _log.warning("%s: its caller cannot be told: %s", run.handler.method.name, exc)


def _outcome(run: Run, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """Run a plain function, in a thread."""
    # It may have waited for a thread until nobody wanted it any more.
    if run.over:
        return None, None
    try:
        return function(*arguments), None
    except BaseException as exc:  # noqa: BLE001  the caller gets it
        return None, exc
