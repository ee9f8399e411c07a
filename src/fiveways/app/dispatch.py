"""Where an application meets the hub's words: calls become runs of its methods, events go to its functions."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from msgspec.structs import replace

from fiveways.app.answers import logged
from fiveways.app.app import App, Hook, Method, Route
from fiveways.app.arguments import BadArguments, Given
from fiveways.app.attached import Incoming
from fiveways.app.context import STRANGER, Caller, Context, Reach, Running
from fiveways.app.elements import Elements, Gathered
from fiveways.app.feed import Feed
from fiveways.app.late import LateAttachments
from fiveways.app.own_callbacks import OwnCallbacks
from fiveways.app.routing import routed
from fiveways.app.runs import Runs
from fiveways.app.signature import Style
from fiveways.app.threads import Threads
from fiveways.app.updates import UpdateFeed, UpdateTable
from fiveways.app.values import Budget
from fiveways.app.workers import Workers
from fiveways.errors import LocalProtocolError, Unrepresentable
from fiveways.model import messages as words
from fiveways.model.failures import Reason
from fiveways.model.topics import Pattern
from fiveways.wire.limits import Limits

MAX_RUNNING: Final = 1000
"""Calls that run at once, in tasks and threads together; the next one is refused as busy."""
GRACE: Final = 5.0
"""Seconds that cancelled tasks get to end when the application is closed."""

_IN_THREADS: Final = Style.PLAIN
"""To reach a member of an Enum through its class takes a while."""
_OFFER: Final = "offer "
_FOLLOW: Final = "follow "

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
        say: Callable[[words.Word], None],
        *,
        who: Callable[[str], Caller | None] | None = None,
        reach: Reach | None = None,
        workers: Executor | None = None,
        limits: Limits = Limits(),
        in_parts: bool = True,
    ) -> None:
        self._app = app
        self._methods = app.methods
        self._say = say
        self._who = who
        self._reach = reach
        self._limits = limits
        self._threads = Threads(workers)
        self._budget = Budget()
        self._incoming = Incoming(self._budget)
        self.callbacks = OwnCallbacks(app.methods, say, self._run_checked, self._incoming, limits.max_pending)
        late = LateAttachments(say, self._owner, limits, self._budget)
        self._runs = Runs(app, say, self._ended, self._threads, limits, late, in_parts=in_parts)
        self._live = self._runs.live
        self._open: dict[str, Running] = {}
        """Calls that an answer is wanted for, by their ids."""
        feeds = [Feed(handler, self._incoming, self._threads) for handler in app.handlers]
        self._feeds = {str(number): feed for number, feed in enumerate(feeds, 1)}
        self.updates = UpdateTable(app.update_handlers, self._incoming, self._threads)
        self._workers = Workers(app, self._threads, self._context)
        self._is_started = False
        self._is_closed = False
        self._is_polite = True
        """Those who call, or have called, hear that it is closed."""
        self._takers: dict[type[words.Word], Callable[..., None]] = {
            words.Part: self._part,
            words.Cancel: self._cancel,
            words.Attachment: self._incoming.put,
            words.Event: self._event,
            words.TopicClosed: self._topic_closed,
            words.Update: self.updates.put,
            words.UpdatesClosed: self.updates.closed,
            words.Failure: self._refused,
        }

    # What the runtime does with it.

    def offers(self) -> list[words.Register]:
        """Return the words that offer all methods; a failure of one may be given to `received`, which logs it."""
        return [
            words.Register(_OFFER + each.name, each.name, each.spelling, doc=each.doc, kind=each.kind, share=each.share)
            for each in self._methods.values()
        ] + [
            words.Register(_OFFER + each.name, each.name, route=True, doc=each.method.doc, kind=each.method.kind)
            for each in self._app.routes.values()
        ]

    def subscriptions(self) -> list[words.Subscribe]:
        """Return the words that ask for all events. They must come under these names, whatever the link calls them."""
        return [
            words.Subscribe(_FOLLOW + feed.handler.topic, feed.handler.pattern, name)
            for name, feed in self._feeds.items()
        ]

    def patterns(self) -> list[tuple[Pattern, Callable[[words.Event], None]]]:
        """Return what the application wants to hear, and what takes it, for a runtime with its own subscriptions."""
        return [(feed.handler.pattern, feed.put) for feed in self._feeds.values()]

    async def start(self) -> None:
        """Run what is to run before the first call; what it raises is for whoever starts the application."""
        self._is_started = True
        for hook in self._app.startups:
            await self._run_hook(hook)

    def start_workers(self) -> None:
        """Pull jobs for the worker functions; only where `reach` was given."""
        if self._reach is not None:
            self._workers.start(self._reach)

    async def stop_workers(self, finish: float = 0.0) -> None:
        """Pull no more jobs; those in progress get `finish` seconds, then the hub gets them back."""
        await self._workers.stop(finish)

    def received(self, word: words.Word) -> None:
        """Take a word from the hub. Never raises; words that mean nothing here are ignored."""
        if type(word) is words.Call:
            self.called(word)
            return
        take = self._takers.get(type(word))
        if take is None:
            return
        try:
            take(word)
        except Exception:  # noqa: BLE001  # whatever it is, it costs this word only
            _log.exception("%s could not be taken", type(word).__name__)

    def left(self, peer: str) -> None:
        """Do no more for a peer that is gone."""
        self._runs.late.left(peer)

    def _owner(self, call_id: str) -> str:
        caller = None if self._who is None else self._who(call_id)
        return "" if caller is None else caller.peer

    def open_calls(self) -> int:
        """Return how many calls an answer is wanted for."""
        return len(self._open)

    async def close(self, *, tell: bool = True) -> None:
        """Stop: open calls fail as lost, tasks are cancelled, then what is to run at the end runs.

        Without `tell` nothing is said of open calls, and of those that come too late: whoever sees that we are gone
        knows better what that means than some protocols can say. A plain function cannot be stopped: it runs on in its
        thread, and nobody waits for it.
        """
        if self._is_closed:
            return
        self._is_closed, self._is_polite = True, tell
        await self.stop_workers()  # before `callbacks.end()`: it must be possible to return their jobs
        self.callbacks.end()
        for running in list(self._open.values()):
            if tell:
                self._abandon(running, Reason.LOST, "the application was closed before it answered")
            else:
                running.over = True
                running.cancel()
                self._ended(running)
        self._runs.late.close()
        feeds: list[Feed | UpdateFeed] = [*self._feeds.values(), *self.updates.feeds]
        tasks = {*self._runs.tasks(), *filter(None, (feed.task for feed in feeds))}
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

    def called(self, call: words.Call) -> None:
        """Run a method; never raises."""
        try:
            method, now_open = self._methods.get(call.method), self._open
            if (
                method is None
                or call.callback
                or self._is_closed
                or len(now_open) >= MAX_RUNNING
                or len(self._live) >= MAX_RUNNING
                or call.id in now_open
                or (method.style is _IN_THREADS and self._threads.is_full)
            ):
                self._turn_away(call, method)
            elif call.more or call.attachments or not method.arguments.are_all:
                self._take(call, method)
            else:
                running = Running(call)
                given = method.arguments.read(call.body)
                now_open[call.id] = running
                self._start(running, method, given)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
        except Exception as exc:  # noqa: BLE001  # whatever it is, it costs this call only
            self._runs.tell(Running(call), [logged(call.id, call.method, exc, show_errors=self._app.show_errors)])

    def _turn_away(self, call: words.Call, method: Method | None) -> None:
        if call.callback:
            if not self.callbacks.take(call):
                self._refuse(call, Reason.NO_CALLBACK, "the application waits for no callback")
        elif method is None and (route := self.route_of(call.method)) is not None:
            self._run_checked(routed(call, route), route.method)
        elif method is None:
            self._refuse(call, Reason.NO_METHOD, f"there is no method {call.method!r}")
        elif self._is_closed:
            if self._is_polite:
                self._refuse(call, Reason.UNAVAILABLE, "the application is closing")
        elif call.id in self._open:
            _log.warning("a call came under the id of another that is open, and was dropped")
        else:
            full = "are running" if max(len(self._open), len(self._live)) >= MAX_RUNNING else "wait for a thread"
            self._refuse(call, Reason.BUSY, f"too many calls {full}")

    def route_of(self, name: str) -> Route | None:
        """Return the longest route above a folded name."""
        routes = self._app.routes
        prefix = name.rpartition(".")[0] if routes else ""
        while prefix and prefix not in routes:
            prefix = prefix.rpartition(".")[0]
        return routes.get(prefix)

    def _run_checked(self, call: words.Call, method: Method) -> None:
        is_full = max(len(self._open), len(self._live)) >= MAX_RUNNING or self._threads.is_full
        if self._is_closed or is_full:
            self._turn_away(replace(call, callback=False), method)
        else:
            self._take(call, method)

    def _take(self, call: words.Call, method: Method) -> None:
        """Run a method that wants more than its arguments, or is given more."""
        running = Running(call)
        arguments = method.arguments
        try:
            if arguments.wants_stream:
                given, running.elements = arguments.read_stream(call.body, self._budget, more=call.more)
            elif call.more:
                then = partial(self._begin_gathered, running, method)
                running.elements = Gathered(then, self._limits, self._budget)
            else:
                given = arguments.read(call.body)
        except BadArguments as exc:
            self._refuse(call, Reason.BAD_ARGUMENTS, str(exc))
            return
        self._open[call.id] = running
        if call.attachments and arguments.wants_context:
            running.attachments = self._incoming.expect(call.attachments)
        if isinstance(running.elements, Gathered):
            self._gather(running, running.elements, words.Part(call.id, call.body))
        else:
            self._begin(running, method, given)

    def _begin(self, running: Running, method: Method, given: Given) -> None:
        arguments = method.arguments
        if arguments.wants_context or arguments.wants_stream:
            context = self._context(running) if arguments.wants_context else None
            elements = running.elements if isinstance(running.elements, Elements) else None
            given = arguments.placed(given, context, elements)
        self._start(running, method, given)

    def _start(self, running: Running, method: Method, given: Given) -> None:
        try:
            self._runs.start(running, method, given)
        except RuntimeError:
            self._abandon(running, Reason.UNAVAILABLE, "the application has no threads any more")

    def _context(self, running: Running) -> Context:
        caller = None if self._who is None else self._who(running.call.id)
        return Context(running, STRANGER if caller is None else caller, self._reach, self._note)

    def _note(self, word: words.Word) -> None:
        """Say what may be lost."""
        try:
            self._say(word)
        except LocalProtocolError as exc:
            _log.debug("progress was not told: %s", exc)

    def _part(self, part: words.Part) -> None:
        running = self._open.get(part.id)
        if running is None:
            return
        if isinstance(running.elements, Gathered):
            self._gather(running, running.elements, part)
        elif running.elements is not None:
            if part.body is not None and not running.elements.put(part.body):
                # It may have done half of its work, so it cannot be told that the call was refused.
                self._abandon(running, Reason.RAISED, "the method reads the stream too slowly")
            if part.last:
                running.elements.end()

    def _gather(self, running: Running, gathered: Gathered, part: words.Part) -> None:
        try:
            if part.body is not None and not gathered.put(part.body):
                self._abandon(running, Reason.TOO_LARGE, "the stream is too long to be taken as one array")
            elif part.last:
                gathered.end()
        except (BadArguments, Unrepresentable) as exc:
            self._abandon(running, Reason.BAD_ARGUMENTS, str(exc))

    def _begin_gathered(self, running: Running, method: Method, values: list[object]) -> None:
        given = method.arguments.read_gathered(values)
        running.elements = None
        self._begin(running, method, given)

    def _cancel(self, word: words.Cancel) -> None:
        running = self._open.get(word.id)
        if running is not None:
            running.cancel()
            self._ended(running)

    def _abandon(self, running: Running, reason: Reason, text: str) -> None:
        """End a call that is open without its method."""
        running.over = True
        self._runs.tell(running, [words.Failure(running.call.id, reason, text)])
        running.cancel()
        self._ended(running)

    def _ended(self, running: Running) -> None:
        call = running.call
        if self._open.get(call.id) is running:
            del self._open[call.id]
        if running.elements is not None:
            running.elements.drop()
        if running.attachments is not None:
            self._incoming.forget(call.attachments, running.attachments)

    def _refuse(self, call: words.Call, reason: Reason, text: str) -> None:
        self._runs.tell(Running(call), [words.Failure(call.id, reason, text)])

    # Everything else.

    def _event(self, word: words.Event) -> None:
        feed = self._feeds.get(word.subscription)
        if feed is not None and not self._is_closed:
            feed.put(word)

    def _topic_closed(self, word: words.TopicClosed) -> None:
        feed = self._feeds.get(word.subscription)
        if feed is not None:
            _log.info("on %s: the topic was closed, no more events come", feed.handler.topic)

    def _refused(self, word: words.Failure) -> None:
        if word.id.startswith((_OFFER, _FOLLOW)):
            _log.warning("the hub refused to %s: %s", word.id, word.text or word.reason.value)

    async def _run_hook(self, hook: Hook) -> None:
        context = self._context(Running(words.Call("", ""))) if hook.arguments.wants_context else None
        args, named = hook.arguments.placed(([], {}), context, None)
        if hook.style is Style.PLAIN:
            await self._threads.run(hook.function, *args, **named)
        else:
            await hook.function(*args, **named)
