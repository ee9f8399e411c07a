"""Where an application meets the hub's words: calls become runs of its methods, events go to its functions."""

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
from fiveways.app.request_elements import ElementCollector, ElementStream
from fiveways.app.responses import log_failure
from fiveways.app.routes import bind_route
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.app.updates import UpdateDispatcher, UpdateQueue
from fiveways.app.values import MemoryBudget
from fiveways.app.workers import JobWorkers
from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model import messages as words
from fiveways.model.topics import Pattern
from fiveways.wire.limits import Limits

MAX_RUNNING: Final = 1000
"""Calls that run at once, in tasks and threads together; the next one is refused as busy."""
GRACE: Final = 5.0
"""Seconds that cancelled tasks get to end when the application is closed."""

_THREAD: Final = ExecutionMode.THREAD
"""To reach a member of an Enum through its class takes a while."""
_REGISTER_PREFIX: Final = "offer "
_SUBSCRIBE_PREFIX: Final = "follow "

_log = logging.getLogger("fiveways.app")


class Dispatcher:
    """One application in one event loop, as a peer: words go in by `received`, and out by `say`.

    `say` is called in the loop only: within `received` for what is refused, later for everything else. `who` tells who
    made the call with that id. `reach` is how methods call and publish. `workers` runs plain functions, a pool of its
    own if None. With `in_parts` a streamed answer is said in parts even if its call did not ask for them: somebody
    behind `say` gathers them then.
    """

    def __init__(
        self,
        app: App,
        say: Callable[[words.HubMessage], None],
        *,
        who: Callable[[str], CallerInfo | None] | None = None,
        reach: HubApi | None = None,
        workers: Executor | None = None,
        limits: Limits = Limits(),
        in_parts: bool = True,
    ) -> None:
        self._app = app
        self._methods = app.methods
        self._send = say
        self._find_caller = who
        self._hub = reach
        self._limits = limits
        self._threads = ThreadRunner(workers)
        self._budget = MemoryBudget()
        self._pending_attachments = PendingAttachments(self._budget)
        self.callbacks = AppCallbacks(
            app.methods, say, self._run_if_capacity, self._pending_attachments, limits.max_pending
        )
        late = LateAttachments(say, self._peer_of_call, limits, self._budget)
        self._executor = CallExecutor(app, say, self._on_call_ended, self._threads, limits, late, in_parts=in_parts)
        self._active_calls = self._executor.active_calls
        self._open_calls: dict[str, ActiveCall] = {}
        """Calls that an answer is wanted for, by their ids."""
        feeds = [EventQueue(handler, self._pending_attachments, self._threads) for handler in app.handlers]
        self._event_queues = {str(number): feed for number, feed in enumerate(feeds, 1)}
        self.updates = UpdateDispatcher(app.update_handlers, self._pending_attachments, self._threads)
        self._workers = JobWorkers(app, self._threads, self._make_context)
        self._is_started = False
        self._is_closed = False
        self._answers_when_closed = True
        """Those who call, or have called, hear that it is closed."""
        self._handlers: dict[type[words.HubMessage], Callable[..., None]] = {
            words.Part: self._on_part,
            words.Cancel: self._on_cancel,
            words.Attachment: self._pending_attachments.put,
            words.Event: self._on_event,
            words.TopicClosed: self._on_topic_closed,
            words.Update: self.updates.put,
            words.UpdatesClosed: self.updates.handle_closed,
            words.Failure: self._on_request_failed,
        }

    # What the runtime does with it.

    def registrations(self) -> list[words.Register]:
        """Return the words that offer all methods; a failure of one may be given to `received`, which logs it."""
        return [
            words.Register(
                _REGISTER_PREFIX + each.name, each.name, each.spelling, doc=each.doc, kind=each.kind, share=each.share
            )
            for each in self._methods.values()
        ] + [
            words.Register(
                _REGISTER_PREFIX + each.name, each.name, route=True, doc=each.method.doc, kind=each.method.kind
            )
            for each in self._app.routes.values()
        ]

    def subscriptions(self) -> list[words.Subscribe]:
        """Return the words that ask for all events. They must come under these names, whatever the link calls them."""
        return [
            words.Subscribe(_SUBSCRIBE_PREFIX + feed.handler.topic, feed.handler.pattern, name)
            for name, feed in self._event_queues.items()
        ]

    def event_handlers(self) -> list[tuple[Pattern, Callable[[words.Event], None]]]:
        """Return what the application wants to hear, and what takes it, for a runtime with its own subscriptions."""
        return [(feed.handler.pattern, feed.put) for feed in self._event_queues.values()]

    async def start(self) -> None:
        """Run what is to run before the first call; what it raises is for whoever starts the application."""
        self._is_started = True
        for hook in self._app.startups:
            await self._run_hook(hook)

    def start_workers(self) -> None:
        """Pull jobs for the worker functions; only where `reach` was given."""
        if self._hub is not None:
            self._workers.start(self._hub)

    async def stop_workers(self, finish: float = 0.0) -> None:
        """Pull no more jobs; those in progress get `finish` seconds, then the hub gets them back."""
        await self._workers.stop(finish)

    def handle(self, word: words.HubMessage) -> None:
        """Take a word from the hub. Never raises; words that mean nothing here are ignored."""
        if type(word) is words.Call:
            self.handle_call(word)
            return
        take = self._handlers.get(type(word))
        if take is None:
            return
        try:
            take(word)
        except Exception:  # noqa: BLE001  # whatever it is, it costs this word only
            _log.exception("%s could not be taken", type(word).__name__)

    def peer_left(self, peer: str) -> None:
        """Do no more for a peer that is gone."""
        self._executor.late.peer_left(peer)

    def _peer_of_call(self, call_id: str) -> str:
        caller = None if self._find_caller is None else self._find_caller(call_id)
        return "" if caller is None else caller.peer

    def open_calls(self) -> int:
        """Return how many calls an answer is wanted for."""
        return len(self._open_calls)

    async def close(self, *, tell: bool = True) -> None:
        """Stop: open calls fail as lost, tasks are cancelled, then what is to run at the end runs.

        Without `tell` nothing is said of open calls, and of those that come too late: whoever sees that we are gone
        knows better what that means than some protocols can say. A plain function cannot be stopped: it runs on in its
        thread, and nobody waits for it.
        """
        if self._is_closed:
            return
        self._is_closed, self._answers_when_closed = True, tell
        await self.stop_workers()  # before `callbacks.end()`: it must be possible to return their jobs
        self.callbacks.close()
        for running in list(self._open_calls.values()):
            if tell:
                self._fail_call(running, Reason.LOST, "the application was closed before it answered")
            else:
                running.is_over = True
                running.cancel()
                self._on_call_ended(running)
        self._executor.late.close()
        feeds: list[EventQueue | UpdateQueue] = [*self._event_queues.values(), *self.updates.queues]
        tasks = {*self._executor.tasks(), *filter(None, (feed.task for feed in feeds))}
        for feed in feeds:
            feed.close()
        self.updates.close()
        tasks -= {asyncio.current_task()}
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=GRACE)
            if stubborn:
                _log.warning("%d tasks do not end though they were cancelled", len(stubborn))
        for hook in self._app.shutdowns if self._is_started else ():
            try:
                await self._run_hook(hook)
            except Exception:  # noqa: BLE001  # the others run all the same
                _log.exception("a function for the shutdown failed")
        self._threads.close()

    # Calls.

    def handle_call(self, call: words.Call) -> None:
        """Run a method; never raises."""
        try:
            method, now_open = self._methods.get(call.method), self._open_calls
            if (
                method is None
                or call.callback
                or self._is_closed
                or len(now_open) >= MAX_RUNNING
                or len(self._active_calls) >= MAX_RUNNING
                or call.id in now_open
                or (method.mode is _THREAD and self._threads.is_full)
            ):
                self._reject(call, method)
            elif call.more or call.attachments or not method.arguments.has_no_injected:
                self._prepare(call, method)
            else:
                running = ActiveCall(call)
                given = method.arguments.read(call.body)
                now_open[call.id] = running
                self._start(running, method, given)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
        except Exception as exc:  # noqa: BLE001  # whatever it is, it costs this call only
            self._executor.send_response(
                ActiveCall(call), [log_failure(call.id, call.method, exc, show_errors=self._app.show_errors)]
            )

    def _reject(self, call: words.Call, method: Method | None) -> None:
        if call.callback:
            if not self.callbacks.dispatch(call):
                self._refuse(call, Reason.NO_SUCH_CALLBACK, "the application waits for no callback")
        elif method is None and (route := self.find_route(call.method)) is not None:
            self._run_if_capacity(bind_route(call, route), route.method)
        elif method is None:
            self._refuse(call, Reason.NO_SUCH_METHOD, f"there is no method {call.method!r}")
        elif self._is_closed:
            if self._answers_when_closed:
                self._refuse(call, Reason.UNAVAILABLE, "the application is closing")
        elif call.id in self._open_calls:
            _log.warning("a call came under the id of another that is open, and was dropped")
        else:
            full = (
                "are running"
                if max(len(self._open_calls), len(self._active_calls)) >= MAX_RUNNING
                else "wait for a thread"
            )
            self._refuse(call, Reason.OVERLOADED, f"too many calls {full}")

    def find_route(self, name: str) -> Route | None:
        """Return the longest route above a folded name."""
        routes = self._app.routes
        prefix = name.rpartition(".")[0] if routes else ""
        while prefix and prefix not in routes:
            prefix = prefix.rpartition(".")[0]
        return routes.get(prefix)

    def _run_if_capacity(self, call: words.Call, method: Method) -> None:
        is_full = max(len(self._open_calls), len(self._active_calls)) >= MAX_RUNNING or self._threads.is_full
        if self._is_closed or is_full:
            self._reject(replace(call, callback=False), method)
        else:
            self._prepare(call, method)

    def _prepare(self, call: words.Call, method: Method) -> None:
        """Run a method that wants more than its arguments, or is given more."""
        running = ActiveCall(call)
        arguments = method.arguments
        try:
            if arguments.wants_stream:
                given, running.elements = arguments.read_stream(call.body, self._budget, more=call.more)
            elif call.more:
                then = partial(self._start_collected, running, method)
                running.elements = ElementCollector(then, self._limits, self._budget)
            else:
                given = arguments.read(call.body)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
            return
        self._open_calls[call.id] = running
        if call.attachments and arguments.wants_context:
            running.attachments = self._pending_attachments.expect(call.attachments)
        if isinstance(running.elements, ElementCollector):
            self._collect_part(running, running.elements, words.Part(call.id, call.body))
        else:
            self._inject_and_start(running, method, given)

    def _inject_and_start(self, running: ActiveCall, method: Method, given: BoundArguments) -> None:
        arguments = method.arguments
        if arguments.wants_context or arguments.wants_stream:
            context = self._make_context(running) if arguments.wants_context else None
            elements = running.elements if isinstance(running.elements, ElementStream) else None
            given = arguments.inject(given, context, elements)
        self._start(running, method, given)

    def _start(self, running: ActiveCall, method: Method, given: BoundArguments) -> None:
        try:
            self._executor.start(running, method, given)
        except RuntimeError:
            self._fail_call(running, Reason.UNAVAILABLE, "the application has no threads any more")

    def _make_context(self, running: ActiveCall) -> Context:
        caller = None if self._find_caller is None else self._find_caller(running.call.id)
        return Context(running, UNKNOWN_CALLER if caller is None else caller, self._hub, self._send_progress)

    def _send_progress(self, word: words.HubMessage) -> None:
        """Say what may be lost."""
        try:
            self._send(word)
        except LocalProtocolError as exc:
            _log.debug("progress was not told: %s", exc)

    def _on_part(self, part: words.Part) -> None:
        running = self._open_calls.get(part.id)
        if running is None:
            return
        if isinstance(running.elements, ElementCollector):
            self._collect_part(running, running.elements, part)
        elif running.elements is not None:
            if part.body is not None and not running.elements.put(part.body):
                # It may have done half of its work, so it cannot be told that the call was refused.
                self._fail_call(running, Reason.RAISED, "the method reads the stream too slowly")
            if part.last:
                running.elements.end()

    def _collect_part(self, running: ActiveCall, gathered: ElementCollector, part: words.Part) -> None:
        try:
            if part.body is not None and not gathered.put(part.body):
                self._fail_call(running, Reason.TOO_LARGE, "the stream is too long to be taken as one array")
            elif part.last:
                gathered.end()
        except (BadArguments, Unrepresentable) as exc:
            self._fail_call(running, Reason.BAD_ARGUMENTS, str(exc))

    def _start_collected(self, running: ActiveCall, method: Method, values: list[object]) -> None:
        given = method.arguments.read_collected(values)
        running.elements = None
        self._inject_and_start(running, method, given)

    def _on_cancel(self, word: words.Cancel) -> None:
        running = self._open_calls.get(word.id)
        if running is not None:
            running.cancel()
            self._on_call_ended(running)

    def _fail_call(self, running: ActiveCall, reason: Reason, text: str) -> None:
        """End a call that is open without its method."""
        running.is_over = True
        self._executor.send_response(running, [words.Failure(running.call.id, reason, text)])
        running.cancel()
        self._on_call_ended(running)

    def _on_call_ended(self, running: ActiveCall) -> None:
        call = running.call
        if self._open_calls.get(call.id) is running:
            del self._open_calls[call.id]
        if running.elements is not None:
            running.elements.drop()
        if running.attachments is not None:
            self._pending_attachments.discard(call.attachments, running.attachments)

    def _refuse(self, call: words.Call, reason: Reason, text: str) -> None:
        self._executor.send_response(ActiveCall(call), [words.Failure(call.id, reason, text)])

    # Everything else.

    def _on_event(self, word: words.Event) -> None:
        feed = self._event_queues.get(word.subscription)
        if feed is not None and not self._is_closed:
            feed.put(word)

    def _on_topic_closed(self, word: words.TopicClosed) -> None:
        feed = self._event_queues.get(word.subscription)
        if feed is not None:
            _log.info("on %s: the topic was closed, no more events come", feed.handler.topic)

    def _on_request_failed(self, word: words.Failure) -> None:
        if word.id.startswith((_REGISTER_PREFIX, _SUBSCRIBE_PREFIX)):
            _log.warning("the hub refused to %s: %s", word.id, word.text or word.reason.text)

    async def _run_hook(self, hook: Hook) -> None:
        context = self._make_context(ActiveCall(words.Call("", ""))) if hook.arguments.wants_context else None
        args, named = hook.arguments.inject(([], {}), context, None)
        if hook.mode is ExecutionMode.THREAD:
            await self._threads.run(hook.function, *args, **named)
        else:
            await hook.function(*args, **named)
