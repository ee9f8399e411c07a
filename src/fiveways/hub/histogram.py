"""Histogram of durations with fixed buckets."""

from bisect import bisect_left, bisect_right
from math import inf
from operator import add
from typing import Final

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds in seconds, inclusive; one more bucket holds longer durations."""
_SORT_THRESHOLD: Final = 16
"""From this number of durations on, it is faster to sort them than to look up each bucket."""


class Histogram:
    """Counts of durations in each bucket."""

    __slots__ = ("counts", "longest", "seconds", "shortest")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        """Sum of all durations."""
        self.shortest, self.longest = inf, 0.0
        """Bounds of quantiles: in a wide bucket, a single call of 3 ms is not reported as 5 ms."""

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, waits: list[float]) -> None:
        """Count durations; this sorts the list."""
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
            upper = bisect_right(waits, bound, below)
            counts[number] += upper - below
            below = upper
            if below == total:
                return
        counts[-1] += total - below

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram."""
        self.counts = list(map(add, self.counts, other.counts))
        self.seconds += other.seconds
        self.shortest = min(self.shortest, other.shortest)
        self.longest = max(self.longest, other.longest)

    def quantile(self, part: float) -> float | None:
        """Return an upper estimate of a quantile; None without durations.

        It is never below the shortest or above the longest duration.
        """
        rank, below, lower = part * len(self), 0, 0.0
        for bound, count in zip((*BOUNDS, inf), self.counts, strict=True):
            if count and below + count >= rank:
                low, high = max(lower, self.shortest), min(bound, self.longest)
                return min(low + (high - low) * (rank - below) / count, high)
            below, lower = below + count, bound
        return None
