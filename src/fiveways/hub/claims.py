"""Ownership of names: a name belongs to the identity that registered it first, while the hub knows that identity.

Anonymous peers own nothing. Applications in the hub's process are one owner, as if they were an identity.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from fiveways.hub.session import Session
from fiveways.hub.timers import Alarm, Timers

_MOST_RESERVED: Final = 4096
"""Names of one identity that are reserved while nobody of it registers them; the oldest is released for another."""

HUB: Final = ""
"""The claimant of applications in this process."""


class Key(NamedTuple):
    """A registered name: a method, or a route with all names below it."""

    name: str
    is_route: bool


class Claim(NamedTuple):
    """A reserved name."""

    identity: str
    share: str
    """As its owner registered it last."""


def claimant(session: Session) -> str | None:
    """Return as whom a session owns names; None for anonymous peers."""
    return HUB if session.credentials.is_trusted else session.identity or None


class Claims:
    """Names whose owner has no registration of them: reserved while it has a session, and for a grace period after."""

    def __init__(self, alarm: Alarm, grace: float) -> None:
        self.grace = grace
        """Seconds after the last session of an identity for which its names are reserved."""
        self.reserved: dict[Key, Claim] = {}
        self.released: Callable[[Key], None] = _ignore
        """Called with each name that its owner loses."""
        self._of: dict[str, dict[Key, None]] = {}
        self._sessions: dict[str, int] = {}
        self._away = Timers(alarm)

    def arrive(self, session: Session) -> None:
        """Count a session of an identity; one that changes its identity counts for each."""
        identity = claimant(session)
        if identity is not None and identity not in session.claimants:
            session.claimants += (identity,)
            self._sessions[identity] = self._sessions.get(identity, 0) + 1
            self._away.drop(identity)

    def leave(self, session: Session, now: float) -> None:
        """Begin the grace period of an identity with its last session."""
        for identity in session.claimants:
            self._sessions[identity] -= 1
            if not self._sessions[identity]:
                del self._sessions[identity]
                if identity in self._of:
                    self._away.set(identity, now + self.grace)

    def reserve(self, key: Key, claim: Claim) -> None:
        """Keep a name for its owner, whose last registration of it has ended."""
        mine = self._of.setdefault(claim.identity, {})
        mine[key] = None
        self.reserved[key] = claim
        if len(mine) > _MOST_RESERVED:
            self._release(next(iter(mine)))

    def resume(self, key: Key) -> None:
        """Know that the owner of a name registers it again."""
        claim = self.reserved.pop(key, None)
        if claim is not None:
            mine = self._of[claim.identity]
            del mine[key]
            if not mine:
                del self._of[claim.identity]

    def _release(self, key: Key) -> None:
        self.resume(key)
        self.released(key)

    def retain(self, may_register: Callable[[str, Key], bool]) -> None:
        """Release the names that their owners may not register any more."""
        for key, claim in list(self.reserved.items()):
            if not may_register(claim.identity, key):
                self._release(key)

    def deadline(self) -> float | None:
        """Return when the next grace period ends."""
        return self._away.first()

    def late(self, now: float) -> None:
        """Release the names of identities whose grace period has ended."""
        for identity in self._away.due(now):
            for key in list(self._of.get(identity, ())):
                self._release(key)


def _ignore(_key: Key) -> None:
    """Nobody wants to know."""
