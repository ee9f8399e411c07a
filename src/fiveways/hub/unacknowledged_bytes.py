"""Bytes that the hub holds for resumable sessions until their peers acknowledge them, with a limit and shares."""

from collections.abc import Mapping
from typing import Final

from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB_OWNER, Owner, Pool

_MIN_HEADROOM: Final = 1 << 20
"""Bytes that an owner must have left before its requests are run, for the response; an eighth of a small limit."""


class SessionBytes:
    """The bytes of one session, counted for its owner at the time when it began to hold any."""

    __slots__ = ("_owner", "_session", "gauge", "held")

    def __init__(self, gauge: "UnacknowledgedBytes", session: Session) -> None:
        self.gauge = gauge
        self._session = session
        self._owner = HUB_OWNER
        self.held = 0

    def acquire(self, amount: int, *, always: bool = False) -> bool:
        """Acquire bytes if there is room or `always` is set; return whether they were acquired."""
        if not self._session.is_present:
            return False
        if not self.held:
            self._owner = self._session.owner
        if not always and self.gauge.pool.excess(self._owner, amount):
            return False
        self.gauge.acquire(self._owner, amount)
        self.held += amount
        return True

    def has_room(self) -> bool:
        """Return whether the session's owner has room."""
        return not self.gauge.pool.excess(self._owner if self.held else self._session.owner, self.gauge.min_headroom)

    def release(self, amount: int) -> None:
        """Release bytes; those of a session that has left were already released."""
        amount = min(amount, self.held)
        self.gauge.release(self._owner, amount)
        self.held -= amount


class UnacknowledgedBytes:
    """The bytes of all sessions, and whether any owner may be at its share."""

    def __init__(self, settings: HubSettings, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self.pool = Pool(settings.max_unacknowledged_bytes, settings.shares)
        self.min_headroom = min(_MIN_HEADROOM, self.pool.safe_amount // 8)
        self.is_tight = False
        """An owner may have no room, so each request needs a check of its owner."""
        self._by_peer: dict[str, SessionBytes] = {}

    def configure(self, settings: HubSettings) -> None:
        """Apply a new limit."""
        self.pool.configure(settings.max_unacknowledged_bytes, settings.shares)
        self.min_headroom = min(_MIN_HEADROOM, self.pool.safe_amount // 8)
        self._update_is_tight()

    def acquire(self, owner: Owner, amount: int) -> None:
        """Count an amount, whether or not there is room."""
        self.pool.acquire(owner, amount)
        self._update_is_tight()

    def release(self, owner: Owner, amount: int) -> None:
        """Release an amount."""
        self.pool.release(owner, amount)
        self._update_is_tight()

    def _update_is_tight(self) -> None:
        self.is_tight = self.pool.used + self.min_headroom > self.pool.safe_amount

    def track(self, peer: str) -> SessionBytes:
        """Return the counter of a new session."""
        lease = self._by_peer[peer] = SessionBytes(self, self._sessions[peer])
        return lease

    def leave(self, session: Session) -> None:
        """Release all bytes of a session that has left."""
        lease = self._by_peer.pop(session.peer, None)
        if lease is not None:
            lease.release(lease.held)
