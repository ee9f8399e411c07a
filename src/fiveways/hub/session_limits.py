"""Limits of the number of sessions, for each owner and in total."""

from collections.abc import Callable, Mapping
from typing import Final

from fiveways.hub.counters import Counters
from fiveways.hub.session import Session, Stage
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB_OWNER, Pool, owner_of

TOO_MANY_SESSIONS: Final = "session refused: the hub has too many sessions"


class SessionLimits:
    """Counts open sessions by owner.

    A connected session uses one slot of `max_sessions`. A resumable session may outlive its connections: it uses one
    slot of `max_resumable` from its beginning to its end, and one of `max_sessions` only while it is connected.
    """

    def __init__(self, settings: HubSettings, sessions: Mapping[str, Session], counters: Counters) -> None:
        self._sessions = sessions
        self._counters = counters
        self._connected = Pool(settings.max_sessions, settings.shares)
        self._resumable = Pool(settings.max_resumable, settings.shares)
        self.on_full: Callable[[Session, str], None] = _ignore
        """Called with the reason if there is no slot for a session or for its connection."""

    def configure(self, settings: HubSettings) -> None:
        """Set the limits; sessions above a lowered limit stay."""
        self._connected.configure(settings.max_sessions, settings.shares)
        self._resumable.configure(settings.max_resumable, settings.shares)

    def stats(self) -> dict[str, object]:
        """Return the numbers of used slots."""
        return {"connected_sessions": self._connected.used, "resumable_sessions": self._resumable.used}

    def take_slot(self, session: Session, identity: str, *, always: bool = False) -> str:
        """Give a session a slot as this identity, in place of its current one; return an error if there is none.

        With `always`, the limit is ignored.
        """
        is_trusted = session.credentials.is_trusted
        owner = HUB_OWNER if is_trusted else owner_of(identity, session.remote)
        pool = self._resumable if session.traits.is_durable else self._connected
        old_owner = session.session_slot_owner
        if old_owner is not None:
            pool.release(old_owner)
        error = "" if always or is_trusted else self._count_refusal(session, pool.excess(owner))
        if not error:
            old_owner = session.session_slot_owner = owner
        if old_owner is not None:
            pool.acquire(old_owner)
        return f"{TOO_MANY_SESSIONS}: {error}" if error else ""

    def take_connection_slot(self, peer: str) -> str:
        """Give an open resumable session a connection slot; return an error if there is none."""
        session = self._sessions.get(peer)
        if session is None or session.stage is Stage.CLOSED or session.connection_slot_owner is not None:
            return ""
        owner = session.owner
        if error := self._count_refusal(session, self._connected.excess(owner)):
            return f"{TOO_MANY_SESSIONS}: {error}"
        self._connected.acquire(owner)
        session.connection_slot_owner = owner
        return ""

    def _count_refusal(self, session: Session, error: str) -> str:
        if error:
            self._counters.refused_sessions += 1
            self.on_full(session, error)
        return error

    def release_connection_slot(self, peer: str) -> None:
        """Release the connection slot of a session, if it has one."""
        if (session := self._sessions.get(peer)) is not None:
            self._release_connection(session)

    def leave(self, session: Session) -> None:
        """Release all slots of a session."""
        self._release_connection(session)
        if session.session_slot_owner is not None:
            (self._resumable if session.traits.is_durable else self._connected).release(session.session_slot_owner)
            session.session_slot_owner = None

    def _release_connection(self, session: Session) -> None:
        if session.connection_slot_owner is not None:
            self._connected.release(session.connection_slot_owner)
            session.connection_slot_owner = None


def _ignore(_session: Session, _why: str) -> None:
    """Do nothing."""
