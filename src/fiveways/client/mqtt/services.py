"""Services that we offer on a broker, and their functions at work."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Self

from google.protobuf.message import Message

from fiveways.app.responses import Fail, log_failure
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.client.mqtt.method_handlers import (
    MethodHandler,
    MqttContext,
    RequestStream,
    find_handlers,
    handler_failure,
)
from fiveways.client.mqtt.service_calls import CallWorkers, ServiceCall
from fiveways.client.mqtt.session import MqttSession
from fiveways.client.settings import BAD_TIMEOUT
from fiveways.errors import LocalProtocolError, Malformed, Reason
from fiveways.model import names
from fiveways.model.messages import Call, Cancel, Failure, Part, Result
from fiveways.schemas import Service
from fiveways.wire.payload import Binary

GRACE: Final = 5.0
"""Seconds that running calls get when a service is stopped."""
_MAX_ROUTES: Final = 1024
"""Spellings of methods that are remembered."""
_PARTS_PER_TURN: Final = 32
"""Parts of a streamed answer after which everybody else gets a turn."""
_THREAD, _STREAM = ExecutionMode.THREAD, ExecutionMode.STREAM
"""To reach a member of an Enum through its class takes a while."""
_log = logging.getLogger("fiveways.client.mqtt")


class ServedService:
    """A service on its topic: `async with peer.serve(Greeter, MyGreeter()):`, or `served = await peer.serve(...)`."""

    def __init__(
        self, services: "ServiceRegistry", service: Service, implementation: object, topic: str, timeout: float
    ) -> None:
        if timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        self.service = service
        self.topic = topic
        self.timeout = timeout
        self._handlers = find_handlers(service, implementation)
        self.streaming_kinds = {name: handler.method.kind for name, handler in self._handlers.items()}
        """Who streams in each method that we have a function for."""
        self._registry = services
        self._loop = asyncio.get_running_loop()
        self._default_timeout_calls: dict[str, ServiceCall] = {}
        """Calls without a timeout of their own: all get the same, so that the oldest is overdue first."""
        self._timer: asyncio.TimerHandle | None = None
        self.call_ended: asyncio.Event | None = None
        """Set when a call ends, for who waits for the last one."""

    def __repr__(self) -> str:
        return f"<Served {self.service.full_name} on {self.topic}>"

    async def start(self) -> Self:
        """Begin to serve; return when the broker delivers calls.

        Raises:
            NotExecuted: the broker refuses the topic, or there is no link to it.
            ValueError: the topic is served by this peer already.
        """
        await self._registry.start(self)
        return self

    async def stop(self, grace: float = GRACE) -> None:
        """Take no more calls; those that run have `grace` seconds to end, then they fail as lost."""
        await self._registry.stop(self, grace)

    def __await__(self) -> Generator[object, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def find(self, kind: str) -> MethodHandler | None:
        """Return the function for the type of a request."""
        handler = self._handlers.get(kind)
        if handler is None:
            method = self.service.find(kind)
            handler = None if method is None else self._handlers.get(method.name)
        return handler

    def streaming_kind(self, kind: str) -> str:
        """Return who streams in the method that the type of a request names, however it is spelled."""
        handler = self.find(kind)
        return "unary" if handler is None else handler.method.kind

    # Our own timeout.

    def start_timeout(self, run: ServiceCall) -> None:
        """End a call when our own timeout is over."""
        loop = self._loop
        run.deadline = loop.time() + self.timeout
        self._default_timeout_calls[run.id] = run
        if self._timer is None:
            self._timer = loop.call_at(run.deadline, self._expire)

    def stop_timeout(self, run: ServiceCall) -> None:
        """Know that a call is over."""
        if run.deadline:
            self._default_timeout_calls.pop(run.id, None)

    def _expire(self) -> None:
        loop = self._loop
        now = loop.time()
        self._timer = None
        for run in list(self._default_timeout_calls.values()):
            if run.deadline > now:
                self._timer = loop.call_at(run.deadline, self._expire)
                return
            self._registry.fail_call(run, Reason.TIMEOUT, f"not done within {self.timeout:g} s")

    def close(self) -> None:
        """Watch nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ServiceRegistry:
    """All services of one client. Fulfils `session.Servant`."""

    def __init__(self, session: MqttSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[str, ServedService] = {}
        self._calls: dict[str, ServiceCall] = {}
        self._closing_tasks: set[asyncio.Task[None]] = set()
        """Tasks of calls that were answered without them."""
        self._threads = ThreadRunner()
        self._workers = CallWorkers(self._complete, self._fail)
        self._routes: dict[str, tuple[ServedService, MethodHandler]] = {}
        """Functions that were called already, by how they are called."""

    def create(self, service: Service, implementation: object, topic: str, timeout: float) -> ServedService:
        """Make a service that is not served yet; BadName if nothing can be served on such a topic."""
        for method in service.methods:
            names.fold_registration(f"{topic}/{method}", names.MQTT)
        return ServedService(self, service, implementation, topic, timeout)

    async def start(self, served: ServedService) -> None:
        """Let calls come."""
        topic = served.topic
        if self._by_topic.get(topic) is not None:
            raise ValueError(f"{topic} is served by this peer already")
        self._by_topic[topic] = served
        topics = self._session.topics
        topics.served.add(topic)
        try:
            await self._session.wait_ready(topic, None)
        except BaseException:
            self._by_topic.pop(topic, None)
            self._routes.clear()
            topics.served.discard(topic)
            raise

    async def stop(self, served: ServedService, grace: float) -> None:
        """Let no more calls come, and those that run end."""
        if self._by_topic.get(served.topic) is not served:
            return
        del self._by_topic[served.topic]
        self._routes.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                served.call_ended = asyncio.Event()
                while self._calls_of(served):
                    served.call_ended.clear()
                    await served.call_ended.wait()
        for run in self._calls_of(served):
            self.fail_call(run, Reason.LOST, "the service was stopped before it answered")
        served.close()
        self._session.topics.release(served.topic)

    def _calls_of(self, served: ServedService) -> list[ServiceCall]:
        return [run for run in self._calls.values() if run.service is served]

    async def close(self) -> None:
        """Stop all at once; tasks get a while to end."""
        for served in list(self._by_topic.values()):
            await self.stop(served, 0)
        ending = self._closing_tasks - {asyncio.current_task()}
        if ending:
            _, stubborn = await asyncio.wait(ending, timeout=GRACE)
            if stubborn:
                _log.warning("%d tasks do not end though they were cancelled", len(stubborn))
        self._threads.close()

    # What the session tells.

    def serves(self, topic: str) -> bool:
        """Whether a topic is served here."""
        return topic in self._by_topic

    def streaming_kind(self, topic: str, kind: str) -> str | None:
        """Return who streams in a method; None if the topic is not served here."""
        served = self._by_topic.get(topic)
        if served is None:
            return None
        return served.streaming_kinds.get(kind) or served.streaming_kind(kind)

    def handle_call(self, word: Call) -> None:
        """Run a function."""
        route = self._routes.get(word.spelling) or self._find_route(word)
        if route is None:
            return
        served, handler = route
        if handler.mode is _THREAD and self._threads.is_full:
            self._reject(word, Reason.OVERLOADED, "too many calls wait for a thread")
            return
        run, body = ServiceCall(word.id, served, handler), word.body
        data = body.data if type(body) is Binary else body.binary()
        argument: Message | RequestStream
        if handler.takes_stream:
            run.request_parts = self._session.new_part_buffer()
            run.request_parts.put(data)
            if not word.more:
                run.request_parts.end()
            argument = RequestStream(handler, run.request_parts)
        else:
            try:
                argument = handler.read(data)
            except Malformed as exc:
                self._reject(word, Reason.BAD_ARGUMENTS, str(exc))
                return
        self._start(run, argument, word.timeout)

    def _find_route(self, word: Call) -> "tuple[ServedService, MethodHandler] | None":
        """Find the function that is called; where there is none, the caller is told."""
        topic, _, kind = word.spelling.rpartition("/")
        served = self._by_topic.get(topic)
        handler = None if served is None else served.find(kind)
        if served is None or handler is None:
            name = topic if served is None else served.service.full_name
            self._reject(word, Reason.NO_SUCH_METHOD, f"{name} has no method {kind} here")
            return None
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        route = self._routes[word.spelling] = served, handler
        return route

    def handle_part(self, word: Part) -> None:
        """Take one more element of a streamed request."""
        run = self._calls.get(word.id)
        if run is None or run.request_parts is None:
            return
        if word.body is not None and not run.request_parts.put(word.body.binary()):
            # It may have done half of its work, so it cannot be told that the call was refused.
            self.fail_call(run, Reason.RAISED, "the method reads the stream too slowly")
        elif word.last:
            run.request_parts.end()

    def handle_cancel(self, word: Cancel) -> None:
        """Know that the caller's time is over, or that its stream broke; it was told."""
        run = self._calls.get(word.id)
        if run is not None:
            self._stop_call(run)

    def link_lost(self) -> None:
        """End streams of which parts are lost; all else goes on, and is answered by the next link."""
        for run in [run for run in self._calls.values() if run.breaks_with_link]:
            self.fail_call(run, Reason.LOST, "the link to the broker was lost in the middle of the stream")

    # The functions.

    def _start(self, run: ServiceCall, argument: Message | RequestStream, timeout: float | None) -> None:
        handler, served = run.handler, run.service
        arguments: tuple[Any, ...] = (argument,)
        if handler.wants_context:
            given = served.timeout if timeout is None else timeout
            arguments = argument, MqttContext(served.topic, handler.method.name, given)
        self._calls[run.id] = run
        if timeout is None:
            served.start_timeout(run)
        if handler.mode is _THREAD:
            self._threads.start(
                partial(_run_in_thread, run, handler.function, arguments), partial(self._on_thread_done, run)
            )
        elif handler.mode is _STREAM:
            run.task = self._loop.create_task(self._run_stream(run, arguments))
        else:
            self._workers.start(run, arguments)

    async def _run_stream(self, run: ServiceCall, arguments: tuple[Any, ...]) -> None:
        session = self._session
        try:
            async with aclosing(run.handler.function(*arguments)) as parts:
                async for value in parts:
                    if run.is_over:
                        return
                    session.send(Result(run.id, run.handler.write(value), (), True, False))
                    run.parts_sent += 1
                    link = session.reconnector.link
                    if link is None or link.is_full:
                        await session.reconnector.wait_writable()
                    elif run.parts_sent % _PARTS_PER_TURN == 0:
                        await asyncio.sleep(0)
            if not run.is_over:
                session.send(Result(run.id, None, (), True, True))
                self._finish(run)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  the caller gets it
            self._fail(run, exc)

    def _on_thread_done(self, run: ServiceCall, outcome: tuple[Any, BaseException | None]) -> None:
        value, error = outcome
        if error is not None:
            self._fail(run, error)
            return
        try:
            self._complete(run, value)
        except LocalProtocolError as exc:
            self._fail(run, exc)

    # The answers.

    def _complete(self, run: ServiceCall, value: object) -> None:
        if not run.is_over:
            self._session.send(Result(run.id, run.handler.write(value)))
            self._finish(run)

    def _fail(self, run: ServiceCall, error: BaseException) -> None:
        if run.is_over:
            return
        name = f"{run.service.service.full_name}.{run.handler.method.name}"
        if isinstance(error, Fail):
            self._send_failure(run, handler_failure(run.id, error))
        elif isinstance(error, LocalProtocolError):
            _log.warning("%s ran, but its answer cannot be written: %s", name, error)
            text = f"the method ran, but its answer cannot be written: {error}"
            self._send_failure(run, Failure(run.id, Reason.RAISED, text))
        else:
            self._send_failure(run, log_failure(run.id, name, error, show_errors=self._session.settings.show_errors))
        self._finish(run)

    def fail_call(self, run: ServiceCall, reason: Reason, text: str) -> None:
        """End a call without its function."""
        if not run.is_over:
            self._send_failure(run, Failure(run.id, reason, text))
            self._stop_call(run)

    def _stop_call(self, run: ServiceCall) -> None:
        """End the work: it was answered without it."""
        self._finish(run)
        task = run.task
        if task is not None and not task.done():
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)
            task.cancel()

    def _finish(self, run: ServiceCall) -> None:
        run.is_over = True
        self._calls.pop(run.id, None)
        served = run.service
        served.stop_timeout(run)
        if served.call_ended is not None:
            served.call_ended.set()
        if run.request_parts is not None:
            run.request_parts.drop()

    def _reject(self, word: Call, reason: Reason, text: str) -> None:
        self._session.send(Failure(word.id, reason, text))

    def _send_failure(self, run: ServiceCall, word: Failure) -> None:
        try:
            self._session.send(word)
        except LocalProtocolError as exc:
            _log.warning("%s: its caller cannot be told: %s", run.handler.method.name, exc)


def _run_in_thread(
    run: ServiceCall, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Run a plain function, in a thread."""
    # It may have waited for a thread until nobody wanted it any more.
    if run.is_over:
        return None, None
    try:
        return function(*arguments), None
    except BaseException as exc:  # noqa: BLE001  the caller gets it
        return None, exc
