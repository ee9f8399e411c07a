"""What is remembered of requests that are over, so that a late repeat is not run again (NQ-07, NQ-a08)."""

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar

from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.nq.bridge import JSON_NULL, Refused, error_of
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.messages import Answer, ErrorAnswer
from fiveways.protocols.nq.writing import write

T = TypeVar("T")


class Tomb(Enum):
    """What is left of a finished request."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    """The peer never took its answer."""
    EVENT = "event"
    """It was an event, which we answer ourselves, and always alike."""


class Tombstones(Generic[T]):
    """The keys of finished requests, for as long as a copy of one may still be under way."""

    def __init__(self, window: float, room: int) -> None:
        self._window = window
        self._room = room
        self.tombs: dict[str, T] = {}
        """What is left of each; some may be too old."""
        self._ages: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self.tombs)

    def add(self, key: str, tomb: T, now: float) -> None:
        """Remember a key; the oldest makes room, so that the memory has its bound."""
        ages, tombs = self._ages, self.tombs
        if key not in tombs:
            ages.append((now + self._window, key))
        tombs[key] = tomb
        if len(ages) > self._room:
            self._remove_oldest()

    def restore(self, key: str, tomb: T, until: float) -> None:
        """Remember a key until then."""
        if key not in self.tombs:
            self._ages.append((until, key))
        self.tombs[key] = tomb

    def get(self, key: str, now: float) -> T | None:
        """Return what became of the request, None if nothing is known of it."""
        if self._ages and self._ages[0][0] <= now:
            self.expire(now)
        return self.tombs.get(key)

    def expire(self, now: float) -> None:
        """Forget what is old enough."""
        while self._ages and self._ages[0][0] <= now:
            self._remove_oldest()

    def all(self) -> list[tuple[str, T, float]]:
        """Return them all, the oldest first, each with its end."""
        return [(key, self.tombs[key], until) for until, key in self._ages]

    def _remove_oldest(self) -> None:
        _, key = self._ages.popleft()
        del self.tombs[key]


_MOST_REFUSED: Final = 1024
LONGEST_REASON: Final = 512


class Finished:
    """What is left of the peer's requests that are over: enough to tell a repeat from a new one."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self.tombs: Tombstones[Tomb] = Tombstones(common.options.duplicate_window, common.options.max_tombs)
        self.refused: Tombstones[bytes] = Tombstones(common.options.refusal_window, _MOST_REFUSED)

    def refuse(self, key: str, r: str, refused: Refused, now: float) -> bytes:
        """Return the answer; for a while a repeat hears the same, since the peer may have heard it already (NQ-11)."""
        wait = self._common.options.first_wait if refused.reason is Reason.BUSY else None
        error = error_of(hub.Failure("", refused.reason, refused.text[:LONGEST_REASON], None, wait))
        raw = write(ErrorAnswer(self._common.mint(), (r,), None, error))
        self.refused.add(key, raw, now)
        return raw

    def may_know(self, key: str) -> bool:
        """Say whether a request may have been here before: what is new, as nearly all are, is so for certain."""
        return key in self.tombs.tombs or key in self.refused.tombs

    def answer(self, key: str, r: str, now: float) -> bytes | None:
        """Return what a repeat of a request hears; None if it is none."""
        tomb = self.tombs.get(key, now)
        if tomb is None:
            return self.refused.get(key, now)
        if tomb is Tomb.EVENT:
            return write(Answer(self._common.mint(), (r,), JSON_NULL))
        text = f"it was answered before; the answer is {tomb.value} and no longer kept"
        return write(ErrorAnswer(self._common.mint(), (r,), None, Err("local", True, "expired", text=text)))
