"""Places for sessions: how many there may be at once, of each owner and of all."""

from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, Pool


class Places:
    """Counts open sessions by owner.

    A connected session takes one of `max_sessions`. A resumable session may outlive its connections: it takes one of
    `max_resumable` from its beginning to its end, and one of `max_sessions` only while it has a connection of its own.
    """

    def __init__(self, settings: HubSettings) -> None:
        self._connected = Pool(settings.max_sessions, settings.shares)
        self._resumable = Pool(settings.max_resumable, settings.shares)

    def configure(self, settings: HubSettings) -> None:
        """Set the limits; sessions above a lowered limit stay."""
        self._connected.configure(settings.max_sessions, settings.shares)
        self._resumable.configure(settings.max_resumable, settings.shares)

    def stats(self) -> dict[str, object]:
        """Return how many places are taken."""
        return {"connected_sessions": self._connected.used, "resumable_sessions": self._resumable.used}

    def take(self, session: Session, owner: Owner, *, always: bool = False) -> str:
        """Give a session a place of this owner instead of any that it has; return why there is none, if so.

        With `always`, it gets one even if there is none left.
        """
        pool = self._resumable if session.traits.reliable else self._connected
        held = session.place
        if held is not None:
            pool.release(held)
        why = "" if always else pool.excess(owner)
        if not why:
            held = session.place = owner
        if held is not None:
            pool.acquire(held)
        return why

    def connect(self, session: Session) -> str:
        """Give a resumable session a place for its connection; return why there is none, if so."""
        if session.connection is not None:
            return ""
        owner = session.owner
        why = self._connected.excess(owner)
        if not why:
            self._connected.acquire(owner)
            session.connection = owner
        return why

    def disconnect(self, session: Session) -> None:
        """Take back the place of a connection, if there is one."""
        if session.connection is not None:
            self._connected.release(session.connection)
            session.connection = None

    def leave(self, session: Session) -> None:
        """Take back all places of a session."""
        self.disconnect(session)
        if session.place is not None:
            (self._resumable if session.traits.reliable else self._connected).release(session.place)
            session.place = None
