"""Dispatches messages of the hub to an application: calls to methods, events and updates to handlers."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from msgspec.structs import replace

from fiveways.app.app import App, Hook, Method, Route
from fiveways.app.app_callbacks import AppCallbacks
from fiveways.app.arguments import BadArguments, BoundArguments
from fiveways.app.attachments import PendingAttachments
from fiveways.app.call_executor import CallExecutor
from fiveways.app.context import UNKNOWN_CALLER, ActiveCall, CallerInfo, Context, HubApi
from fiveways.app.handler_queue import EventQueue
from fiveways.app.late_attachments import LateAttachments
from fiveways.app.memory_budget import MemoryBudget
from fiveways.app.request_elements import ElementCollector, ElementStream
from fiveways.app.responses import log_failure
from fiveways.app.routes import bind_route
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.app.updates import UpdateDispatcher, UpdateQueue
from fiveways.app.workers import JobWorkers
from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model import messages
from fiveways.wire.limits import Limits

MAX_RUNNING: Final = 1000
"""Calls in progress, in tasks and threads together; further calls are refused as overloaded."""
GRACE: Final = 5.0
"""Seconds that cancelled tasks get to end when the application is closed."""

_THREAD: Final = ExecutionMode.THREAD
"""An enum member as a module global, because access through the class is slower."""
_REGISTER_PREFIX: Final = "register "
_SUBSCRIBE_PREFIX: Final = "subscribe "

_log = logging.getLogger("fiveways.app")


class Dispatcher:
    """One application in one event loop, as a peer: messages go in by `handle`, and out by `send`.

    Args:
        app: the application.
        send: sends a message; called only in the event loop, within `handle` for refusals, otherwise later.
        find_caller: returns the caller of a call by the call's id.
        hub: access to the hub for methods; without it, there is none.
        executor: runs functions that are not async; by default a pool of threads.
        limits: limits of the application.
        always_stream: stream a result even if the caller did not ask for it; the receiver of `send` then collects the
            parts.
    """

    def __init__(
        self,
        app: App,
        send: Callable[[messages.HubMessage], None],
        *,
        find_caller: Callable[[str], CallerInfo | None] | None = None,
        hub: HubApi | None = None,
        executor: Executor | None = None,
        limits: Limits = Limits(),
        always_stream: bool = True,
    ) -> None:
        self._app = app
        self._methods = app.methods
        self._send = send
        self._find_caller = find_caller
        self._hub = hub
        self._limits = limits
        self._threads = ThreadRunner(executor)
        self._budget = MemoryBudget()
        self._pending_attachments = PendingAttachments(self._budget)
        self.callbacks = AppCallbacks(
            app.methods, send, self._run_if_capacity, self._pending_attachments, limits.max_pending
        )
        late = LateAttachments(send, self._peer_of_call, limits, self._budget)
        self._executor = CallExecutor(
            app, send, self._on_call_ended, self._threads, limits, late, always_stream=always_stream
        )
        self._active_calls = self._executor.active_calls
        self._open_calls: dict[str, ActiveCall] = {}
        """Calls that need a response, by id."""
        event_queues = [EventQueue(handler, self._pending_attachments, self._threads) for handler in app.handlers]
        self._event_queues = {str(number): queue for number, queue in enumerate(event_queues, 1)}
        self.updates = UpdateDispatcher(app.update_handlers, self._pending_attachments, self._threads)
        self._workers = JobWorkers(app, self._threads, self._make_context)
        self._is_started = False
        self._is_closed = False
        self._answers_when_closed = True
        """Whether callers get an error response when the application is closed."""
        self._handlers: dict[type[messages.HubMessage], Callable[..., object]] = {
            messages.Part: self._on_part,
            messages.Cancel: self._on_cancel,
            messages.Attachment: self._pending_attachments.put,
            messages.Event: self._on_event,
            messages.TopicClosed: self._on_topic_closed,
            messages.Update: self.updates.put,
            messages.UpdatesClosed: self.updates.handle_closed,
            messages.Failure: self._on_request_failed,
        }

    # Calls by the runtime.

    def registrations(self) -> list[messages.Register]:
        """Return the messages that register all methods and routes; `handle` logs a refusal."""
        return [
            messages.Register(
                _REGISTER_PREFIX + method.name,
                method.name,
                method.spelling,
                doc=method.doc,
                kind=method.kind,
                share=method.share,
            )
            for method in self._methods.values()
        ] + [
            messages.Register(
                _REGISTER_PREFIX + route.name, route.name, route=True, doc=route.method.doc, kind=route.method.kind
            )
            for route in self._app.routes.values()
        ]

    def subscriptions(self) -> list[messages.Subscribe]:
        """Return the messages that subscribe the event handlers; events must carry these subscription names."""
        return [
            messages.Subscribe(_SUBSCRIBE_PREFIX + queue.handler.topic, queue.handler.pattern, name)
            for name, queue in self._event_queues.items()
        ]

    async def start(self) -> None:
        """Run the startup functions; their exceptions are raised."""
        self._is_started = True
        for hook in self._app.startups:
            await self._run_hook(hook)

    def start_workers(self) -> None:
        """Start to pull jobs for the worker functions, if there is access to the hub."""
        if self._hub is not None:
            self._workers.start(self._hub)

    async def stop_workers(self, drain_timeout: float = 0.0) -> None:
        """Stop pulling jobs; those in progress get `drain_timeout` seconds, then the hub redelivers them."""
        await self._workers.stop(drain_timeout)

    def handle(self, message: messages.HubMessage) -> None:
        """Handle a message of the hub. Never raises; messages without a meaning here are ignored."""
        if type(message) is messages.Call:
            self.handle_call(message)
            return
        handler = self._handlers.get(type(message))
        if handler is None:
            return
        try:
            handler(message)
        except Exception:  # noqa: BLE001  # only this message is lost
            _log.exception("a message of the hub could not be handled type=%s", type(message).__name__)

    def peer_left(self, peer: str) -> None:
        """Cancel work for a peer that has left."""
        self._executor.late.peer_left(peer)

    def _peer_of_call(self, call_id: str) -> str:
        caller = None if self._find_caller is None else self._find_caller(call_id)
        return "" if caller is None else caller.peer

    def open_calls(self) -> int:
        """Return the number of calls that need a response."""
        return len(self._open_calls)

    async def close(self, *, notify_callers: bool = True) -> None:
        """Stop: fail open calls as lost, cancel tasks, then run the shutdown functions.

        Without `notify_callers` there is no response to open and later calls: the hub sees the end of the connection
        and reports it more precisely than some protocols can. A function in a thread cannot be cancelled: it runs on,
        and its result is dropped.
        """
        if self._is_closed:
            return
        self._is_closed, self._answers_when_closed = True, notify_callers
        await self.stop_workers()  # before `callbacks.close()`, so that their jobs can be declined
        self.callbacks.close()
        for active_call in list(self._open_calls.values()):
            if notify_callers:
                self._fail_call(active_call, Reason.LOST, "the application was closed before the method ended")
            else:
                active_call.is_over = True
                active_call.cancel()
                self._on_call_ended(active_call)
        self._executor.late.close()
        queues: list[EventQueue | UpdateQueue] = [*self._event_queues.values(), *self.updates.queues]
        tasks = {*self._executor.tasks(), *filter(None, (queue.task for queue in queues))}
        for queue in queues:
            queue.close()
        self.updates.close()
        tasks -= {asyncio.current_task()}
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=GRACE)
            if unfinished:
                _log.warning("cancelled tasks still run tasks=%d", len(unfinished))
        for hook in self._app.shutdowns if self._is_started else ():
            try:
                await self._run_hook(hook)
            except Exception:  # noqa: BLE001  # the other functions must run
                _log.exception("a shutdown function failed")
        self._threads.close()

    # Calls.

    def handle_call(self, call: messages.Call) -> None:
        """Run a method; never raises."""
        try:
            method, open_calls = self._methods.get(call.method), self._open_calls
            if (
                method is None
                or call.callback
                or self._is_closed
                or len(open_calls) >= MAX_RUNNING
                or len(self._active_calls) >= MAX_RUNNING
                or call.id in open_calls
                or (method.mode is _THREAD and self._threads.is_full)
            ):
                self._reject(call, method)
            elif call.more or call.attachments or not method.arguments.has_no_injected:
                self._prepare(call, method)
            else:
                active_call = ActiveCall(call)
                arguments = method.arguments.read(call.body)
                open_calls[call.id] = active_call
                self._start(active_call, method, arguments)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
        except Exception as exc:  # noqa: BLE001  # only this call fails
            self._executor.send_response(
                ActiveCall(call), [log_failure(call.id, call.method, exc, show_errors=self._app.show_errors)]
            )

    def _reject(self, call: messages.Call, method: Method | None) -> None:
        if call.callback:
            if not self.callbacks.dispatch(call):
                self._refuse(call, Reason.NO_SUCH_CALLBACK, "the application does not wait for a callback")
        elif method is None and (route := self.find_route(call.method)) is not None:
            self._run_if_capacity(bind_route(call, route), route.method)
        elif method is None:
            self._refuse(call, Reason.NO_SUCH_METHOD, f"there is no method {call.method!r}")
        elif self._is_closed:
            if self._answers_when_closed:
                self._refuse(call, Reason.UNAVAILABLE, "the application is closing")
        elif call.id in self._open_calls:
            _log.warning("dropped a call with the id of another open call")
        else:
            is_full = max(len(self._open_calls), len(self._active_calls)) >= MAX_RUNNING
            text = "too many calls are running" if is_full else "too many calls wait for a thread"
            self._refuse(call, Reason.OVERLOADED, text)

    def find_route(self, name: str) -> Route | None:
        """Return the longest route above a folded name."""
        routes = self._app.routes
        prefix = name.rpartition(".")[0] if routes else ""
        while prefix and prefix not in routes:
            prefix = prefix.rpartition(".")[0]
        return routes.get(prefix)

    def _run_if_capacity(self, call: messages.Call, method: Method) -> None:
        is_full = max(len(self._open_calls), len(self._active_calls)) >= MAX_RUNNING or self._threads.is_full
        if self._is_closed or is_full:
            self._reject(replace(call, callback=False), method)
        else:
            self._prepare(call, method)

    def _prepare(self, call: messages.Call, method: Method) -> None:
        """Start a method with injected arguments, or with a streamed request or attachments."""
        active_call = ActiveCall(call)
        arguments = method.arguments
        try:
            if arguments.wants_stream:
                bound, active_call.elements = arguments.read_stream(call.body, self._budget, more=call.more)
            elif call.more:
                on_complete = partial(self._start_collected, active_call, method)
                active_call.elements = ElementCollector(on_complete, self._limits, self._budget)
            else:
                bound = arguments.read(call.body)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
            return
        self._open_calls[call.id] = active_call
        if call.attachments and arguments.wants_context:
            active_call.attachments = self._pending_attachments.expect(call.attachments)
        if isinstance(active_call.elements, ElementCollector):
            self._collect_part(active_call, active_call.elements, messages.Part(call.id, call.body))
        else:
            self._inject_and_start(active_call, method, bound)

    def _inject_and_start(self, active_call: ActiveCall, method: Method, bound: BoundArguments) -> None:
        arguments = method.arguments
        if arguments.wants_context or arguments.wants_stream:
            context = self._make_context(active_call) if arguments.wants_context else None
            elements = active_call.elements if isinstance(active_call.elements, ElementStream) else None
            bound = arguments.inject(bound, context, elements)
        self._start(active_call, method, bound)

    def _start(self, active_call: ActiveCall, method: Method, bound: BoundArguments) -> None:
        try:
            self._executor.start(active_call, method, bound)
        except RuntimeError:
            self._fail_call(active_call, Reason.UNAVAILABLE, "the application is closing")

    def _make_context(self, active_call: ActiveCall) -> Context:
        caller = None if self._find_caller is None else self._find_caller(active_call.call.id)
        return Context(active_call, UNKNOWN_CALLER if caller is None else caller, self._hub, self._send_progress)

    def _send_progress(self, message: messages.HubMessage) -> None:
        """Send a progress note, which may be lost."""
        try:
            self._send(message)
        except LocalProtocolError as exc:
            _log.debug("a progress note was not sent error=%s", exc)

    def _on_part(self, part: messages.Part) -> None:
        active_call = self._open_calls.get(part.id)
        if active_call is None:
            return
        if isinstance(active_call.elements, ElementCollector):
            self._collect_part(active_call, active_call.elements, part)
        elif active_call.elements is not None:
            if part.body is not None and not active_call.elements.put(part.body):
                # The method is running: the failure must not be reported as a refused call.
                self._fail_call(active_call, Reason.RAISED, "the method reads the stream too slowly")
            if part.last:
                active_call.elements.end()

    def _collect_part(self, active_call: ActiveCall, collector: ElementCollector, part: messages.Part) -> None:
        try:
            if part.body is not None and not collector.put(part.body):
                self._fail_call(active_call, Reason.TOO_LARGE, "the streamed request is too long for one array")
            elif part.last:
                collector.end()
        except (BadArguments, Unrepresentable) as exc:
            self._fail_call(active_call, Reason.BAD_ARGUMENTS, str(exc))

    def _start_collected(self, active_call: ActiveCall, method: Method, values: list[object]) -> None:
        bound = method.arguments.read_collected(values)
        active_call.elements = None
        self._inject_and_start(active_call, method, bound)

    def _on_cancel(self, message: messages.Cancel) -> None:
        active_call = self._open_calls.get(message.id)
        if active_call is not None:
            active_call.cancel()
            self._on_call_ended(active_call)

    def _fail_call(self, active_call: ActiveCall, reason: Reason, text: str) -> None:
        """Fail an open call and cancel its method."""
        active_call.is_over = True
        self._executor.send_response(active_call, [messages.Failure(active_call.call.id, reason, text)])
        active_call.cancel()
        self._on_call_ended(active_call)

    def _on_call_ended(self, active_call: ActiveCall) -> None:
        call = active_call.call
        if self._open_calls.get(call.id) is active_call:
            del self._open_calls[call.id]
        if active_call.elements is not None:
            active_call.elements.drop()
        if active_call.attachments is not None:
            self._pending_attachments.discard(call.attachments, active_call.attachments)

    def _refuse(self, call: messages.Call, reason: Reason, text: str) -> None:
        self._executor.send_response(ActiveCall(call), [messages.Failure(call.id, reason, text)])

    # Other messages.

    def _on_event(self, message: messages.Event) -> None:
        queue = self._event_queues.get(message.subscription)
        if queue is not None and not self._is_closed:
            queue.put(message)

    def _on_topic_closed(self, message: messages.TopicClosed) -> None:
        queue = self._event_queues.get(message.subscription)
        if queue is not None:
            _log.info("the topic of an event handler was closed topic=%s", queue.handler.topic)

    def _on_request_failed(self, message: messages.Failure) -> None:
        if message.id.startswith((_REGISTER_PREFIX, _SUBSCRIBE_PREFIX)):
            _log.warning(
                "the hub refused a request request=%s error=%s", message.id, message.text or message.reason.text
            )

    async def _run_hook(self, hook: Hook) -> None:
        context = self._make_context(ActiveCall(messages.Call("", ""))) if hook.arguments.wants_context else None
        args, keywords = hook.arguments.inject(([], {}), context, None)
        if hook.mode is ExecutionMode.THREAD:
            await self._threads.run(hook.function, *args, **keywords)
        else:
            await hook.function(*args, **keywords)
