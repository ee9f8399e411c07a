"""Deadlines of any length, by key."""

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

_MAX_DEAD_ENTRIES: Final = 64
"""Cancelled entries that the heap may hold before it is rebuilt."""


class WakeTime:
    """The time at which the hub must be woken; it may be too early but never too late. Reading it costs nothing."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = inf

    def set_latest(self, at: float) -> None:
        """Wake the hub at this time or earlier."""
        self.at = min(self.at, at)


class Timers:
    """A heap of deadlines. Cancelled entries are skipped, and removed before they outnumber the others."""

    __slots__ = ("_alarm", "_at", "_heap")

    def __init__(self, alarm: WakeTime) -> None:
        self._alarm = alarm
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: str, at: float) -> None:
        """Set the deadline of `key`, which must have no other one."""
        self._at[key] = at
        self._alarm.set_latest(at)
        heappush(self._heap, (at, key))

    def cancel(self, key: str) -> None:
        """Remove a key, if it is known."""
        if self._at.pop(key, None) is not None and len(self._heap) > 2 * len(self._at) + _MAX_DEAD_ENTRIES:
            self._heap = [(due_at, other_key) for other_key, due_at in self._at.items()]
            heapify(self._heap)

    def next_due(self) -> float | None:
        """Return the earliest deadline."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self._at.get(key) == at:
                return at
            heappop(heap)
        return None

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the keys after their deadlines."""
        due: list[str] = []
        while (at := self.next_due()) is not None and at <= now:
            key = heappop(self._heap)[1]
            del self._at[key]
            due.append(key)
        return due
