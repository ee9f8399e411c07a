"""State of one client: its connection, and everything that a new connection must restore."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from fiveways.app.attachment_sources import Attachable
from fiveways.app.callbacks import Callbacks
from fiveways.app.context import HubApi
from fiveways.client.hub_reconnector import HubReconnector, OpenLink
from fiveways.client.pending_requests import PartQueue, PendingRequest
from fiveways.client.registrations import Registrations
from fiveways.client.restore_requests import RequestFactory
from fiveways.client.session import Session
from fiveways.client.settings import ClientSettings
from fiveways.client.subscriptions import Subscriptions
from fiveways.client.variables import VariableState
from fiveways.errors import CallError, CallLost, CallTimeout, ConnectionLost, LocalProtocolError, NotExecuted, Reason
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Discover,
    Event,
    Failure,
    HubMessage,
    Result,
    SetVariable,
    TopicClosed,
    UnsetVariable,
    Unsubscribe,
)
from fiveways.model.outcomes import value_of_result
from fiveways.transports.websocket_client import open_websocket

_RESTORE_BATCH: Final = 256
"""Restore requests that are in flight together."""
_WITHDRAW_TIMEOUT: Final = 1.0
"""Seconds that the hub gets to confirm that registrations are withdrawn."""
_log = logging.getLogger("fiveways.client")


async def wait_result(session: Session, pending: PendingRequest) -> Result:
    """Wait for a response; if the waiting task is cancelled, cancel the request at the hub."""
    try:
        return await pending.future
    except asyncio.CancelledError:
        session.abandon(pending)
        raise


async def iterate_parts(session: Session, pending: PendingRequest, parts: PartQueue) -> AsyncGenerator[Any, None]:
    """Yield the parts of a call's result; the call is cancelled if its reader stops before the end."""
    pending.future.add_done_callback(lambda _: parts.arrived.set())
    try:
        while True:
            while parts.queue:
                yield value_of_result(parts.queue.popleft())
            if pending.future.done():
                break
            parts.arrived.clear()
            await parts.arrived.wait()
        result = pending.future.result()
        if not result.stream:
            value = value_of_result(result)
            for part in value if isinstance(value, list) else [value]:
                yield part
    finally:
        if pending.future.done():
            pending.future.exception()  # marks the exception as retrieved
        else:
            session.abandon(pending)


class ClientCore:
    """State of one client. Implements `hub_reconnector.SessionOwner` and `restore_requests.Requester`."""

    def __init__(self, settings: ClientSettings, hub: HubApi, open_link: OpenLink = open_websocket) -> None:
        self.settings = settings
        self.reconnector = HubReconnector(settings, self, open_link)
        self.subscriptions = Subscriptions(self)
        self.callbacks = Callbacks(settings.limits.max_pending)
        self.registrations = Registrations(
            self, self.subscriptions, hub, settings.limits, show_errors=settings.show_errors
        )
        self._hub = hub
        self.variables = VariableState(self, settings.variables())

    # Requests.

    async def request(
        self,
        make: Callable[[str, tuple[str, ...]], HubMessage],
        timeout: float | None = None,  # noqa: ASYNC109  one timeout for the wait for a connection and for the response
        attachments: Sequence[Attachable] = (),
    ) -> Result:
        """Send a request when there is a connection, and wait for the response."""
        session, left = await self.reconnector.wait_ready(self.settings.timeout if timeout is None else timeout)
        return await wait_result(session, session.request(make, left, attachments))

    async def request_idempotent(self, make: RequestFactory) -> Result:
        """Send a request, and again on a new connection if the first is lost before the response."""
        left = self.settings.timeout
        while True:
            session, left = await self.reconnector.wait_ready(left)
            try:
                return await wait_result(session, session.request(partial(_call_factory, make, session), left))
            except (CallLost, NotExecuted):
                if not (session.ended.done() and self.settings.reconnect):
                    raise

    def send_if_connected(self, message: HubMessage) -> None:
        """Send a message without a response, if there is a connection that can carry it."""
        session = self.reconnector.session
        if session is not None:
            with suppress(LocalProtocolError):
                session.send(message)

    async def close(self) -> None:
        """Withdraw registrations and subscriptions, and close the connection."""
        session = self.reconnector.session
        if session is not None and session.is_resumable:
            await self._withdraw_all(session)
        self.subscriptions.end(None)
        await self.registrations.close()  # while their callers can still get a response
        await self.reconnector.close()
        self.callbacks.drop_all()

    async def _withdraw_all(self, session: Session) -> None:
        """Remove registrations and subscriptions at a hub that would keep them for a resumed session."""
        for name in self.subscriptions.open_names():
            self.send_if_connected(Unsubscribe(None, name))
        with suppress(CallError):
            pending_requests = [
                session.request(partial(_call_factory, make, session), _WITHDRAW_TIMEOUT)
                for make in self.registrations.unregister_requests()
            ]
            if pending_requests:
                await asyncio.wait([pending.future for pending in pending_requests], timeout=_WITHDRAW_TIMEOUT)
            for pending in pending_requests:
                if pending.future.done():
                    pending.future.exception()
                else:
                    session.abandon(pending)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token for a function."""
        receiver = self.registrations.new_callback(function)
        name = self.callbacks.add(receiver)
        try:
            return str(await self._hub.call("hub.callback", {"id": name})).lower()
        except BaseException:
            self.callbacks.remove(name)
            receiver.remove()
            raise

    # Calls by the reconnector.

    def message_received(self, session: Session, message: HubMessage) -> None:
        """Dispatch a message that is not a response."""
        if type(message) is Call:
            if message.callback:
                self.callbacks.handle_call(session, message)
            else:
                self.registrations.handle_call(message)
        elif isinstance(message, Event | TopicClosed):
            self.subscriptions.handle_message(session, message)
        elif isinstance(message, Cancel | Attachment | Discover):
            self.registrations.handle_message(session, message)
        elif isinstance(message, SetVariable | UnsetVariable):
            self.variables.handle_message(message)
        elif (request := getattr(message, "id", None)) is not None:
            session.send(Failure(request, Reason.NO_SUCH_METHOD, "this client serves only method calls"))

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may send messages without a request."""
        return bool(len(self.subscriptions) or len(self.registrations) or len(self.callbacks))

    def session_lost(self) -> list[str]:
        """Release the state of a session that cannot be restored; return a description of each lost item."""
        self.registrations.detach()
        return self.callbacks.drop_all()

    def connection_closed(self, error: ConnectionLost) -> None:
        """End all subscriptions."""
        self.subscriptions.end(error)

    async def restore(self, session: Session) -> None:
        """Restore variables, registrations and subscriptions in a new session."""
        self.variables.clear_hub_variables()
        self.registrations.attach(session)
        wait = self.settings.open_timeout
        # In this order: the hub may require a variable before it permits to register and subscribe.
        for part in (self.variables, self.registrations, self.subscriptions):
            requests = iter(part.restore_requests())
            while batch := list(islice(requests, _RESTORE_BATCH)):
                pending_requests = [
                    session.request(partial(_call_factory, request.factory, session), wait) for request in batch
                ]
                for request, pending in zip(batch, pending_requests, strict=True):
                    request.on_done(await self._wait_refusal(session, pending, request.label))

    async def _wait_refusal(self, session: Session, pending: PendingRequest, label: str) -> CallError | None:
        """Return the error if the hub refuses the request; ConnectionLost if the session is lost."""
        futures: list[asyncio.Future[Any]] = [pending.future, session.ended]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not pending.future.done():
            session.abandon(pending)
            raise ConnectionLost(str(session.ended.result()))
        try:
            await wait_result(session, pending)
        except CallError as exc:
            if session.ended.done():
                raise ConnectionLost(str(exc)) from exc
            if isinstance(exc, CallTimeout):
                error = ConnectionLost(f"no response while restoring {label}")
                session.abort(error)
                raise error from exc
            _log.warning("the hub refused to restore an item; it is lost item=%s error=%s", label, exc)
            return exc
        return None


def _call_factory(make: RequestFactory, session: Session, call_id: str, _: tuple[str, ...]) -> HubMessage:
    return make(session, call_id)
