"""Keeps a session open: when one is lost another is opened, and made like the one before."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from random import SystemRandom
from typing import Final, Protocol

from fiveways.client import first_connection, handshake, resumable_session, urls
from fiveways.client.connection_state import ConnectionState, ConnectionStatus, StatusTracker
from fiveways.client.session import Session
from fiveways.client.settings import BAD_TIMEOUT, ClientSettings
from fiveways.errors import ConnectionLost, LocalProtocolError, NotExecuted, Reason, Refused
from fiveways.model.messages import HubMessage, Welcome
from fiveways.protocols import registry
from fiveways.transports.base import Link, Receiver, SpoolFactory
from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits

_CLOSE_TIMEOUT: Final = 5.0
"""Seconds for a link to close in good order."""
_log = logging.getLogger("fiveways.client")


class OpenLink(Protocol):
    """How a transport connects."""

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
    """Whose sessions these are."""

    def message_received(self, session: Session, word: HubMessage) -> None:
        """Take a word that answers none of our requests."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""

    def session_lost(self) -> list[str]:
        """Know that a session is over; say what cannot be had again, a sentence each."""

    async def restore(self, session: Session) -> None:
        """Make a new session like the one before; ConnectionLost if it ends meanwhile."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """Know that there will be no session any more."""


class Reconnector:
    """One session after the other, until it is closed, refused, or not to be opened again."""

    def __init__(self, settings: ClientSettings, owner: SessionOwner, open_link: OpenLink = open_websocket) -> None:
        self.settings = settings
        self.spec = registry.load(settings.address.protocol)
        handshake.check_credentials(settings, self.spec)
        self.states = StatusTracker()
        self.session: Session | None = None
        """The one that is open, None while there is none."""
        self.session_name = ""
        """What the hub calls it."""
        self._resumable: resumable_session.ResumableSession | None = None
        """The one that goes on over all links, where the protocol knows how."""
        self._owner = owner
        self._open_link = open_link
        self._request_numbers = count(1)
        limits = settings.limits
        # Where attachments come by themselves they may be larger than what one likes to hold in memory.
        is_inside = self.spec.supports_challenge or self.spec.name in resumable_session.RESUMABLE_PROTOCOLS
        self._spools = None if is_inside else DiskSpools(limits.max_spool, limits.max_attachment)
        self._changed = asyncio.Event()
        self._connection_needed = asyncio.Event()
        """Somebody wants to say something, and there is no link."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._waiting_requests = 0
        self._close_error: ConnectionLost | None = None
        self._backoff = settings.first_wait
        self._lost_items: list[str] = []
        """What was lost with the last session."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first session; with `wait`, try again for that long.

        Raises:
            Refused: the hub refuses our credentials.
            ConnectionLost: the hub cannot be reached.
        """
        try:
            again = partial(self._reconnect, is_urgent=False, keep_trying=True)
            session = await first_connection.connect_first(self._connect(), again, self.settings.wait, _log)
        except ConnectionLost as exc:
            self._finish(exc)
            raise
        self._set_status(ConnectionStatus(ConnectionState.CONNECTED, self.settings.address.original_url), logging.INFO)
        self._task = asyncio.create_task(self._run(session), name="fiveways.client")

    async def wait_ready(self, wait: float) -> tuple[Session, float]:
        """Return a session that takes words, and what is left of the time.

        Raises:
            NotExecuted: there is none in time, or too many wait for one.
            ConnectionLost: there will be none.
            ValueError: no time was given.
        """
        if wait <= 0:
            raise ValueError(BAD_TIMEOUT)
        if self._waiting_requests >= self.settings.limits.max_pending:
            raise NotExecuted(Reason.OVERLOADED, f"{self._waiting_requests} requests wait for the connection already")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._waiting_requests += 1
        try:
            async with asyncio.timeout_at(deadline):
                session = await self._wait_session()
        except TimeoutError:
            why = "" if self._resumed.is_set() else ": it is paused"
            text = f"no connection to {self.settings.address.original_url} within {wait:g} seconds{why}"
            raise NotExecuted(Reason.UNAVAILABLE, text) from None
        finally:
            self._waiting_requests -= 1
        return session, max(deadline - loop.time(), 0.001)

    async def _wait_session(self) -> Session:
        while True:
            session = self.session
            if session is not None and not session.is_full:
                return session
            if session is not None:
                await session.wait_writable()
            elif self._close_error is not None:
                raise type(self._close_error)(str(self._close_error))
            else:
                self._connection_needed.set()
                await self._changed.wait()

    async def close(self) -> None:
        """Part from the hub, for good."""
        session, task = self.session, self._task
        self._finish(ConnectionLost("the connection is closed"))
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])
        if session is not None:
            session.close()
            await asyncio.wait([session.ended], timeout=_CLOSE_TIMEOUT)
            if not session.ended.done():
                session.abort(ConnectionLost("the hub does not let go"))

    # Pauses.

    def pause(self) -> None:
        """Say nothing and hear nothing until `resume`.

        Raises:
            LocalProtocolError: the protocol's conversation would end with its link.
            ConnectionLost: it has ended already.
        """
        if self._close_error is not None:
            raise ConnectionLost(str(self._close_error))
        if self._resumable is None:
            able = ", ".join(urls.schemes_of(*sorted(resumable_session.RESUMABLE_PROTOCOLS)))
            raise LocalProtocolError(f"{self.spec.name} cannot pause: its conversation ends with its link; {able} can")
        if self._resumed.is_set():
            self._resumed.clear()
            self._resumable.pause()
            self._set_status(ConnectionStatus(ConnectionState.PAUSED), logging.INFO)

    def resume(self) -> None:
        """Go on, and get what is due; nothing happens if it was not paused."""
        if self._resumable is not None and not self._resumed.is_set():
            self._resumable.resume()
            self._resumed.set()
            self._connection_needed.set()

    def request_connection(self) -> None:
        """Know that something waits to be said."""
        self._connection_needed.set()

    # The life of a session.

    def message_received(self, session: Session, word: HubMessage) -> None:
        """Pass on what the hub says by itself."""
        self._owner.message_received(session, word)

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""
        return self._owner.is_expectant

    def _make_session(self) -> Session:
        """Return what the next link is for."""
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
            error = ConnectionLost(f"{address.original_url} did not answer our hello within {wait:g} seconds")
            session.abort(error)
            await asyncio.wait([session.ended], timeout=wait)  # it may be for the next link as well
            raise error from None
        except ConnectionLost as exc:
            raise type(exc)(f"{exc}{'' if isinstance(exc, Refused) else address.path_hint}") from exc
        except asyncio.CancelledError:
            session.abort(ConnectionLost("nobody wants it any more"))
            raise
        self.session_name = handshake.session_name(welcome)
        return session

    async def _connect(self) -> Session:
        """Open a session, make it like the one before, and let all use it."""
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
                session.abort(ConnectionLost("it could not be made like the one before"))
            self._owner.session_lost()
            raise
        self.session = session
        self._connection_needed.clear()
        self._changed.set()
        if session.ended.done():
            self.session_ended(session)
        return session

    async def _run(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        while True:
            opened_at = loop.time()
            error = await asyncio.shield(session.ended)
            if loop.time() - opened_at > self.settings.longest_wait:
                self._backoff = self.settings.first_wait
            gone, self._lost_items = self._lost_items, []
            is_rest = isinstance(error, resumable_session.ConnectionSuspended)
            if not is_rest and (not self.settings.reconnect or isinstance(error, Refused)):
                self._finish(error)
                return
            if is_rest:
                await self._wait_needed(error)
            else:
                self._set_status(
                    ConnectionStatus(ConnectionState.RECONNECTING, "; ".join([str(error), *gone])), logging.WARNING
                )
            try:
                session = await self._reconnect(is_urgent=is_rest)
            except ConnectionLost as lost:
                self._finish(lost)
                return
            gone, self._lost_items = [*gone, *self._lost_items], []
            level = logging.INFO if is_rest else logging.WARNING
            self._set_status(
                ConnectionStatus(ConnectionState.RECONNECTED, "; ".join([self.settings.address.original_url, *gone])),
                level,
            )

    async def _wait_needed(self, why: ConnectionLost) -> None:
        """Wait until a link is needed."""
        if self._resumed.is_set() and not self._connection_needed.is_set():
            self._set_status(ConnectionStatus(ConnectionState.RESTING, str(why)), logging.INFO)
        await self._connection_needed.wait()
        self._check_open()

    async def _reconnect(self, *, is_urgent: bool, keep_trying: bool = False) -> Session:
        """Try until it works, after ever longer waits, none of them foreseeable: many clients lose one hub at once."""
        chance = SystemRandom()
        while True:
            await asyncio.sleep(0 if is_urgent else chance.uniform(0, self._backoff))
            is_urgent = False
            await self._resumed.wait()
            self._check_open()
            self._backoff = min(2 * self._backoff, self.settings.longest_wait)
            try:
                return await self._connect()
            except Refused:
                raise
            except ConnectionLost as exc:
                if not (self.settings.reconnect or keep_trying) and self._resumed.is_set():
                    raise
                _log.info("still no connection: %s", exc)

    def _check_open(self) -> None:
        # To be cancelled is not enough: `wait_for` may lose that when what it waits for fails in the same moment.
        if self._close_error is not None:
            raise asyncio.CancelledError

    def session_ended(self, session: Session) -> None:
        """Use a session no longer that is over; who waits for the next one must find nothing of it."""
        if self.session is session:
            self.session = None
            self._changed.clear()
            if not session.is_resumable:
                self._lost_items = self._owner.session_lost()

    def _finish(self, error: ConnectionLost) -> None:
        self.session = None
        if self._resumable is not None:
            self._resumable.finish(error)
        if self._close_error is None:
            self._close_error = error
            self._owner.connection_closed(error)
            self._set_status(ConnectionStatus(ConnectionState.CLOSED, str(error)), logging.INFO)
        self._changed.set()

    def _set_status(self, status: ConnectionStatus, level: int) -> None:
        _log.log(level, "%s", status)
        self.states.publish(status)
