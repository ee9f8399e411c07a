"""What holds a client together: its connection, and all that a new one must be made like."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from fiveways.app.attachment_sources import Attachable
from fiveways.app.callbacks import Callbacks
from fiveways.app.context import HubApi
from fiveways.client.pending_requests import PendingRequest
from fiveways.client.reconnector import OpenLink, Reconnector
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
from fiveways.transports.websocket_client import open_websocket

_RESTORE_BATCH: Final = 256
"""Words that restore a session and wait for their answers together."""
_WITHDRAW_TIMEOUT: Final = 1.0
"""Seconds for the hub to take back what we offered."""
_log = logging.getLogger("fiveways.client")


async def wait_result(session: Session, pending: PendingRequest) -> Result:
    """Wait for an answer; who no longer waits tells the hub so."""
    try:
        return await pending.future
    except asyncio.CancelledError:
        session.abandon(pending)
        raise


class ClientCore:
    """One client. Fulfils `keeper.Owner` and `subscriptions.Asker`."""

    def __init__(self, settings: ClientSettings, reach: HubApi, open_link: OpenLink = open_websocket) -> None:
        self.settings = settings
        self.reconnector = Reconnector(settings, self, open_link)
        self.subscriptions = Subscriptions(self)
        self.callbacks = Callbacks(settings.limits.max_pending)
        self.registrations = Registrations(
            self, self.subscriptions, reach, settings.limits, show_errors=settings.show_errors
        )
        self._hub = reach
        self.variables = VariableState(self, settings.variables())

    # Asking.

    async def request(
        self,
        make: Callable[[str, tuple[str, ...]], HubMessage],
        timeout: float | None = None,  # noqa: ASYNC109  it is divided between waiting for a connection and for an answer
        attachments: Sequence[Attachable] = (),
    ) -> Result:
        """Make a request, once there is a connection."""
        session, left = await self.reconnector.wait_ready(self.settings.timeout if timeout is None else timeout)
        return await wait_result(session, session.request(make, left, attachments))

    async def request_idempotent(self, make: RequestFactory) -> Result:
        """Make a request that may be made twice: again on a new connection, if one is lost before the answer."""
        left = self.settings.timeout
        while True:
            session, left = await self.reconnector.wait_ready(left)
            try:
                return await wait_result(session, session.request(partial(_call_factory, make, session), left))
            except (CallLost, NotExecuted):
                if not (session.ended.done() and self.settings.reconnect):
                    raise

    def send_if_connected(self, word: HubMessage) -> None:
        """Say what needs no answer, if there is a connection and it can be said."""
        session = self.reconnector.session
        if session is not None:
            with suppress(LocalProtocolError):
                session.send(word)

    async def close(self) -> None:
        """End it all."""
        session = self.reconnector.session
        if session is not None and session.is_resumable:
            await self._withdraw_all(session)
        self.subscriptions.end(None)
        await self.registrations.close()  # while those who called us can still be told
        await self.reconnector.close()
        self.callbacks.drop_all()

    async def _withdraw_all(self, session: Session) -> None:
        """Leave nothing behind at a hub that waits for us to come back."""
        for name in self.subscriptions.open_names():
            self.send_if_connected(Unsubscribe(None, name))
        with suppress(CallError):
            asked = [
                session.request(partial(_call_factory, make, session), _WITHDRAW_TIMEOUT)
                for make in self.registrations.unregister_requests()
            ]
            if asked:
                await asyncio.wait([pending.future for pending in asked], timeout=_WITHDRAW_TIMEOUT)
            for pending in asked:
                if pending.future.done():
                    pending.future.exception()
                else:
                    session.abandon(pending)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token for a function."""
        once = self.registrations.new_callback(function)
        name = self.callbacks.add(once)
        try:
            return str(await self._hub.call("hub.callback", {"id": name})).lower()
        except BaseException:
            self.callbacks.remove(name)
            once.remove()
            raise

    # What the keeper tells.

    def message_received(self, session: Session, word: HubMessage) -> None:
        """Take what the hub says by itself."""
        if type(word) is Call:
            if word.callback:
                self.callbacks.handle_call(session, word)
            else:
                self.registrations.handle_call(word)
        elif isinstance(word, Event | TopicClosed):
            self.subscriptions.handle_message(session, word)
        elif isinstance(word, Cancel | Attachment | Discover):
            self.registrations.handle_message(session, word)
        elif isinstance(word, SetVariable | UnsetVariable):
            self.variables.handle_message(word)
        elif (request := getattr(word, "id", None)) is not None:
            session.send(Failure(request, Reason.NO_SUCH_METHOD, "this end offers methods, and nothing else"))

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""
        return bool(len(self.subscriptions) or len(self.registrations) or len(self.callbacks))

    def session_lost(self) -> list[str]:
        """Give up what belonged to a session alone."""
        self.registrations.detach()
        return self.callbacks.drop_all()

    def connection_closed(self, error: ConnectionLost) -> None:
        """End what waits for news."""
        self.subscriptions.end(error)

    async def restore(self, session: Session) -> None:
        """Ask a new session for all that the one before had."""
        self.variables.clear_hub_variables()
        self.registrations.attach(session)
        wait = self.settings.open_timeout
        # In this order: a variable may be what lets us register and subscribe.
        for thing in (self.variables, self.registrations, self.subscriptions):
            rest = iter(thing.restore_requests())
            while some := list(islice(rest, _RESTORE_BATCH)):
                asked = [session.request(partial(_call_factory, wanted.factory, session), wait) for wanted in some]
                for wanted, pending in zip(some, asked, strict=True):
                    wanted.on_done(await self._wait_refusal(session, pending, wanted.label))

    async def _wait_refusal(self, session: Session, pending: PendingRequest, label: str) -> CallError | None:
        """Wait for an answer; ConnectionLost if the session cannot be had at all."""
        either: list[asyncio.Future[Any]] = [pending.future, session.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not pending.future.done():
            session.abandon(pending)
            raise ConnectionLost(str(session.ended.result()))
        try:
            await wait_result(session, pending)
        except CallError as exc:
            if session.ended.done():
                raise ConnectionLost(str(exc)) from exc
            if isinstance(exc, CallTimeout):
                error = ConnectionLost(f"the hub did not answer: {label}")
                session.abort(error)
                raise error from exc
            _log.warning("%s was not restored: %s", label, exc)
            return exc
        return None


def _call_factory(make: RequestFactory, session: Session, call_id: str, _: tuple[str, ...]) -> HubMessage:
    return make(session, call_id)
