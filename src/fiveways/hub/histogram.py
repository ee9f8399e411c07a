"""How long something took, many times: counts between bounds, which is all that is kept of it."""

from bisect import bisect_left, bisect_right
from math import inf
from operator import add
from typing import Final

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""In seconds. A bucket holds what took no longer than its bound; there is one more for all the rest."""
_SORT_THRESHOLD: Final = 16
"""Of fewer, each is looked up by itself; of more, it is quicker to sort them."""


class Histogram:
    """Counts of what took no longer than each bound, and longer than the one before."""

    __slots__ = ("counts", "longest", "seconds", "shortest")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        """All of them together."""
        self.shortest, self.longest = inf, 0.0
        """A bucket is wide: so one call of 3 ms is not said to have taken 5."""

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, waits: list[float]) -> None:
        """Count these; they are in another order afterwards."""
        if not waits:
            return
        counts, total = self.counts, len(waits)
        self.seconds += sum(waits)
        self.shortest = min(self.shortest, *waits)
        self.longest = max(self.longest, *waits)
        if total < _SORT_THRESHOLD:
            for wait in waits:
                counts[bisect_left(BOUNDS, wait)] += 1
            return
        waits.sort()
        below = 0
        for number, bound in enumerate(BOUNDS):
            there = bisect_right(waits, bound, below)
            counts[number] += there - below
            below = there
            if below == total:
                return
        counts[-1] += total - below

    def merge(self, other: "Histogram") -> None:
        """Count what another one has counted, too."""
        self.counts = list(map(add, self.counts, other.counts))
        self.seconds += other.seconds
        self.shortest = min(self.shortest, other.shortest)
        self.longest = max(self.longest, other.longest)

    def quantile(self, part: float) -> float | None:
        """Return how long that part of them took at most, as far as the buckets tell; None if there are none.

        It is never less than the shortest, nor more than the longest.
        """
        wanted, below, lower = part * len(self), 0, 0.0
        for bound, count in zip((*BOUNDS, inf), self.counts, strict=True):
            if count and below + count >= wanted:
                least, most = max(lower, self.shortest), min(bound, self.longest)
                return min(least + (most - least) * (wanted - below) / count, most)
            below, lower = below + count, bound
        return None
