"""Places for sessions: how many there may be at once, of each owner and of all."""

from collections.abc import Callable, Mapping
from typing import Final

from fiveways.hub.counters import Counters
from fiveways.hub.session import Session, Stage
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB, Pool, owner_of

FULL: Final = "you are not let in: the hub has too many sessions"


class Places:
    """Counts open sessions by owner.

    A connected session takes one of `max_sessions`. A resumable session may outlive its connections: it takes one of
    `max_resumable` from its beginning to its end, and one of `max_sessions` only while it has a connection of its own.
    """

    def __init__(self, settings: HubSettings, sessions: Mapping[str, Session], counters: Counters) -> None:
        self._sessions = sessions
        self._counters = counters
        self._connected = Pool(settings.max_sessions, settings.shares)
        self._resumable = Pool(settings.max_resumable, settings.shares)
        self.full: Callable[[Session, str], None] = _ignore
        """Called with the reason if there is no place for a session, or for its connection."""

    def configure(self, settings: HubSettings) -> None:
        """Set the limits; sessions above a lowered limit stay."""
        self._connected.configure(settings.max_sessions, settings.shares)
        self._resumable.configure(settings.max_resumable, settings.shares)

    def stats(self) -> dict[str, object]:
        """Return how many places are taken."""
        return {"connected_sessions": self._connected.used, "resumable_sessions": self._resumable.used}

    def take(self, session: Session, identity: str, *, always: bool = False) -> str:
        """Give a session a place as this identity, instead of any that it has; return why not, if there is none.

        With `always`, it gets one even if there is none left.
        """
        is_trusted = session.credentials.is_trusted
        owner = HUB if is_trusted else owner_of(identity, session.remote)
        pool = self._resumable if session.traits.reliable else self._connected
        held = session.place
        if held is not None:
            pool.release(held)
        why = "" if always or is_trusted else self._noted(session, pool.excess(owner))
        if not why:
            held = session.place = owner
        if held is not None:
            pool.acquire(held)
        return f"{FULL}: {why}" if why else ""

    def connect(self, peer: str) -> str:
        """Give an open, resumable session a place for its connection; return why not, if there is none."""
        session = self._sessions.get(peer)
        if session is None or session.stage is Stage.OVER or session.connection is not None:
            return ""
        owner = session.owner
        if why := self._noted(session, self._connected.excess(owner)):
            return f"{FULL}: {why}"
        self._connected.acquire(owner)
        session.connection = owner
        return ""

    def _noted(self, session: Session, why: str) -> str:
        if why:
            self._counters.refused_sessions += 1
            self.full(session, why)
        return why

    def disconnect(self, peer: str) -> None:
        """Release the place of a session's connection, if it has one."""
        if (session := self._sessions.get(peer)) is not None:
            self._release_connection(session)

    def leave(self, session: Session) -> None:
        """Release all places of a session."""
        self._release_connection(session)
        if session.place is not None:
            (self._resumable if session.traits.reliable else self._connected).release(session.place)
            session.place = None

    def _release_connection(self, session: Session) -> None:
        if session.connection is not None:
            self._connected.release(session.connection)
            session.connection = None


def _ignore(_session: Session, _why: str) -> None:
    """Do nothing."""
