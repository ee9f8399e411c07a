"""Registrations of a client: single functions, applications and one-shot callbacks."""

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
from fiveways.model import messages
from fiveways.wire.limits import Limits

MAX_THREADS: Final = 32
"""Threads for functions that are not async."""
WORKER_DRAIN_TIMEOUT: Final = 5.0
"""Seconds that jobs in progress get to finish when the client is closed."""


class ServedApp:
    """One application that the client serves.

    Calls in progress end with their connection. Event handlers, startup and shutdown do not depend on it.
    """

    def __init__(self, app: App, hub: HubApi, workers: ThreadPoolExecutor, limits: Limits) -> None:
        self.app = app
        # Results are streamed only to callers that asked for streaming: some protocols have no streams.
        self._new_dispatcher = partial(Dispatcher, app, hub=hub, executor=workers, limits=limits, always_stream=False)
        self.event_dispatcher = self._new_dispatcher(_discard)
        self.call_dispatcher: Dispatcher | None = None
        self.notifies_callers = False
        """Whether callers need an error response, because the hub waits for a resumable session to return."""
        self._event_attachments: set[str] = set()

    def attach(self, session: Session) -> None:
        """Serve calls of a new connection."""
        self.call_dispatcher = self._new_dispatcher(session.respond)
        self.notifies_callers = session.is_resumable

    def detach(self) -> Dispatcher | None:
        """Stop serving calls and return their dispatcher: their responses have no connection."""
        for name in self._event_attachments:
            self.event_dispatcher.handle(messages.Attachment(name, error="the connection was lost"))
        self._event_attachments.clear()
        dispatcher, self.call_dispatcher = self.call_dispatcher, None
        return dispatcher

    def handle_event(self, message: messages.Event) -> None:
        """Pass an event to its handler."""
        self._event_attachments.update(message.attachments)
        self.event_dispatcher.handle(message)

    def handle_attachment(self, message: messages.Attachment) -> None:
        """Pass an attachment to its event or call, if it belongs to this application."""
        if message.name in self._event_attachments:
            self._event_attachments.remove(message.name)
            self.event_dispatcher.handle(message)
        elif self.call_dispatcher is not None:
            self.call_dispatcher.handle(message)

    async def close(self) -> None:
        """Stop workers, calls and event handlers."""
        await self.event_dispatcher.stop_workers(WORKER_DRAIN_TIMEOUT)
        if self.call_dispatcher is not None:
            await self.call_dispatcher.close(notify_callers=self.notifies_callers)
        await self.event_dispatcher.close()


class _HandlerSubscription(SubscriptionQueue):
    """A subscription of an application's event handler."""

    def __init__(self, name: str, handler: EventHandler, served: ServedApp, app_subscription: str) -> None:
        super().__init__(name, SubscribeOptions(handler.topic, handler.pattern))
        self._served = served
        self._app_subscription = app_subscription

    def put(self, _: Session, event: messages.Event) -> None:
        """Pass an event to the application under the application's own subscription name."""
        self._served.handle_event(msgspec.structs.replace(event, subscription=self._app_subscription))


class _OneShotFunction:
    """A function that waits for one call. Implements `callbacks.CallbackReceiver`."""

    def __init__(self, method: str, served: ServedApp) -> None:
        self._method = method
        self._served = served

    def handle_call(self, _: CallbackChannel, call: messages.Call) -> None:
        """Call the function as a temporary method."""
        if self._served.call_dispatcher is not None:
            self._served.call_dispatcher.handle(msgspec.structs.replace(call, method=self._method, callback=False))
        self.remove()

    def connection_lost(self) -> str:
        """Remove the function and return a description of the loss."""
        method = self.remove()
        return f"the callback {getattr(method.function, '__name__', '')} was lost" if method else ""

    def remove(self) -> Method | None:
        """Remove the function."""
        return self._served.app.methods.pop(self._method, None)


class Registrations:
    """All registrations of one client."""

    def __init__(
        self, requester: Requester, subscriptions: Subscriptions, hub: HubApi, limits: Limits, *, show_errors: bool
    ) -> None:
        self._requester = requester
        self._subscriptions = subscriptions
        self._workers = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fiveways-client")
        self._make_served = partial(ServedApp, hub=hub, workers=self._workers, limits=limits)
        self._function_app = self._make_served(App(show_errors=show_errors))
        self._callback_app = self._make_served(App(show_errors=show_errors))
        self._served_apps = [self._function_app, self._callback_app]
        self._app_by_method: dict[str, ServedApp] = {}
        """Application of each method, also while the registration is pending."""
        self._registered: dict[str, tuple[Method, str]] = {}
        """Confirmed registrations by folded name: method and the user's spelling."""
        self._closing: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._callback_count = 0

    # Registering.

    async def register(
        self, spelling: str, function: Callable[..., object], doc: str | None = None, share: str = ""
    ) -> None:
        """Register one function; CallError if the hub refuses, ValueError if the name is registered already."""
        folded = names.fold_method(spelling)
        self._check_name_free(folded)
        methods = self._function_app.app.methods
        self._function_app.app.method(spelling, doc=doc, share=share)(function)
        try:
            await self._register_method(self._function_app, methods[folded], spelling)
        except BaseException:
            methods.pop(folded, None)
            raise

    def _check_name_free(self, folded: str) -> None:
        if folded in self._app_by_method:
            raise ValueError(f"{folded!r} is registered already by this client")

    async def _register_method(self, served: ServedApp, method: Method, spelling: str) -> None:
        self._app_by_method[method.name] = (
            served  # before the request, because the first call may follow the response immediately
        )
        try:
            await self._requester.request_idempotent(partial(_register_message, method, spelling))
        except BaseException:
            del self._app_by_method[method.name]
            raise
        self._registered[method.name] = method, spelling

    async def unregister(self, spelling: str) -> None:
        """Remove a registration."""
        folded = names.fold_method(spelling)
        _, registered_spelling = self._registered.pop(folded, (None, spelling))
        if self._app_by_method.pop(folded, None) is self._function_app:
            self._function_app.app.methods.pop(folded, None)
        await self._requester.request_idempotent(partial(_unregister_message, folded, registered_spelling))

    async def serve(self, app: App) -> None:
        """Serve an application: all of it, or nothing if the hub refuses a part."""
        if app.routes or app.update_handlers:
            raise ValueError(
                "routes and update handlers work only in the hub: run the application with fiveways serve --app"
            )
        for name in app.methods:
            self._check_name_free(name)
        served = self._make_served(app)
        await served.event_dispatcher.start()
        self._served_apps.append(served)
        if self._session is not None:
            served.attach(self._session)
        queues: list[SubscriptionQueue] = []
        try:
            for method in list(app.methods.values()):
                await self._register_method(served, method, method.spelling)
            for handler, subscribe in zip(app.handlers, served.event_dispatcher.subscriptions(), strict=True):
                queues.append(
                    _HandlerSubscription(self._subscriptions.new_name(), handler, served, subscribe.subscription)
                )
                await self._subscriptions.open(queues[-1])
            served.event_dispatcher.start_workers()
        except BaseException:
            await self._withdraw(served, queues)
            raise

    async def _withdraw(self, served: ServedApp, queues: list[SubscriptionQueue]) -> None:
        for queue in queues:
            self._subscriptions.close(queue)
        for name in [name for name, app in self._app_by_method.items() if app is served]:
            with suppress(CallError, ConnectionLost):
                await self.unregister(name)
        self._served_apps.remove(served)
        await served.close()

    def new_callback(self, function: Callable[..., object]) -> "_OneShotFunction":
        """Prepare a function for one call."""
        self._callback_count += 1
        method = f"callback_{self._callback_count}"
        self._callback_app.app.method(method)(function)
        return _OneShotFunction(method, self._callback_app)

    def restore_requests(self) -> list[RestoreRequest]:
        """Return the requests that restore the registrations in a new session."""
        return [
            RestoreRequest(f"method {spelling}", partial(_register_message, method, spelling), _ignore_refusal)
            for method, spelling in self._registered.values()
        ]

    def unregister_requests(self) -> list[RequestFactory]:
        """Return the requests that withdraw all registrations."""
        return [partial(_unregister_message, folded, spelling) for folded, (_, spelling) in self._registered.items()]

    def __len__(self) -> int:
        return len(self._app_by_method)

    # Calls.

    def attach(self, session: Session) -> None:
        """Serve a new session."""
        self._session = session
        session.on_call = self.handle_call
        for served in self._served_apps:
            served.attach(session)

    def detach(self) -> None:
        """Stop the calls of a session that ended."""
        self._session = None
        for served in self._served_apps:
            dispatcher = served.detach()
            if dispatcher is not None:
                task = asyncio.create_task(dispatcher.close(notify_callers=served.notifies_callers))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def handle_call(self, call: messages.Call) -> None:
        """Run a registered method."""
        served = self._app_by_method.get(call.method, self._function_app)  # it responds that there is no such method
        if served.call_dispatcher is not None:
            served.call_dispatcher.handle_call(call)

    def handle_message(
        self, session: Session, message: messages.Cancel | messages.Attachment | messages.Discover
    ) -> None:
        """Handle a cancellation, an attachment or a discovery request."""
        match message:
            case messages.Cancel():
                for served in self._served_apps:
                    if served.call_dispatcher is not None:
                        served.call_dispatcher.handle(message)
            case messages.Attachment():
                for served in self._served_apps:
                    served.handle_attachment(message)
            case messages.Discover():
                self._describe(session, message)

    def _describe(self, session: Session, request: messages.Discover) -> None:
        style = session.spec.name_style
        methods = {names.spell_name(spelling, style): method for method, spelling in self._registered.values()}
        if not request.name:
            session.send(messages.Description(request.id, tuple(sorted(methods))))
        elif (method := methods.get(request.name)) is not None:
            session.send(messages.Description(request.id, doc=method.doc))
        else:
            session.send(messages.Failure(request.id, Reason.NO_SUCH_METHOD, f"there is no method {request.name!r}"))

    async def close(self) -> None:
        """Stop all calls, workers and event handlers."""
        for served in self._served_apps:
            await served.close()
        if self._closing:
            await asyncio.wait(self._closing)
        self._workers.shutdown(wait=False, cancel_futures=True)


def _register_message(method: Method, spelling: str, session: Session, call_id: str) -> messages.Register:
    spelling = names.spell_name(spelling, session.spec.name_style)
    return messages.Register(call_id, method.name, spelling, doc=method.doc, kind=method.kind, share=method.share)


def _unregister_message(folded: str, spelling: str, session: Session, call_id: str) -> messages.Unregister:
    return messages.Unregister(call_id, folded, names.spell_name(spelling, session.spec.name_style))


def _ignore_refusal(_: CallError | None) -> None:
    """Do nothing: the refusal is logged, and the next connection retries."""


def _discard(_: messages.HubMessage) -> None:
    """Do nothing: events have no response."""
