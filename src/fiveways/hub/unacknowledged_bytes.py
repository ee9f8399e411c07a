"""What resumable sessions make the hub hold until their peers react: a bound over all of them, with shares."""

from collections.abc import Mapping
from typing import Final

from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB_OWNER, Owner, Pool

_MIN_HEADROOM: Final = 1 << 20
"""Bytes that an owner must have left before its requests are run, for the answer; of a small bound, an eighth."""


class SessionBytes:
    """The bytes that one session has of the bound, counted for the owner that it had when it had none."""

    __slots__ = ("_owner", "_session", "gauge", "held")

    def __init__(self, gauge: "UnacknowledgedBytes", session: Session) -> None:
        self.gauge = gauge
        self._session = session
        self._owner = HUB_OWNER
        self.held = 0

    def acquire(self, amount: int, *, always: bool = False) -> bool:
        """Take so much more, if there is room or it must be; say whether it was taken."""
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
        """Whether the owner of the session may use more."""
        return not self.gauge.pool.excess(self._owner if self.held else self._session.owner, self.gauge.min_headroom)

    def release(self, amount: int) -> None:
        """Give so much back; what a session that has left still had was given back then."""
        amount = min(amount, self.held)
        self.gauge.release(self._owner, amount)
        self.held -= amount


class UnacknowledgedBytes:
    """All leases, and whether an owner may be at its share."""

    def __init__(self, settings: HubSettings, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self.pool = Pool(settings.max_unacknowledged_bytes, settings.shares)
        self.min_headroom = min(_MIN_HEADROOM, self.pool.safe_amount // 8)
        self.is_tight = False
        """Some owner may have no room, so that each is asked before its peers' requests are run."""
        self._by_peer: dict[str, SessionBytes] = {}

    def configure(self, settings: HubSettings) -> None:
        """Let this bound hold from now on."""
        self.pool.configure(settings.max_unacknowledged_bytes, settings.shares)
        self.min_headroom = min(_MIN_HEADROOM, self.pool.safe_amount // 8)
        self._update_is_tight()

    def acquire(self, owner: Owner, amount: int) -> None:
        """Count an amount, whether or not there is room for it."""
        self.pool.acquire(owner, amount)
        self._update_is_tight()

    def release(self, owner: Owner, amount: int) -> None:
        """Give it back."""
        self.pool.release(owner, amount)
        self._update_is_tight()

    def _update_is_tight(self) -> None:
        self.is_tight = self.pool.used + self.min_headroom > self.pool.safe_amount

    def track(self, peer: str) -> SessionBytes:
        """Return a lease for a new session."""
        lease = self._by_peer[peer] = SessionBytes(self, self._sessions[peer])
        return lease

    def leave(self, session: Session) -> None:
        """Take back what a session has, which has left."""
        lease = self._by_peer.pop(session.peer, None)
        if lease is not None:
            lease.release(lease.held)
