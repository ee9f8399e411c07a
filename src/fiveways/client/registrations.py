"""What we offer: functions that were registered, whole applications, one-shot callbacks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from fiveways.app.app import App, EventHandler, Method
from fiveways.app.callbacks import CallbackChannel
from fiveways.app.context import HubApi
from fiveways.app.dispatcher import Dispatcher
from fiveways.client import names
from fiveways.client.restore_requests import Requester, RequestFactory, RestoreRequest
from fiveways.client.session import Session
from fiveways.client.subscriptions import SubscribeOptions, SubscriptionQueue, Subscriptions
from fiveways.errors import CallError, ConnectionLost, Reason
from fiveways.model import messages as words
from fiveways.wire.limits import Limits

MAX_THREADS: Final = 32
"""In which plain functions run."""
WORKER_DRAIN_TIMEOUT: Final = 5.0
"""Seconds that jobs in progress get to finish when the client is closed."""


class ServedApp:
    """One application of ours.

    Its calls belong to a connection, and end with it; its events and what it does at its start and end do not.
    """

    def __init__(self, app: App, reach: HubApi, workers: ThreadPoolExecutor, limits: Limits) -> None:
        self.app = app
        # No part of an answer goes to those who did not ask for parts: some protocols have none.
        self._new_dispatcher = partial(Dispatcher, app, reach=reach, workers=workers, limits=limits, in_parts=False)
        self.event_dispatcher = self._new_dispatcher(_discard)
        self.call_dispatcher: Dispatcher | None = None
        self.notifies_callers = False
        """Who called must be told that we are gone, as a hub that waits for us to come back does not see it."""
        self._event_attachments: set[str] = set()

    def attach(self, session: Session) -> None:
        """Serve calls of a new connection."""
        self.call_dispatcher = self._new_dispatcher(session.respond)
        self.notifies_callers = session.is_resumable

    def detach(self) -> Dispatcher | None:
        """Stop to serve calls: nobody would get the answers."""
        for name in self._event_attachments:
            self.event_dispatcher.handle(words.Attachment(name, error="the connection was lost"))
        self._event_attachments.clear()
        lost, self.call_dispatcher = self.call_dispatcher, None
        return lost

    def handle_event(self, word: words.Event) -> None:
        """Give an event to its handler."""
        self._event_attachments.update(word.attachments)
        self.event_dispatcher.handle(word)

    def handle_attachment(self, word: words.Attachment) -> None:
        """Take an attachment, which may be for a call or for an event, or not for this application."""
        if word.name in self._event_attachments:
            self._event_attachments.remove(word.name)
            self.event_dispatcher.handle(word)
        elif self.call_dispatcher is not None:
            self.call_dispatcher.handle(word)

    async def close(self) -> None:
        """End all of it."""
        await self.event_dispatcher.stop_workers(WORKER_DRAIN_TIMEOUT)
        if self.call_dispatcher is not None:
            await self.call_dispatcher.close(tell=self.notifies_callers)
        await self.event_dispatcher.close()


class _HandlerSubscription(SubscriptionQueue):
    """A feed that an application reads."""

    def __init__(self, name: str, handler: EventHandler, served: ServedApp, inner: str) -> None:
        super().__init__(name, SubscribeOptions(handler.topic, handler.pattern))
        self._served = served
        self._app_subscription = inner

    def put(self, _: Session, event: words.Event) -> None:
        """Pass it on under the name that the application knows."""
        self._served.handle_event(msgspec.structs.replace(event, subscription=self._app_subscription))


class _OneShotFunction:
    """A function that waits to be called back. Fulfils `callbacks.Waiting`."""

    def __init__(self, method: str, served: ServedApp) -> None:
        self._method = method
        self._served = served

    def handle_call(self, _: CallbackChannel, call: words.Call) -> None:
        """Run it, as a method that is there only now."""
        if self._served.call_dispatcher is not None:
            self._served.call_dispatcher.handle(msgspec.structs.replace(call, method=self._method, callback=False))
        self.remove()

    def connection_lost(self) -> str:
        """Say what was lost."""
        method = self.remove()
        return f"the callback {getattr(method.function, '__name__', '')} was lost" if method else ""

    def remove(self) -> Method | None:
        """Let go of the function."""
        return self._served.app.methods.pop(self._method, None)


class Registrations:
    """All that one client offers."""

    def __init__(
        self, asker: Requester, feeds: Subscriptions, reach: HubApi, limits: Limits, *, show_errors: bool
    ) -> None:
        self._requester = asker
        self._subscriptions = feeds
        self._workers = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fiveways-client")
        self._make_served = partial(ServedApp, reach=reach, workers=self._workers, limits=limits)
        self._function_app = self._make_served(App(show_errors=show_errors))
        self._callback_app = self._make_served(App(show_errors=show_errors))
        self._served_apps = [self._function_app, self._callback_app]
        self._app_by_method: dict[str, ServedApp] = {}
        """Who serves what, from before the hub knows of it."""
        self._registered: dict[str, tuple[Method, str]] = {}
        """What the hub has taken: the methods by their folded names, with the spelling that we gave."""
        self._closing: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._callback_count = 0

    # Offering.

    async def register(
        self, written: str, function: Callable[..., object], doc: str | None = None, share: str = ""
    ) -> None:
        """Offer one function; CallError if the hub refuses, ValueError if we offer that name already."""
        folded = names.fold_method(written)
        self._check_name_free(folded)
        methods = self._function_app.app.methods
        self._function_app.app.method(written, doc=doc, share=share)(function)
        try:
            await self._register_method(self._function_app, methods[folded], written)
        except BaseException:
            methods.pop(folded, None)
            raise

    def _check_name_free(self, folded: str) -> None:
        if folded in self._app_by_method:
            raise ValueError(f"{folded!r} is on offer already")

    async def _register_method(self, served: ServedApp, method: Method, written: str) -> None:
        self._app_by_method[method.name] = (
            served  # before it is granted, as the first call comes right behind the grant
        )
        try:
            await self._requester.request_idempotent(partial(_register_message, method, written))
        except BaseException:
            del self._app_by_method[method.name]
            raise
        self._registered[method.name] = method, written

    async def unregister(self, written: str) -> None:
        """Offer it no longer."""
        folded = names.fold_method(written)
        _, spelling = self._registered.pop(folded, (None, written))
        if self._app_by_method.pop(folded, None) is self._function_app:
            self._function_app.app.methods.pop(folded, None)
        await self._requester.request_idempotent(partial(_unregister_message, folded, spelling))

    async def serve(self, app: App) -> None:
        """Offer all of an application, or, if the hub refuses anything of it, nothing."""
        if app.routes or app.update_handlers:
            raise ValueError("only an application in the hub has routes and takes updates: fiveways serve --app")
        for name in app.methods:
            self._check_name_free(name)
        served = self._make_served(app)
        await served.event_dispatcher.start()
        self._served_apps.append(served)
        if self._session is not None:
            served.attach(self._session)
        feeds: list[SubscriptionQueue] = []
        try:
            for method in list(app.methods.values()):
                await self._register_method(served, method, method.spelling)
            for handler, asked in zip(app.handlers, served.event_dispatcher.subscriptions(), strict=True):
                feeds.append(_HandlerSubscription(self._subscriptions.new_name(), handler, served, asked.subscription))
                await self._subscriptions.open(feeds[-1])
            served.event_dispatcher.start_workers()
        except BaseException:
            await self._withdraw(served, feeds)
            raise

    async def _withdraw(self, served: ServedApp, feeds: list[SubscriptionQueue]) -> None:
        for feed in feeds:
            self._subscriptions.close(feed)
        for name in [name for name, by in self._app_by_method.items() if by is served]:
            with suppress(CallError, ConnectionLost):
                await self.unregister(name)
        self._served_apps.remove(served)
        await served.close()

    def new_callback(self, function: Callable[..., object]) -> "_OneShotFunction":
        """Have a function ready for one call."""
        self._callback_count += 1
        method = f"callback_{self._callback_count}"
        self._callback_app.app.method(method)(function)
        return _OneShotFunction(method, self._callback_app)

    def restore_requests(self) -> list[RestoreRequest]:
        """Return what a new session must be asked for."""
        return [
            RestoreRequest(f"method {spelling}", partial(_register_message, method, spelling), _ignore_refusal)
            for method, spelling in self._registered.values()
        ]

    def unregister_requests(self) -> list[RequestFactory]:
        """Return what takes all of it back, for a hub that would keep it though we are gone."""
        return [partial(_unregister_message, folded, spelling) for folded, (_, spelling) in self._registered.items()]

    def __len__(self) -> int:
        return len(self._app_by_method)

    # Serving.

    def attach(self, session: Session) -> None:
        """Serve a new session."""
        self._session = session
        session.on_call = self.handle_call
        for served in self._served_apps:
            served.attach(session)

    def detach(self) -> None:
        """Stop what ran for a session that is over."""
        self._session = None
        for served in self._served_apps:
            dispatcher = served.detach()
            if dispatcher is not None:
                task = asyncio.create_task(dispatcher.close(tell=served.notifies_callers))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def handle_call(self, call: words.Call) -> None:
        """Run one of our methods."""
        served = self._app_by_method.get(call.method, self._function_app)  # which says that there is no such method
        if served.call_dispatcher is not None:
            served.call_dispatcher.handle_call(call)

    def handle_message(self, session: Session, word: words.Cancel | words.Attachment | words.Discover) -> None:
        """Take what else the hub wants of us."""
        match word:
            case words.Cancel():
                for served in self._served_apps:
                    if served.call_dispatcher is not None:
                        served.call_dispatcher.handle(word)
            case words.Attachment():
                for served in self._served_apps:
                    served.handle_attachment(word)
            case words.Discover():
                self._describe(session, word)

    def _describe(self, session: Session, word: words.Discover) -> None:
        style = session.spec.name_style
        offered = {names.spell_name(spelling, style): method for method, spelling in self._registered.values()}
        if not word.name:
            session.send(words.Description(word.id, tuple(sorted(offered))))
        elif (method := offered.get(word.name)) is not None:
            session.send(words.Description(word.id, doc=method.doc))
        else:
            session.send(words.Failure(word.id, Reason.NO_SUCH_METHOD, f"there is no method {word.name!r}"))

    async def close(self) -> None:
        """End all that runs."""
        for served in self._served_apps:
            await served.close()
        if self._closing:
            await asyncio.wait(self._closing)
        self._workers.shutdown(wait=False, cancel_futures=True)


def _register_message(method: Method, written: str, session: Session, call_id: str) -> words.Register:
    spelling = names.spell_name(written, session.spec.name_style)
    return words.Register(call_id, method.name, spelling, doc=method.doc, kind=method.kind, share=method.share)


def _unregister_message(folded: str, written: str, session: Session, call_id: str) -> words.Unregister:
    return words.Unregister(call_id, folded, names.spell_name(written, session.spec.name_style))


def _ignore_refusal(_: CallError | None) -> None:
    """A refusal has been logged, and the next connection may grant it."""


def _discard(_: words.HubMessage) -> None:
    """Events are answered to nobody."""
