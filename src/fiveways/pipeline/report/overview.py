"""Numbers that several sections share: the time range, and the latency percentiles.

Percentiles of groups cannot be merged, so they are computed from the table `calls`. If it is missing or too large, they
are estimated from the percentiles of each method and minute.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import Int64Array
from fiveways.pipeline.report.aggregation import aggregate, bucket_indexes, bucket_sums, column_sum, top_rows
from fiveways.pipeline.report.axes import TimeBuckets, time_buckets
from fiveways.pipeline.report.latency_histogram import LatencyHistogram, add_estimates
from fiveways.pipeline.report.table_reader import ReportTables
from fiveways.pipeline.report.units import MINUTE

MAX_CALLS: Final = 50_000_000
"""Maximum calls that are read one by one."""
MAX_CANDIDATES: Final = 120
"""Number of methods for which percentiles are computed; the slowest methods are among them."""
_OUTLIER_SHARE: Final = 0.001
"""Share of the frames at each end of the time range that the charts may leave out."""
_OUTLIER_STRETCH: Final = 3
"""Outliers are left out if the charts would be this many times longer with them."""
_PERCENTILE_COLUMNS: Final = ("p50_ns", "p95_ns", "p99_ns", "max_ns")
PercentileTimes = list[int | None]
"""p50, p95, p99 and maximum in ns."""


@dataclass(slots=True)
class Overview:
    """Shared numbers of the headline and the charts."""

    buckets: TimeBuckets | None
    frames_outside: int = 0
    """Frames outside of the time range of the charts."""
    all_calls: int = 0
    all_errors: int = 0
    calls: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    bucket_times: list[PercentileTimes] = field(default_factory=list)
    all_times: PercentileTimes = field(default_factory=lambda: [None] * 4)
    method_times: dict[str, PercentileTimes] = field(default_factory=dict)
    is_exact: bool = True


def build_overview(tables: ReportTables, max_calls: int = MAX_CALLS) -> Overview:
    """Compute the shared numbers from the tables."""
    buckets, outside = _chart_buckets(tables)
    slo = tables["slo"]
    overview = Overview(buckets, outside, column_sum(slo, "calls"), column_sum(slo, "errors"))
    if buckets is None:
        return overview
    indexes = bucket_indexes(slo, buckets)
    overview.calls = bucket_sums(slo, "calls", indexes, buckets.bucket_count)
    overview.errors = bucket_sums(slo, "errors", indexes, buckets.bucket_count)
    names = _slowest_candidates(slo)
    # The additional group is for calls outside of the charts.
    by_time, by_method = LatencyHistogram(buckets.bucket_count + 1), LatencyHistogram(max(1, len(names)))
    overview.is_exact = _count_calls(tables, max_calls, buckets, names, (by_time, by_method))
    if not overview.is_exact:
        _estimate_from_slo(slo, np.where(indexes >= 0, indexes, buckets.bucket_count), names, (by_time, by_method))
    overview.bucket_times = [by_time.percentiles(index) for index in range(buckets.bucket_count)]
    overview.all_times = by_time.percentiles()
    overview.method_times = {name: by_method.percentiles(index) for index, name in enumerate(names)}
    return overview


def _chart_buckets(tables: ReportTables) -> tuple[TimeBuckets | None, int]:
    """Return the time buckets of the charts, and the number of frames outside of them."""
    ends = []
    for name in ("traffic", "slo", "capacity"):
        seconds = tables[name].column("minute").cast(pa.int64())
        ends += [end for end in pc.min_max(seconds).as_py().values() if end is not None]
    if not ends:
        return None, 0
    earliest, latest = min(ends), max(ends)
    low, high, outside = _central_range(tables["traffic"])
    if outside and latest - earliest > _OUTLIER_STRETCH * (high - low + MINUTE):
        return time_buckets(low, high), outside
    return time_buckets(earliest, latest), 0


def _central_range(traffic: pa.Table) -> tuple[int, int, int]:
    """Return the range of minutes with nearly all frames, and the number of frames outside of it.

    A few frames with a wrong clock would otherwise compress the charts to a line at each end.
    """
    minutes = aggregate(traffic.filter(pc.is_valid(traffic.column("minute"))), ["minute"], frames="sum").sort_by(
        "minute"
    )
    seconds = minutes.column("minute").cast(pa.int64()).to_numpy()
    sums = np.cumsum(pc.fill_null(minutes.column("frames"), 0).to_numpy())
    if not len(sums) or sums[-1] <= 0:
        return 0, 0, 0
    low = int(np.searchsorted(sums, sums[-1] * _OUTLIER_SHARE, side="right"))
    high = int(np.searchsorted(sums, sums[-1] * (1 - _OUTLIER_SHARE)))
    before = int(sums[low - 1]) if low else 0
    return int(seconds[low]), int(seconds[high]), before + int(sums[-1] - sums[high])


def _slowest_candidates(slo: pa.Table) -> list[str]:
    """Return the methods with the highest mean p95, weighted by calls; they include the slowest ones."""
    timed = slo.filter(pc.and_(pc.is_valid(slo.column("p95_ns")), pc.is_valid(slo.column("method"))))
    weighted = pc.multiply(pc.cast(timed.column("p95_ns"), pa.float64()), timed.column("calls"))
    sums = aggregate(timed.append_column("weighted", weighted), ["method"], weighted="sum", calls="sum")
    mean = pc.divide(sums.column("weighted"), pc.cast(pc.max_element_wise(sums.column("calls"), 1), pa.float64()))
    rows, _ = top_rows(sums.append_column("mean", mean), MAX_CANDIDATES, "-mean method")
    return [row["method"] for row in rows]


def _count_calls(
    tables: ReportTables,
    max_calls: int,
    buckets: TimeBuckets,
    names: list[str],
    histograms: tuple[LatencyHistogram, LatencyHistogram],
) -> bool:
    """Add every call to the histograms; return False if the calls are missing or too many."""
    batches = tables.calls(max_calls)
    if batches is None:
        return False
    known = pa.array(names, pa.string())
    for batch in batches:
        timed = batch.filter(
            pc.and_(pc.is_valid(batch.column("latency_ns")), pc.is_valid(batch.column("requested_at")))
        )
        times = timed.column("latency_ns").to_numpy()
        indexes = (timed.column("requested_at").to_numpy() // 10**9 - buckets.start) // buckets.width
        is_inside = (indexes >= 0) & (indexes < buckets.bucket_count)
        histograms[0].add(np.where(is_inside, indexes, buckets.bucket_count), times)
        methods = pc.fill_null(pc.index_in(timed.column("method"), value_set=known, skip_nulls=True), -1)
        histograms[1].add(methods.to_numpy(zero_copy_only=False).astype(np.int64), times)
    return True


def _estimate_from_slo(
    slo: pa.Table, indexes: Int64Array, names: list[str], histograms: tuple[LatencyHistogram, LatencyHistogram]
) -> None:
    timed = pc.is_valid(slo.column("p50_ns"))
    chosen = timed.to_numpy()
    rows = slo.filter(timed)
    low = rows.column("p50_ns")
    knots = [pc.fill_null(pc.coalesce(rows.column(name), low), 0).to_numpy() for name in _PERCENTILE_COLUMNS]
    calls = pc.fill_null(rows.column("calls"), 0).to_numpy()
    methods = pc.fill_null(pc.index_in(rows.column("method"), value_set=pa.array(names, pa.string())), -1)
    add_estimates(histograms[0], indexes[chosen], calls, knots)
    add_estimates(histograms[1], methods.to_numpy().astype(np.int64), calls, knots)
