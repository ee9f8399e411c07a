"""Ownership of names: a name belongs to the identity that registered it first, while the hub knows that identity.

Anonymous peers own nothing. All applications in the hub's process together are one owner.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from fiveways.hub.session import Session
from fiveways.hub.timers import Timers, WakeTime

_MAX_RESERVED: Final = 4096
"""Reserved names of one identity without a registration; the oldest one is released first."""

LOCAL_OWNER: Final = ""
"""The owner of names that applications in this process registered."""


class NameKey(NamedTuple):
    """A registered name: a method, or a route with all names below it."""

    name: str
    is_route: bool


class Reservation(NamedTuple):
    """A reserved name."""

    identity: str
    share: str
    """The share mode of its owner's last registration."""


def name_owner(session: Session) -> str | None:
    """Return the identity as which a session owns names; None for anonymous peers."""
    return LOCAL_OWNER if session.credentials.is_trusted else session.identity or None


class NameReservations:
    """Names without a registration of their owner: reserved while it has a session, and for a grace period after."""

    def __init__(self, alarm: WakeTime, grace: float) -> None:
        self.grace_period = grace
        """Seconds after the last session of an identity for which its names are reserved."""
        self.reserved: dict[NameKey, Reservation] = {}
        self.on_release: Callable[[NameKey], None] = _ignore
        """Called with each name that its owner loses."""
        self._by_identity: dict[str, dict[NameKey, None]] = {}
        self._sessions: dict[str, int] = {}
        self._grace_timers = Timers(alarm)

    def arrive(self, session: Session) -> None:
        """Count a session of an identity; one that changes its identity counts for each."""
        identity = name_owner(session)
        if identity is not None and identity not in session.counted_identities:
            session.counted_identities += (identity,)
            self._sessions[identity] = self._sessions.get(identity, 0) + 1
            self._grace_timers.cancel(identity)

    def leave(self, session: Session, now: float) -> None:
        """Start the grace period of an identity after its last session."""
        for identity in session.counted_identities:
            self._sessions[identity] -= 1
            if not self._sessions[identity]:
                del self._sessions[identity]
                if identity in self._by_identity:
                    self._grace_timers.set(identity, now + self.grace_period)

    def reserve(self, key: NameKey, reservation: Reservation) -> None:
        """Reserve a name for its owner after the end of its last registration."""
        names = self._by_identity.setdefault(reservation.identity, {})
        names[key] = None
        self.reserved[key] = reservation
        if len(names) > _MAX_RESERVED:
            self._release(next(iter(names)))

    def take_back(self, key: NameKey) -> None:
        """End the reservation of a name that its owner registers again."""
        reservation = self.reserved.pop(key, None)
        if reservation is not None:
            names = self._by_identity[reservation.identity]
            del names[key]
            if not names:
                del self._by_identity[reservation.identity]

    def _release(self, key: NameKey) -> None:
        self.take_back(key)
        self.on_release(key)

    def release_forbidden(self, may_register: Callable[[str, NameKey], bool]) -> None:
        """Release the names that their owners may not register any more."""
        for key, reservation in list(self.reserved.items()):
            if not may_register(reservation.identity, key):
                self._release(key)

    def deadline(self) -> float | None:
        """Return the end of the next grace period."""
        return self._grace_timers.next_due()

    def expire(self, now: float) -> None:
        """Release the names of identities after their grace period."""
        for identity in self._grace_timers.pop_due(now):
            for key in list(self._by_identity.get(identity, ())):
                self._release(key)


def _ignore(_key: NameKey) -> None:
    """Do nothing."""
