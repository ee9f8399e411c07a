"""What is remembered of requests that are over, so that a late repeat is not run again (NQ-07, NQ-a08)."""

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
    """What is left of a finished request."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    """The peer never took its answer."""
    EVENT = "event"
    """It was an event, which we answer ourselves, and always alike."""


class TombstoneCache(Generic[T]):
    """The keys of finished requests, for as long as a copy of one may still be under way."""

    def __init__(self, window: float, room: int) -> None:
        self._window = window
        self._max_size = room
        self.entries: dict[str, T] = {}
        """What is left of each; some may be too old."""
        self._by_expiry: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, key: str, tomb: T, now: float) -> None:
        """Remember a key; the oldest makes room, so that the memory has its bound."""
        ages, tombs = self._by_expiry, self.entries
        if key not in tombs:
            ages.append((now + self._window, key))
        tombs[key] = tomb
        if len(ages) > self._max_size:
            self._remove_oldest()

    def restore(self, key: str, tomb: T, until: float) -> None:
        """Remember a key until then."""
        if key not in self.entries:
            self._by_expiry.append((until, key))
        self.entries[key] = tomb

    def get(self, key: str, now: float) -> T | None:
        """Return what became of the request, None if nothing is known of it."""
        if self._by_expiry and self._by_expiry[0][0] <= now:
            self.expire(now)
        return self.entries.get(key)

    def expire(self, now: float) -> None:
        """Forget what is old enough."""
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._remove_oldest()

    def items(self) -> list[tuple[str, T, float]]:
        """Return them all, the oldest first, each with its end."""
        return [(key, self.entries[key], until) for until, key in self._by_expiry]

    def _remove_oldest(self) -> None:
        _, key = self._by_expiry.popleft()
        del self.entries[key]


_MAX_REFUSED: Final = 1024
MAX_REASON_LENGTH: Final = 512


class FinishedRequests:
    """What is left of the peer's requests that are over: enough to tell a repeat from a new one."""

    def __init__(self, common: SessionState) -> None:
        self._shared = common
        self.tombstones: TombstoneCache[Tombstone] = TombstoneCache(
            common.options.duplicate_window, common.options.max_tombs
        )
        self.refused: TombstoneCache[bytes] = TombstoneCache(common.options.refusal_window, _MAX_REFUSED)

    def refuse(self, key: str, r: str, refused: RequestRefused, now: float) -> bytes:
        """Return the answer; for a while a repeat hears the same, since the peer may have heard it already (NQ-11)."""
        wait = self._shared.options.first_wait if refused.reason is Reason.OVERLOADED else None
        error = error_from_failure(hub.Failure("", refused.reason, refused.text[:MAX_REASON_LENGTH], None, wait))
        raw = write(ErrorAnswer(self._shared.mint(), (r,), None, error))
        self.refused.add(key, raw, now)
        return raw

    def may_contain(self, key: str) -> bool:
        """Say whether a request may have been here before: what is new, as nearly all are, is so for certain."""
        return key in self.tombstones.entries or key in self.refused.entries

    def answer_repeat(self, key: str, r: str, now: float) -> bytes | None:
        """Return what a repeat of a request hears; None if it is none."""
        tomb = self.tombstones.get(key, now)
        if tomb is None:
            return self.refused.get(key, now)
        if tomb is Tombstone.EVENT:
            return write(Answer(self._shared.mint(), (r,), JSON_NULL))
        text = f"it was answered before; the answer is {tomb.value} and no longer kept"
        return write(ErrorAnswer(self._shared.mint(), (r,), None, ErrorObject("local", True, "expired", text=text)))
