"""Deduplication of the peer's requests: a late retransmission of a finished one is not run again (NQ-07, NQ-a08)."""

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.protocols.nq.bridge import JSON_NULL, RequestRefused, error_from_failure
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.messages import Answer, ErrorAnswer
from fiveways.protocols.nq.serializer import write
from fiveways.protocols.nq.session_state import SessionState

T = TypeVar("T")


class Tombstone(Enum):
    """The outcome of a finished request."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    """The peer never acknowledged the answer."""
    EVENT = "event"
    """It was an event: the answer does not involve the hub and is always the same."""


class TombstoneCache(Generic[T]):
    """The keys of finished requests during the deduplication window."""

    def __init__(self, window: float, max_size: int) -> None:
        self._window = window
        self._max_size = max_size
        self.entries: dict[str, T] = {}
        """The value for each key; some entries may have expired."""
        self._by_expiry: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, key: str, value: T, now: float) -> None:
        """Store a key; at the limit the oldest one is removed."""
        by_expiry, entries = self._by_expiry, self.entries
        if key not in entries:
            by_expiry.append((now + self._window, key))
        entries[key] = value
        if len(by_expiry) > self._max_size:
            self._remove_oldest()

    def restore(self, key: str, value: T, expires_at: float) -> None:
        """Store a key until the given time."""
        if key not in self.entries:
            self._by_expiry.append((expires_at, key))
        self.entries[key] = value

    def get(self, key: str, now: float) -> T | None:
        """Return the value of a key, None if it is unknown or expired."""
        if self._by_expiry and self._by_expiry[0][0] <= now:
            self.expire(now)
        return self.entries.get(key)

    def expire(self, now: float) -> None:
        """Remove expired keys."""
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._remove_oldest()

    def items(self) -> list[tuple[str, T, float]]:
        """Return all keys with their values and expiry times, the oldest first."""
        return [(key, self.entries[key], until) for until, key in self._by_expiry]

    def _remove_oldest(self) -> None:
        _, key = self._by_expiry.popleft()
        del self.entries[key]


_MAX_REFUSED: Final = 1024
MAX_REASON_LENGTH: Final = 512


class FinishedRequests:
    """Tombstones and refusals of the peer's requests, to recognise retransmissions."""

    def __init__(self, shared: SessionState) -> None:
        self._shared = shared
        self.tombstones: TombstoneCache[Tombstone] = TombstoneCache(
            shared.options.duplicate_window, shared.options.max_tombs
        )
        self.refused: TombstoneCache[bytes] = TombstoneCache(shared.options.refusal_window, _MAX_REFUSED)

    def refuse(self, key: str, r: str, refused: RequestRefused, now: float) -> bytes:
        """Return the refusal of a request and store it.

        A retransmission gets the same refusal, because the peer may have received the first one (NQ-11).
        """
        wait = self._shared.options.first_wait if refused.reason is Reason.OVERLOADED else None
        error = error_from_failure(hub.Failure("", refused.reason, refused.text[:MAX_REASON_LENGTH], None, wait))
        raw = write(ErrorAnswer(self._shared.mint(), (r,), None, error))
        self.refused.add(key, raw, now)
        return raw

    def may_contain(self, key: str) -> bool:
        """Return whether a request may be a retransmission; false is certain."""
        return key in self.tombstones.entries or key in self.refused.entries

    def answer_repeat(self, key: str, r: str, now: float) -> bytes | None:
        """Return the answer to a retransmission; None if the request is new."""
        tombstone = self.tombstones.get(key, now)
        if tombstone is None:
            return self.refused.get(key, now)
        if tombstone is Tombstone.EVENT:
            return write(Answer(self._shared.mint(), (r,), JSON_NULL))
        text = f"it was answered before; the answer is {tombstone.value} and no longer stored"
        return write(ErrorAnswer(self._shared.mint(), (r,), None, ErrorObject.local("expired", text)))
