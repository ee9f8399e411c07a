"""Keeps a session with a hub open: a lost session is replaced, and its state restored."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, Protocol

from fiveways.client import handshake, resumable_session, urls
from fiveways.client.connection_state import ConnectionState, ConnectionStatus
from fiveways.client.reconnector import Reconnector
from fiveways.client.session import Session
from fiveways.client.settings import ClientSettings
from fiveways.errors import ConnectionLost, LocalProtocolError, Refused
from fiveways.model.messages import HubMessage, Welcome
from fiveways.protocols import registry
from fiveways.transports.base import Link, Receiver, SpoolFactory
from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits

_CLOSE_TIMEOUT: Final = 5.0
"""Seconds for a link to close normally."""
_log = logging.getLogger("fiveways.client")


class OpenLink(Protocol):
    """Connects by a transport."""

    def __call__(
        self,
        url: str,
        receive: Callable[[Link], Receiver],
        /,
        *,
        limits: Limits,
        spools: SpoolFactory | None,
        subprotocol: str,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> Awaitable[object]:
        """Open a link; OSError, with a sentence, if that fails."""


class SessionOwner(Protocol):
    """Owner of the sessions."""

    def message_received(self, session: Session, message: HubMessage) -> None:
        """Handle a message that is not a response."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may send messages without a request."""

    def session_lost(self) -> list[str]:
        """Handle the end of a session; return a sentence for each item that cannot be restored."""

    async def restore(self, session: Session) -> None:
        """Restore the state of the previous session; ConnectionLost if the new one ends before that."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """Handle that there will be no further session."""


class HubReconnector(Reconnector[Session]):
    """Opens one session after another at a hub."""

    def __init__(self, settings: ClientSettings, owner: SessionOwner, open_link: OpenLink = open_websocket) -> None:
        super().__init__(settings, settings.address.original_url, _log)
        self.settings = settings
        self.spec = registry.load(settings.address.protocol)
        handshake.check_credentials(settings, self.spec)
        self.session: Session | None = None
        """The open session, or None."""
        self.session_name = ""
        """Name of the session at the hub."""
        self._resumable: resumable_session.ResumableSession | None = None
        """The one session for all links, if the protocol has resumable sessions."""
        self._owner = owner
        self._open_link = open_link
        self._request_numbers = count(1)
        limits = settings.limits
        # Attachments in frames of their own may be too large to be held in memory.
        has_inline_attachments = self.spec.supports_challenge or self.spec.name in resumable_session.RESUMABLE_PROTOCOLS
        self._spools = None if has_inline_attachments else DiskSpools(limits.max_spool, limits.max_attachment)
        self._connection_needed = asyncio.Event()
        """Set while a message waits for a link."""
        self._lost_items: list[str] = []
        """Items that were lost with the last session."""

    async def wait_ready(self, wait: float) -> tuple[Session, float]:
        """Return a session that accepts messages, and the remaining seconds.

        Raises:
            NotExecuted: there is no session in time, or too many requests wait for one.
            ConnectionLost: there will be no further session.
            ValueError: `wait` is not positive.
        """
        return await self._wait_connection(wait, self._wait_session, self._unavailable_text)

    def _unavailable_text(self) -> str:
        paused = "" if self._resumed.is_set() else " (paused)"
        return f"no connection to {self.settings.address.original_url}{paused}"

    async def _wait_session(self) -> Session:
        while True:
            session = self.session
            if session is not None and not session.is_full:
                return session
            if session is not None:
                await session.wait_writable()
            else:
                self._raise_if_closed()
                self._connection_needed.set()
                await self._changed.wait()

    async def close(self) -> None:
        """Close the session and stop to reconnect."""
        session = self.session
        await self._stop()
        if session is not None:
            session.close()
            await asyncio.wait([session.ended], timeout=_CLOSE_TIMEOUT)
            if not session.ended.done():
                session.abort(ConnectionLost(f"the hub did not close the link within {_CLOSE_TIMEOUT:g} seconds"))

    # Pause.

    def pause(self) -> None:
        """Close the link until `resume`.

        Raises:
            LocalProtocolError: the protocol has no resumable sessions.
            ConnectionLost: the connection is closed.
        """
        if self._close_error is not None:
            raise ConnectionLost(str(self._close_error))
        if self._resumable is None:
            supported = ", ".join(urls.schemes_of(*sorted(resumable_session.RESUMABLE_PROTOCOLS)))
            text = f"{self.spec.name} cannot pause, because its session ends with its link; use {supported}"
            raise LocalProtocolError(text)
        if self._resumed.is_set():
            self._resumed.clear()
            self._resumable.pause()
            self._set_status(ConnectionStatus(ConnectionState.PAUSED), logging.INFO)

    def resume(self) -> None:
        """Open the link again after `pause`; otherwise do nothing."""
        if self._resumable is not None and not self._resumed.is_set():
            self._resumable.resume()
            self._resumed.set()
            self._connection_needed.set()

    # Calls by the session.

    def request_connection(self) -> None:
        """Handle a message that waits for a link."""
        self._connection_needed.set()

    def message_received(self, session: Session, message: HubMessage) -> None:
        """Pass on a message that is not a response."""
        self._owner.message_received(session, message)

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may send messages without a request."""
        return self._owner.is_expectant

    def session_ended(self, session: Session) -> None:
        """Remove the session before its requests fail: their callers must not use it again."""
        if self.session is session:
            self.session = None
            self._changed.clear()
            if not session.is_resumable:
                self._lost_items = self._owner.session_lost()

    # Lifecycle of a session.

    def _make_session(self) -> Session:
        """Return the session for the next link."""
        if self.spec.name not in resumable_session.RESUMABLE_PROTOCOLS:
            return Session(self.spec, self.settings, self, self._request_numbers)
        if self._resumable is None:
            self._resumable = resumable_session.ResumableSession(self.spec, self.settings, self, self._request_numbers)
        return self._resumable

    async def _open_session(self) -> Session:
        settings = self.settings
        address, wait = settings.address, settings.open_timeout
        session = self._make_session()
        url, headers = session.endpoint()
        try:
            await self._open_link(
                url,
                session.attach,
                limits=settings.limits,
                spools=self._spools,
                subprotocol=address.subprotocol,
                headers=headers,
                timeout=wait,
            )
        except (OSError, ValueError) as exc:
            raise ConnectionLost(f"cannot connect to {address.original_url}: {address.explain_error(exc)}") from exc
        try:
            async with asyncio.timeout(wait):
                welcome: Welcome = await session.welcome
        except TimeoutError:
            error = ConnectionLost(f"{address.original_url} did not complete the handshake within {wait:g} seconds")
            session.abort(error)
            await asyncio.wait([session.ended], timeout=wait)  # a resumable session is needed for the next link
            raise error from None
        except ConnectionLost as exc:
            raise type(exc)(f"{exc}{'' if isinstance(exc, Refused) else address.path_hint}") from exc
        except asyncio.CancelledError:
            session.abort(ConnectionLost("the connection attempt was cancelled"))
            raise
        self.session_name = handshake.session_name(welcome)
        return session

    async def _connect(self) -> Session:
        """Open a session, restore its state and publish it."""
        session = await self._open_session()
        try:
            self._check_open()
            if not session.is_restored:
                if session.is_resumable:
                    self._lost_items += self._owner.session_lost()
                await self._owner.restore(session)
                session.mark_restored()
            self._check_open()
        except BaseException:
            if not session.ended.done():
                session.abort(ConnectionLost("the session could not be restored"))
            self._owner.session_lost()
            raise
        self.session = session
        self._connection_needed.clear()
        self._changed.set()
        if session.ended.done():
            self.session_ended(session)
        return session

    def _may_replace(self, error: ConnectionLost) -> bool:
        return isinstance(error, resumable_session.ConnectionSuspended) or super()._may_replace(error)

    async def _replace(self, error: ConnectionLost) -> Session:
        lost_items, self._lost_items = self._lost_items, []
        is_suspended = isinstance(error, resumable_session.ConnectionSuspended)
        if is_suspended:
            await self._wait_needed(error)
        else:
            text = "; ".join([str(error), *lost_items])
            self._set_status(ConnectionStatus(ConnectionState.RECONNECTING, text), logging.WARNING)
        session = await self._reconnect(is_urgent=is_suspended)
        lost_items, self._lost_items = [*lost_items, *self._lost_items], []
        text = "; ".join([self.settings.address.original_url, *lost_items])
        level = logging.INFO if is_suspended else logging.WARNING
        self._set_status(ConnectionStatus(ConnectionState.RECONNECTED, text), level)
        return session

    async def _wait_needed(self, error: ConnectionLost) -> None:
        """Wait until a message needs a link."""
        if self._resumed.is_set() and not self._connection_needed.is_set():
            self._set_status(ConnectionStatus(ConnectionState.RESTING, str(error)), logging.INFO)
        await self._connection_needed.wait()
        self._check_open()

    def _on_finished(self, error: ConnectionLost) -> None:
        self.session = None
        if self._resumable is not None:
            self._resumable.finish(error)
        self._owner.connection_closed(error)
