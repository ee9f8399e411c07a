"""Percentiles of millions of times by group, in little memory.

Times are counted in bins a quarter of a percent wide. What is returned is the longest time seen in the bin, so that
few times give exact percentiles, and many give them within the width.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_BINS_PER_OCTAVE: Final = 256
_BINS: Final = 63 * _BINS_PER_OCTAVE
QUANTILES: Final = (0.5, 0.95, 0.99)
_KNOWN_QUANTILES: Final = (0.0, *QUANTILES, 1.0)
_SLICES_PER_INTERVAL: Final = (10, 18, 4, 2)
"""Into how many parts the calls between two known percentiles are cut."""
_ROWS_PER_STEP: Final = 1 << 16


class LatencyHistogram:
    """Times in ns of `groups` groups."""

    def __init__(self, groups: int) -> None:
        self._counts = np.zeros((groups, _BINS))
        self._bin_maxima = np.full(_BINS, np.iinfo(np.int64).min)
        self._is_exact = True

    def add(self, groups: Int64Array, times: Int64Array, weights: Float64Array | None = None) -> None:
        """Count times, each in its group; a negative group counts nowhere. Weights make it an estimate."""
        inside = groups >= 0
        groups, times = groups[inside], times[inside]
        bins = np.minimum(np.log2(np.maximum(times, 1)) * _BINS_PER_OCTAVE, _BINS - 1).astype(np.int64)
        np.maximum.at(self._bin_maxima, bins, times)
        np.add.at(self._counts.reshape(-1), groups * _BINS + bins, 1.0 if weights is None else weights[inside])
        self._is_exact = self._is_exact and weights is None

    def totals(self) -> Float64Array:
        """Return how many times each group has."""
        sums: Float64Array = self._counts.sum(axis=1)
        return sums

    def percentiles(self, group: int | None = None) -> list[int | None]:
        """Return p50, p95, p99 and the longest, by nearest rank, of one group or of all; None if there is no time."""
        counts = self._counts.sum(axis=0) if group is None else self._counts[group]
        sums = np.cumsum(counts)
        total = float(sums[-1])
        if total <= 0:
            return [None] * (len(QUANTILES) + 1)
        ranks = [quantile * total for quantile in (*QUANTILES, 1.0)]
        if self._is_exact:
            ranks = [float(math.ceil(rank - 1e-6)) for rank in ranks]
        # A hair less: weights that are fractions do not add up to what they should.
        places = np.searchsorted(sums, np.array(ranks) * (1 - 1e-9))
        return [int(self._bin_maxima[place]) for place in places]


def add_estimates(spread: LatencyHistogram, groups: Int64Array, calls: Int64Array, known: list[Int64Array]) -> None:
    """Count calls of which only p50, p95, p99 and the longest are known: an estimate.

    Between two of them times are taken to rise evenly on a logarithmic scale, and below p50 to begin at half of it.
    """
    for begin in range(0, len(groups), _ROWS_PER_STEP):
        rows = slice(begin, begin + _ROWS_PER_STEP)
        logs = [np.log2(np.maximum(each[rows], 1)) for each in known]
        logs = [logs[0] - 1, *logs]
        times, weights = [], []
        for place, slices in enumerate(_SLICES_PER_INTERVAL):
            low, high = logs[place], logs[place + 1]
            share = (_KNOWN_QUANTILES[place + 1] - _KNOWN_QUANTILES[place]) / slices
            times += [np.exp2(low + (high - low) * index / slices) for index in range(1, slices)]
            times.append(known[place][rows].astype(np.float64))
            weights += [calls[rows] * share] * slices
        spread.add(
            np.tile(groups[rows], sum(_SLICES_PER_INTERVAL)),
            np.rint(np.concatenate(times)).astype(np.int64),
            np.concatenate(weights),
        )
