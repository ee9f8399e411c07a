"""Histogram of latencies by group, with constant memory.

Latencies are counted in bins a quarter of a percent wide. A percentile is the maximum latency in its bin, so it is
exact for few latencies and within the width of a bin for many.
"""

import math
from typing import Final

import numpy as np

from fiveways.pipeline.arrays import Float64Array, Int64Array

_BINS_PER_OCTAVE: Final = 256
_BINS: Final = 63 * _BINS_PER_OCTAVE
QUANTILES: Final = (0.5, 0.95, 0.99)
_KNOWN_QUANTILES: Final = (0.0, *QUANTILES, 1.0)
_SLICES_PER_INTERVAL: Final = (10, 18, 4, 2)
"""Number of slices between two known percentiles."""
_ROWS_PER_STEP: Final = 1 << 16


class LatencyHistogram:
    """Histograms of latencies in ns, one per group."""

    def __init__(self, groups: int) -> None:
        self._counts = np.zeros((groups, _BINS))
        self._bin_maxima = np.full(_BINS, np.iinfo(np.int64).min)
        self._is_exact = True

    def add(self, groups: Int64Array, times: Int64Array, weights: Float64Array | None = None) -> None:
        """Add latencies to their groups; negative groups are ignored. Weights make the percentiles estimates."""
        inside = groups >= 0
        groups, times = groups[inside], times[inside]
        bins = np.minimum(np.log2(np.maximum(times, 1)) * _BINS_PER_OCTAVE, _BINS - 1).astype(np.int64)
        np.maximum.at(self._bin_maxima, bins, times)
        np.add.at(self._counts.reshape(-1), groups * _BINS + bins, 1.0 if weights is None else weights[inside])
        self._is_exact = self._is_exact and weights is None

    def totals(self) -> Float64Array:
        """Return the number of latencies in each group."""
        sums: Float64Array = self._counts.sum(axis=1)
        return sums

    def percentiles(self, group: int | None = None) -> list[int | None]:
        """Return p50, p95, p99 and maximum by nearest rank, of one group or of all; None without latencies."""
        counts = self._counts.sum(axis=0) if group is None else self._counts[group]
        sums = np.cumsum(counts)
        total = float(sums[-1])
        if total <= 0:
            return [None] * (len(QUANTILES) + 1)
        ranks = [quantile * total for quantile in (*QUANTILES, 1.0)]
        if self._is_exact:
            ranks = [float(math.ceil(rank - 1e-6)) for rank in ranks]
        # Fractional weights may add up to slightly less than the total.
        indexes = np.searchsorted(sums, np.array(ranks) * (1 - 1e-9))
        return [int(self._bin_maxima[index]) for index in indexes]


def add_estimates(histogram: LatencyHistogram, groups: Int64Array, calls: Int64Array, known: list[Int64Array]) -> None:
    """Add an estimate for calls of which only p50, p95, p99 and maximum are known.

    Between two of these, latencies are assumed to be spaced evenly on a logarithmic scale; below p50, from half of it.
    """
    for begin in range(0, len(groups), _ROWS_PER_STEP):
        rows = slice(begin, begin + _ROWS_PER_STEP)
        logs = [np.log2(np.maximum(column[rows], 1)) for column in known]
        logs = [logs[0] - 1, *logs]
        times, weights = [], []
        for interval, slices in enumerate(_SLICES_PER_INTERVAL):
            low, high = logs[interval], logs[interval + 1]
            share = (_KNOWN_QUANTILES[interval + 1] - _KNOWN_QUANTILES[interval]) / slices
            times += [np.exp2(low + (high - low) * index / slices) for index in range(1, slices)]
            times.append(known[interval][rows].astype(np.float64))
            weights += [calls[rows] * share] * slices
        histogram.add(
            np.tile(groups[rows], sum(_SLICES_PER_INTERVAL)),
            np.rint(np.concatenate(times)).astype(np.int64),
            np.concatenate(weights),
        )
