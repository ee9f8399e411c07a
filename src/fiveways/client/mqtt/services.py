"""Services of this client at a broker, and their running calls."""

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
"""Method spellings in the cache."""
_PARTS_PER_TURN: Final = 32
"""Parts of a streamed response after which other tasks get a turn."""
_THREAD, _STREAM = ExecutionMode.THREAD, ExecutionMode.STREAM
"""Enum members as module globals, because access through the class is slower."""
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
        """Streaming kind of each method that has a function."""
        self._registry = services
        self._loop = asyncio.get_running_loop()
        self._default_timeout_calls: dict[str, ServiceCall] = {}
        """Calls with the service's own timeout: the oldest expires first."""
        self._timer: asyncio.TimerHandle | None = None
        self.call_ended: asyncio.Event | None = None
        """Set when a call ends, while `stop` waits for the last one."""

    def __repr__(self) -> str:
        return f"<Served {self.service.full_name} on {self.topic}>"

    async def start(self) -> Self:
        """Start to serve; return when the broker has confirmed the subscription.

        Raises:
            NotExecuted: the broker refuses the topic, or there is no link to it in time.
            ConnectionLost: the connection to the broker is closed for good.
            ValueError: this client serves the topic already.
        """
        await self._registry.start(self)
        return self

    async def stop(self, grace: float = GRACE) -> None:
        """Stop serving; running calls get `grace` seconds, then they fail as lost."""
        await self._registry.stop(self, grace)

    def __await__(self) -> Generator[object, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def find(self, kind: str) -> MethodHandler | None:
        """Return the function of a request type, or None."""
        handler = self._handlers.get(kind)
        if handler is None:
            method = self.service.find(kind)
            handler = None if method is None else self._handlers.get(method.name)
        return handler

    def streaming_kind(self, kind: str) -> str:
        """Return the streaming kind of a method in any spelling; `unary` if it is unknown."""
        handler = self.find(kind)
        return "unary" if handler is None else handler.method.kind

    # The service's own timeout.

    def start_timeout(self, call: ServiceCall) -> None:
        """Start the service's own timeout for a call."""
        loop = self._loop
        call.deadline = loop.time() + self.timeout
        self._default_timeout_calls[call.id] = call
        if self._timer is None:
            self._timer = loop.call_at(call.deadline, self._expire)

    def stop_timeout(self, call: ServiceCall) -> None:
        """Handle the end of a call."""
        if call.deadline:
            self._default_timeout_calls.pop(call.id, None)

    def _expire(self) -> None:
        loop = self._loop
        now = loop.time()
        self._timer = None
        for call in list(self._default_timeout_calls.values()):
            if call.deadline > now:
                self._timer = loop.call_at(call.deadline, self._expire)
                return
            self._registry.fail_call(call, Reason.TIMEOUT, f"not done within {self.timeout:g} s")

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ServiceRegistry:
    """All services of one client. Implements `session.CallHandler`."""

    def __init__(self, session: MqttSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[str, ServedService] = {}
        self._calls: dict[str, ServiceCall] = {}
        self._closing_tasks: set[asyncio.Task[None]] = set()
        """Cancelled tasks of calls that have their response already."""
        self._threads = ThreadRunner()
        self._workers = CallWorkers(self._complete, self._fail)
        self._routes: dict[str, tuple[ServedService, MethodHandler]] = {}
        """Cache: service and function of each spelling."""

    def create(self, service: Service, implementation: object, topic: str, timeout: float) -> ServedService:
        """Create a service that is not started; BadName if the topic is invalid."""
        for method in service.methods:
            names.fold_registration(f"{topic}/{method}", names.MQTT)
        return ServedService(self, service, implementation, topic, timeout)

    async def start(self, served: ServedService) -> None:
        """Subscribe to the topic of a service."""
        topic = served.topic
        if self._by_topic.get(topic) is not None:
            raise ValueError(f"{topic} is served already by this client")
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
        """Stop a service: refuse new calls and let running calls end."""
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
        for call in self._calls_of(served):
            self.fail_call(call, Reason.LOST, "the service was stopped before it answered")
        served.close()
        self._session.topics.release(served.topic)

    def _calls_of(self, served: ServedService) -> list[ServiceCall]:
        return [call for call in self._calls.values() if call.service is served]

    async def close(self) -> None:
        """Stop all services without grace; tasks get a while to end."""
        for served in list(self._by_topic.values()):
            await self.stop(served, 0)
        ending = self._closing_tasks - {asyncio.current_task()}
        if ending:
            _, unfinished = await asyncio.wait(ending, timeout=GRACE)
            if unfinished:
                _log.warning("cancelled tasks still run tasks=%d", len(unfinished))
        self._threads.close()

    # Calls by the session.

    def serves(self, topic: str) -> bool:
        """Return whether a topic is served here."""
        return topic in self._by_topic

    def streaming_kind(self, topic: str, kind: str) -> str | None:
        """Return the streaming kind of a method; None if the topic is not served here."""
        served = self._by_topic.get(topic)
        if served is None:
            return None
        return served.streaming_kinds.get(kind) or served.streaming_kind(kind)

    def handle_call(self, call: Call) -> None:
        """Run a function."""
        route = self._routes.get(call.spelling) or self._find_route(call)
        if route is None:
            return
        served, handler = route
        if handler.mode is _THREAD and self._threads.is_full:
            self._reject(call, Reason.OVERLOADED, "too many calls wait for a thread")
            return
        running, body = ServiceCall(call.id, served, handler), call.body
        data = body.data if type(body) is Binary else body.binary()
        argument: Message | RequestStream
        if handler.takes_stream:
            running.request_parts = self._session.new_part_buffer()
            running.request_parts.put(data)
            if not call.more:
                running.request_parts.end()
            argument = RequestStream(handler, running.request_parts)
        else:
            try:
                argument = handler.read(data)
            except Malformed as exc:
                self._reject(call, Reason.BAD_ARGUMENTS, str(exc))
                return
        self._start(running, argument, call.timeout)

    def _find_route(self, call: Call) -> "tuple[ServedService, MethodHandler] | None":
        """Find the function of a call; without one, send an error response."""
        topic, _, kind = call.spelling.rpartition("/")
        served = self._by_topic.get(topic)
        handler = None if served is None else served.find(kind)
        if served is None or handler is None:
            name = topic if served is None else served.service.full_name
            self._reject(call, Reason.NO_SUCH_METHOD, f"{name} has no method {kind} here")
            return None
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        route = self._routes[call.spelling] = served, handler
        return route

    def handle_part(self, part: Part) -> None:
        """Add an element to a streamed request."""
        call = self._calls.get(part.id)
        if call is None or call.request_parts is None:
            return
        if part.body is not None and not call.request_parts.put(part.body.binary()):
            # The method is running: the failure must not be reported as a refused call.
            self.fail_call(call, Reason.RAISED, "the method reads the stream too slowly")
        elif part.last:
            call.request_parts.end()

    def handle_cancel(self, cancel: Cancel) -> None:
        """Cancel a call that timed out or whose stream broke; its caller has an error response."""
        call = self._calls.get(cancel.id)
        if call is not None:
            self._stop_call(call)

    def link_lost(self) -> None:
        """Fail calls whose streams lost parts; other calls continue, and respond over the next link."""
        for call in [call for call in self._calls.values() if call.breaks_with_link]:
            self.fail_call(call, Reason.LOST, "the link to the broker was lost during the stream")

    # Functions.

    def _start(self, call: ServiceCall, argument: Message | RequestStream, timeout: float | None) -> None:
        handler, served = call.handler, call.service
        arguments: tuple[Any, ...] = (argument,)
        if handler.wants_context:
            call_timeout = served.timeout if timeout is None else timeout
            arguments = argument, MqttContext(served.topic, handler.method.name, call_timeout)
        self._calls[call.id] = call
        if timeout is None:
            served.start_timeout(call)
        if handler.mode is _THREAD:
            self._threads.start(
                partial(_run_in_thread, call, handler.function, arguments), partial(self._on_thread_done, call)
            )
        elif handler.mode is _STREAM:
            call.task = self._loop.create_task(self._run_stream(call, arguments))
        else:
            self._workers.start(call, arguments)

    async def _run_stream(self, call: ServiceCall, arguments: tuple[Any, ...]) -> None:
        session = self._session
        try:
            async with aclosing(call.handler.function(*arguments)) as parts:
                async for value in parts:
                    if call.is_over:
                        return
                    session.send(Result(call.id, call.handler.write(value), stream=True, last=False))
                    call.parts_sent += 1
                    link = session.reconnector.link
                    if link is None or link.is_full:
                        await session.reconnector.wait_writable()
                    elif call.parts_sent % _PARTS_PER_TURN == 0:
                        await asyncio.sleep(0)
            if not call.is_over:
                session.send(Result(call.id, None, stream=True, last=True))
                self._finish(call)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  the caller gets it
            self._fail(call, exc)

    def _on_thread_done(self, call: ServiceCall, outcome: tuple[Any, BaseException | None]) -> None:
        value, error = outcome
        if error is not None:
            self._fail(call, error)
            return
        try:
            self._complete(call, value)
        except LocalProtocolError as exc:
            self._fail(call, exc)

    # Responses.

    def _complete(self, call: ServiceCall, value: object) -> None:
        if not call.is_over:
            self._session.send(Result(call.id, call.handler.write(value)))
            self._finish(call)

    def _fail(self, call: ServiceCall, error: BaseException) -> None:
        if call.is_over:
            return
        name = f"{call.service.service.full_name}.{call.handler.method.name}"
        if isinstance(error, Fail):
            self._send_failure(call, handler_failure(call.id, error))
        elif isinstance(error, LocalProtocolError):
            _log.warning(
                "the response of a method cannot be encoded; its caller gets an error method=%s error=%s", name, error
            )
            text = f"the method ran, but its response cannot be encoded: {error}"
            self._send_failure(call, Failure(call.id, Reason.RAISED, text))
        else:
            self._send_failure(call, log_failure(call.id, name, error, show_errors=self._session.settings.show_errors))
        self._finish(call)

    def fail_call(self, call: ServiceCall, reason: Reason, text: str) -> None:
        """Fail a call and cancel its function."""
        if not call.is_over:
            self._send_failure(call, Failure(call.id, reason, text))
            self._stop_call(call)

    def _stop_call(self, call: ServiceCall) -> None:
        """Cancel the function of a call that has its response already."""
        self._finish(call)
        task = call.task
        if task is not None and not task.done():
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)
            task.cancel()

    def _finish(self, call: ServiceCall) -> None:
        call.is_over = True
        self._calls.pop(call.id, None)
        served = call.service
        served.stop_timeout(call)
        if served.call_ended is not None:
            served.call_ended.set()
        if call.request_parts is not None:
            call.request_parts.drop()

    def _reject(self, call: Call, reason: Reason, text: str) -> None:
        self._session.send(Failure(call.id, reason, text))

    def _send_failure(self, call: ServiceCall, failure: Failure) -> None:
        try:
            self._session.send(failure)
        except LocalProtocolError as exc:
            _log.warning(
                "an error response cannot be encoded; the caller gets none method=%s error=%s",
                call.handler.method.name,
                exc,
            )


def _run_in_thread(
    call: ServiceCall, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Run a function that is not async, in a thread."""
    # The call may have ended while it waited for a thread.
    if call.is_over:
        return None, None
    try:
        return function(*arguments), None
    except BaseException as exc:  # noqa: BLE001  the caller gets it
        return None, exc
