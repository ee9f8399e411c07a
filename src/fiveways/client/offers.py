"""What we offer: functions that were registered, whole applications, one-shot callbacks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from fiveways.app.app import App, Handler, Method
from fiveways.app.callbacks import Line
from fiveways.app.context import Reach
from fiveways.app.dispatch import Dispatcher
from fiveways.client import names
from fiveways.client.session import Session
from fiveways.client.subscriptions import Feed, Feeds, Wish
from fiveways.client.wanted import Asker, Make, Wanted
from fiveways.errors import CallError, ConnectionLost
from fiveways.model import messages as words
from fiveways.model.failures import Reason
from fiveways.wire.limits import Limits

MAX_THREADS: Final = 32
"""In which plain functions run."""
FINISH: Final = 5.0
"""Seconds that jobs in progress get to finish when the client is closed."""


class Served:
    """One application of ours.

    Its calls belong to a connection, and end with it; its events and what it does at its start and end do not.
    """

    def __init__(self, app: App, reach: Reach, workers: ThreadPoolExecutor, limits: Limits) -> None:
        self.app = app
        # No part of an answer goes to those who did not ask for parts: some protocols have none.
        self._new = partial(Dispatcher, app, reach=reach, workers=workers, limits=limits, in_parts=False)
        self.home = self._new(_nobody)
        self.calls: Dispatcher | None = None
        self.tells = False
        """Who called must be told that we are gone, as a hub that waits for us to come back does not see it."""
        self._awaited: set[str] = set()

    def attach(self, session: Session) -> None:
        """Serve calls of a new connection."""
        self.calls = self._new(session.answer)
        self.tells = session.lasts

    def lost(self) -> Dispatcher | None:
        """Stop to serve calls: nobody would get the answers."""
        for name in self._awaited:
            self.home.received(words.Attachment(name, error="the connection was lost"))
        self._awaited.clear()
        lost, self.calls = self.calls, None
        return lost

    def event(self, word: words.Event) -> None:
        """Give an event to its handler."""
        self._awaited.update(word.attachments)
        self.home.received(word)

    def attachment(self, word: words.Attachment) -> None:
        """Take an attachment, which may be for a call or for an event, or not for this application."""
        if word.name in self._awaited:
            self._awaited.remove(word.name)
            self.home.received(word)
        elif self.calls is not None:
            self.calls.received(word)

    async def close(self) -> None:
        """End all of it."""
        await self.home.stop_workers(FINISH)
        if self.calls is not None:
            await self.calls.close(tell=self.tells)
        await self.home.close()


class _Handled(Feed):
    """A feed that an application reads."""

    def __init__(self, name: str, handler: Handler, served: Served, inner: str) -> None:
        super().__init__(name, Wish(handler.topic, handler.pattern))
        self._served = served
        self._inner = inner

    def take(self, _: Session, event: words.Event) -> None:
        """Pass it on under the name that the application knows."""
        self._served.event(msgspec.structs.replace(event, subscription=self._inner))


class _Once:
    """A function that waits to be called back. Fulfils `callbacks.Waiting`."""

    def __init__(self, method: str, served: Served) -> None:
        self._method = method
        self._served = served

    def called(self, _: Line, call: words.Call) -> None:
        """Run it, as a method that is there only now."""
        if self._served.calls is not None:
            self._served.calls.received(msgspec.structs.replace(call, method=self._method, callback=False))
        self.forget()

    def lost(self) -> str:
        """Say what was lost."""
        method = self.forget()
        return f"the callback {getattr(method.function, '__name__', '')} was lost" if method else ""

    def forget(self) -> Method | None:
        """Let go of the function."""
        return self._served.app.methods.pop(self._method, None)


class Offers:
    """All that one client offers."""

    def __init__(self, asker: Asker, feeds: Feeds, reach: Reach, limits: Limits, *, show_errors: bool) -> None:
        self._asker = asker
        self._feeds = feeds
        self._workers = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fiveways-client")
        self._serve = partial(Served, reach=reach, workers=self._workers, limits=limits)
        self._own = self._serve(App(show_errors=show_errors))
        self._once = self._serve(App(show_errors=show_errors))
        self._served = [self._own, self._once]
        self._by_method: dict[str, Served] = {}
        """Who serves what, from before the hub knows of it."""
        self._offered: dict[str, tuple[Method, str]] = {}
        """What the hub has taken: the methods by their folded names, with the spelling that we gave."""
        self._ending: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._callbacks = 0

    # Offering.

    async def register(
        self, written: str, function: Callable[..., object], doc: str | None = None, share: str = ""
    ) -> None:
        """Offer one function; CallError if the hub refuses, ValueError if we offer that name already."""
        folded = names.offered(written)
        self._check_free(folded)
        methods = self._own.app.methods
        self._own.app.method(written, doc=doc, share=share)(function)
        try:
            await self._offer(self._own, methods[folded], written)
        except BaseException:
            methods.pop(folded, None)
            raise

    def _check_free(self, folded: str) -> None:
        if folded in self._by_method:
            raise ValueError(f"{folded!r} is on offer already")

    async def _offer(self, served: Served, method: Method, written: str) -> None:
        self._by_method[method.name] = served  # before it is granted, as the first call comes right behind the grant
        try:
            await self._asker.settle(partial(_register, method, written))
        except BaseException:
            del self._by_method[method.name]
            raise
        self._offered[method.name] = method, written

    async def unregister(self, written: str) -> None:
        """Offer it no longer."""
        folded = names.offered(written)
        _, spelling = self._offered.pop(folded, (None, written))
        if self._by_method.pop(folded, None) is self._own:
            self._own.app.methods.pop(folded, None)
        await self._asker.settle(partial(_unregister, folded, spelling))

    async def serve(self, app: App) -> None:
        """Offer all of an application, or, if the hub refuses anything of it, nothing."""
        if app.routes or app.update_handlers:
            raise ValueError("only an application in the hub has routes and takes updates: fiveways serve --app")
        for name in app.methods:
            self._check_free(name)
        served = self._serve(app)
        await served.home.start()
        self._served.append(served)
        if self._session is not None:
            served.attach(self._session)
        feeds: list[Feed] = []
        try:
            for method in list(app.methods.values()):
                await self._offer(served, method, method.spelling)
            for handler, asked in zip(app.handlers, served.home.subscriptions(), strict=True):
                feeds.append(_Handled(self._feeds.new_name(), handler, served, asked.subscription))
                await self._feeds.open(feeds[-1])
            served.home.start_workers()
        except BaseException:
            await self._withdraw(served, feeds)
            raise

    async def _withdraw(self, served: Served, feeds: list[Feed]) -> None:
        for feed in feeds:
            self._feeds.close(feed)
        for name in [name for name, by in self._by_method.items() if by is served]:
            with suppress(CallError, ConnectionLost):
                await self.unregister(name)
        self._served.remove(served)
        await served.close()

    def once(self, function: Callable[..., object]) -> "_Once":
        """Have a function ready for one call."""
        self._callbacks += 1
        method = f"callback_{self._callbacks}"
        self._once.app.method(method)(function)
        return _Once(method, self._once)

    def wanted(self) -> list[Wanted]:
        """Return what a new session must be asked for."""
        return [
            Wanted(f"method {spelling}", partial(_register, method, spelling), _ignore)
            for method, spelling in self._offered.values()
        ]

    def withdrawn(self) -> list[Make]:
        """Return what takes all of it back, for a hub that would keep it though we are gone."""
        return [partial(_unregister, folded, spelling) for folded, (_, spelling) in self._offered.items()]

    def __len__(self) -> int:
        return len(self._by_method)

    # Serving.

    def attach(self, session: Session) -> None:
        """Serve a new session."""
        self._session = session
        session.called = self.called
        for served in self._served:
            served.attach(session)

    def lost(self) -> None:
        """Stop what ran for a session that is over."""
        self._session = None
        for served in self._served:
            dispatcher = served.lost()
            if dispatcher is not None:
                task = asyncio.create_task(dispatcher.close(tell=served.tells))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    def called(self, call: words.Call) -> None:
        """Run one of our methods."""
        served = self._by_method.get(call.method, self._own)  # which says that there is no such method
        if served.calls is not None:
            served.calls.called(call)

    def heard(self, session: Session, word: words.Cancel | words.Attachment | words.Discover) -> None:
        """Take what else the hub wants of us."""
        match word:
            case words.Cancel():
                for served in self._served:
                    if served.calls is not None:
                        served.calls.received(word)
            case words.Attachment():
                for served in self._served:
                    served.attachment(word)
            case words.Discover():
                self._describe(session, word)

    def _describe(self, session: Session, word: words.Discover) -> None:
        style = session.spec.names
        offered = {names.written(spelling, style): method for method, spelling in self._offered.values()}
        if not word.name:
            session.say(words.Description(word.id, tuple(sorted(offered))))
        elif (method := offered.get(word.name)) is not None:
            session.say(words.Description(word.id, doc=method.doc))
        else:
            session.say(words.Failure(word.id, Reason.NO_METHOD, f"there is no method {word.name!r}"))

    async def close(self) -> None:
        """End all that runs."""
        for served in self._served:
            await served.close()
        if self._ending:
            await asyncio.wait(self._ending)
        self._workers.shutdown(wait=False, cancel_futures=True)


def _register(method: Method, written: str, session: Session, call_id: str) -> words.Register:
    spelling = names.written(written, session.spec.names)
    return words.Register(call_id, method.name, spelling, doc=method.doc, kind=method.kind, share=method.share)


def _unregister(folded: str, written: str, session: Session, call_id: str) -> words.Unregister:
    return words.Unregister(call_id, folded, names.written(written, session.spec.names))


def _ignore(_: CallError | None) -> None:
    """A refusal has been logged, and the next connection may grant it."""


def _nobody(_: words.Word) -> None:
    """Events are answered to nobody."""
