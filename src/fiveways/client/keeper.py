"""Keeps a session open: when one is lost another is opened, and made like the one before."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from random import SystemRandom
from typing import Final, Protocol

from fiveways.client import first, handshake, lasting, urls
from fiveways.client.session import Session
from fiveways.client.settings import NO_TIME, Settings
from fiveways.client.states import State, States, Status
from fiveways.errors import ConnectionLost, LocalProtocolError, NotExecuted, Refused
from fiveways.model.failures import Reason
from fiveways.model.messages import Welcome, Word
from fiveways.protocols import registry
from fiveways.transports.base import Link, Receiver, Spools
from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits

_PARTING: Final = 5.0
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
        spools: Spools | None,
        subprotocol: str,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> Awaitable[object]:
        """Open a link; OSError, with a sentence, if that fails."""


class Owner(Protocol):
    """Whose sessions these are."""

    def heard(self, session: Session, word: Word) -> None:
        """Take a word that answers none of our requests."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""

    def lost(self) -> list[str]:
        """Know that a session is over; say what cannot be had again, a sentence each."""

    async def restore(self, session: Session) -> None:
        """Make a new session like the one before; ConnectionLost if it ends meanwhile."""

    def finished(self, error: ConnectionLost) -> None:
        """Know that there will be no session any more."""


class Keeper:
    """One session after the other, until it is closed, refused, or not to be opened again."""

    def __init__(self, settings: Settings, owner: Owner, open_link: OpenLink = open_websocket) -> None:
        self.settings = settings
        self.spec = registry.load(settings.address.protocol)
        handshake.check(settings, self.spec)
        self.states = States()
        self.session: Session | None = None
        """The one that is open, None while there is none."""
        self.session_name = ""
        """What the hub calls it."""
        self._lasting: lasting.Lasting | None = None
        """The one that goes on over all links, where the protocol knows how."""
        self._owner = owner
        self._open_link = open_link
        self._numbers = count(1)
        limits = settings.limits
        # Where attachments come by themselves they may be larger than what one likes to hold in memory.
        is_inside = self.spec.challenges or self.spec.name in lasting.PROTOCOLS
        self._spools = None if is_inside else DiskSpools(limits.max_spool, limits.max_attachment)
        self._changed = asyncio.Event()
        self._needed = asyncio.Event()
        """Somebody wants to say something, and there is no link."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._waiters = 0
        self._error: ConnectionLost | None = None
        self._wait = settings.first_wait
        self._gone: list[str] = []
        """What was lost with the last session."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first session; with `wait`, try again for that long.

        Raises:
            Refused: the hub refuses our credentials.
            ConnectionLost: the hub cannot be reached.
        """
        try:
            again = partial(self._reopen, is_urgent=False, keep_trying=True)
            session = await first.connected(self._opened(), again, self.settings.wait, _log)
        except ConnectionLost as exc:
            self._finish(exc)
            raise
        self._tell(Status(State.CONNECTED, self.settings.address.given), logging.INFO)
        self._task = asyncio.create_task(self._keep(session), name="fiveways.client")

    async def ready(self, wait: float) -> tuple[Session, float]:
        """Return a session that takes words, and what is left of the time.

        Raises:
            NotExecuted: there is none in time, or too many wait for one.
            ConnectionLost: there will be none.
            ValueError: no time was given.
        """
        if wait <= 0:
            raise ValueError(NO_TIME)
        if self._waiters >= self.settings.limits.max_pending:
            raise NotExecuted(Reason.BUSY, f"{self._waiters} requests wait for the connection already")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._waiters += 1
        try:
            async with asyncio.timeout_at(deadline):
                session = await self._next()
        except TimeoutError:
            why = "" if self._resumed.is_set() else ": it is paused"
            text = f"no connection to {self.settings.address.given} within {wait:g} seconds{why}"
            raise NotExecuted(Reason.UNAVAILABLE, text) from None
        finally:
            self._waiters -= 1
        return session, max(deadline - loop.time(), 0.001)

    async def _next(self) -> Session:
        while True:
            session = self.session
            if session is not None and not session.is_full:
                return session
            if session is not None:
                await session.room()
            elif self._error is not None:
                raise type(self._error)(str(self._error))
            else:
                self._needed.set()
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
            await asyncio.wait([session.ended], timeout=_PARTING)
            if not session.ended.done():
                session.abort(ConnectionLost("the hub does not let go"))

    # Pauses.

    def pause(self) -> None:
        """Say nothing and hear nothing until `resume`.

        Raises:
            LocalProtocolError: the protocol's conversation would end with its link.
            ConnectionLost: it has ended already.
        """
        if self._error is not None:
            raise ConnectionLost(str(self._error))
        if self._lasting is None:
            able = ", ".join(urls.transports_of(*sorted(lasting.PROTOCOLS)))
            raise LocalProtocolError(f"{self.spec.name} cannot pause: its conversation ends with its link; {able} can")
        if self._resumed.is_set():
            self._resumed.clear()
            self._lasting.hold()
            self._tell(Status(State.PAUSED), logging.INFO)

    def resume(self) -> None:
        """Go on, and get what is due; nothing happens if it was not paused."""
        if self._lasting is not None and not self._resumed.is_set():
            self._lasting.release()
            self._resumed.set()
            self._needed.set()

    def needed(self) -> None:
        """Know that something waits to be said."""
        self._needed.set()

    # The life of a session.

    def heard(self, session: Session, word: Word) -> None:
        """Pass on what the hub says by itself."""
        self._owner.heard(session, word)

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""
        return self._owner.is_expectant

    def _session(self) -> Session:
        """Return what the next link is for."""
        if self.spec.name not in lasting.PROTOCOLS:
            return Session(self.spec, self.settings, self, self._numbers)
        if self._lasting is None:
            self._lasting = lasting.Lasting(self.spec, self.settings, self, self._numbers)
        return self._lasting

    async def _dial(self) -> Session:
        settings = self.settings
        address, wait = settings.address, settings.open_timeout
        session = self._session()
        url, headers = session.where()
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
            raise ConnectionLost(f"cannot connect to {address.given}: {address.explain(exc)}") from exc
        try:
            async with asyncio.timeout(wait):
                welcome: Welcome = await session.opened
        except TimeoutError:
            error = ConnectionLost(f"{address.given} did not answer our hello within {wait:g} seconds")
            session.abort(error)
            await asyncio.wait([session.ended], timeout=wait)  # it may be for the next link as well
            raise error from None
        except ConnectionLost as exc:
            raise type(exc)(f"{exc}{'' if isinstance(exc, Refused) else address.doubt}") from exc
        except asyncio.CancelledError:
            session.abort(ConnectionLost("nobody wants it any more"))
            raise
        self.session_name = handshake.session_of(welcome)
        return session

    async def _opened(self) -> Session:
        """Open a session, make it like the one before, and let all use it."""
        session = await self._dial()
        try:
            self._check_wanted()
            if not session.is_known:
                if session.lasts:
                    self._gone += self._owner.lost()
                await self._owner.restore(session)
                session.settled()
            self._check_wanted()
        except BaseException:
            if not session.ended.done():
                session.abort(ConnectionLost("it could not be made like the one before"))
            self._owner.lost()
            raise
        self.session = session
        self._needed.clear()
        self._changed.set()
        if session.ended.done():
            self.ended(session)
        return session

    async def _keep(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        while True:
            opened_at = loop.time()
            error = await asyncio.shield(session.ended)
            if loop.time() - opened_at > self.settings.longest_wait:
                self._wait = self.settings.first_wait
            gone, self._gone = self._gone, []
            is_rest = isinstance(error, lasting.Resting)
            if not is_rest and (not self.settings.reconnect or isinstance(error, Refused)):
                self._finish(error)
                return
            if is_rest:
                await self._rest(error)
            else:
                self._tell(Status(State.RECONNECTING, "; ".join([str(error), *gone])), logging.WARNING)
            try:
                session = await self._reopen(is_urgent=is_rest)
            except ConnectionLost as lost:
                self._finish(lost)
                return
            gone, self._gone = [*gone, *self._gone], []
            level = logging.INFO if is_rest else logging.WARNING
            self._tell(Status(State.RECONNECTED, "; ".join([self.settings.address.given, *gone])), level)

    async def _rest(self, why: ConnectionLost) -> None:
        """Wait until a link is needed."""
        if self._resumed.is_set() and not self._needed.is_set():
            self._tell(Status(State.RESTING, str(why)), logging.INFO)
        await self._needed.wait()
        self._check_wanted()

    async def _reopen(self, *, is_urgent: bool, keep_trying: bool = False) -> Session:
        """Try until it works, after ever longer waits, none of them foreseeable: many clients lose one hub at once."""
        chance = SystemRandom()
        while True:
            await asyncio.sleep(0 if is_urgent else chance.uniform(0, self._wait))
            is_urgent = False
            await self._resumed.wait()
            self._check_wanted()
            self._wait = min(2 * self._wait, self.settings.longest_wait)
            try:
                return await self._opened()
            except Refused:
                raise
            except ConnectionLost as exc:
                if not (self.settings.reconnect or keep_trying) and self._resumed.is_set():
                    raise
                _log.info("still no connection: %s", exc)

    def _check_wanted(self) -> None:
        # To be cancelled is not enough: `wait_for` may lose that when what it waits for fails in the same moment.
        if self._error is not None:
            raise asyncio.CancelledError

    def ended(self, session: Session) -> None:
        """Use a session no longer that is over; who waits for the next one must find nothing of it."""
        if self.session is session:
            self.session = None
            self._changed.clear()
            if not session.lasts:
                self._gone = self._owner.lost()

    def _finish(self, error: ConnectionLost) -> None:
        self.session = None
        if self._lasting is not None:
            self._lasting.finish(error)
        if self._error is None:
            self._error = error
            self._owner.finished(error)
            self._tell(Status(State.CLOSED, str(error)), logging.INFO)
        self._changed.set()

    def _tell(self, status: Status, level: int) -> None:
        _log.log(level, "%s", status)
        self.states.tell(status)
