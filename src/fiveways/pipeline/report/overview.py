"""What several parts of the page look at: the time there is, and how long calls took.

Percentiles of several groups cannot be put together, so these are taken from the calls themselves. Without the calls,
or with too many of them, they are estimated from those of each method and minute.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report.aggregation import aggregate, bucket_indexes, bucket_sums, column_sum, top_rows
from fiveways.pipeline.report.axes import TimeBuckets, time_buckets
from fiveways.pipeline.report.latency_histogram import Int64Array, LatencyHistogram, add_estimates
from fiveways.pipeline.report.table_reader import ReportTables
from fiveways.pipeline.report.units import MINUTE

MAX_CALLS: Final = 50_000_000
"""Calls that are read one by one."""
MAX_CANDIDATES: Final = 120
"""Methods whose percentiles are taken: the slowest are among them."""
_OUTLIER_SHARE: Final = 0.001
"""Share of the frames at each end that the charts may leave out."""
_OUTLIER_STRETCH: Final = 3
"""How many times longer the charts would be with them."""
_PERCENTILE_COLUMNS: Final = ("p50_ns", "p95_ns", "p99_ns", "max_ns")
PercentileTimes = list[int | None]
"""p50, p95, p99 and the longest, in ns."""


@dataclass(slots=True)
class Overview:
    """The numbers that the headline and the charts over time share."""

    buckets: TimeBuckets | None
    frames_outside: int = 0
    """Frames before and after the time of the charts."""
    all_calls: int = 0
    all_errors: int = 0
    calls: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    bucket_times: list[PercentileTimes] = field(default_factory=list)
    all_times: PercentileTimes = field(default_factory=lambda: [None] * 4)
    method_times: dict[str, PercentileTimes] = field(default_factory=dict)
    is_exact: bool = True


def build_overview(tables: ReportTables, most_calls: int = MAX_CALLS) -> Overview:
    """Return what the tables say as a whole."""
    cells, outside = _chart_buckets(tables)
    slo = tables["slo"]
    found = Overview(cells, outside, column_sum(slo, "calls"), column_sum(slo, "errors"))
    if cells is None:
        return found
    places = bucket_indexes(slo, cells)
    found.calls = bucket_sums(slo, "calls", places, cells.bucket_count)
    found.errors = bucket_sums(slo, "errors", places, cells.bucket_count)
    names = _slowest_candidates(slo)
    # One more group is for what the charts do not show.
    by_time, by_method = LatencyHistogram(cells.bucket_count + 1), LatencyHistogram(max(1, len(names)))
    found.is_exact = _count_calls(tables, most_calls, cells, names, (by_time, by_method))
    if not found.is_exact:
        _estimate_from_slo(slo, np.where(places >= 0, places, cells.bucket_count), names, (by_time, by_method))
    found.bucket_times = [by_time.percentiles(index) for index in range(cells.bucket_count)]
    found.all_times = by_time.percentiles()
    found.method_times = {each: by_method.percentiles(index) for index, each in enumerate(names)}
    return found


def _chart_buckets(tables: ReportTables) -> tuple[TimeBuckets | None, int]:
    """Return the time of the charts, and how many frames are outside of it."""
    ends = []
    for name in ("traffic", "slo", "capacity"):
        seconds = tables[name].column("minute").cast(pa.int64())
        ends += [each for each in pc.min_max(seconds).as_py().values() if each is not None]
    if not ends:
        return None, 0
    earliest, latest = min(ends), max(ends)
    low, high, outside = _central_range(tables["traffic"])
    if outside and latest - earliest > _OUTLIER_STRETCH * (high - low + MINUTE):
        return time_buckets(low, high), outside
    return time_buckets(earliest, latest), 0


def _central_range(traffic: pa.Table) -> tuple[int, int, int]:
    """Return the minutes between which nearly all frames passed, and how many did not.

    With a few frames whose clock was wrong the charts would be empty but for a line at each end.
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
    """Return methods that may be the slowest: those whose p95, weighed by calls, is the highest."""
    timed = slo.filter(pc.and_(pc.is_valid(slo.column("p95_ns")), pc.is_valid(slo.column("method"))))
    weighed = pc.multiply(pc.cast(timed.column("p95_ns"), pa.float64()), timed.column("calls"))
    sums = aggregate(timed.append_column("weighed", weighed), ["method"], weighed="sum", calls="sum")
    mean = pc.divide(sums.column("weighed"), pc.cast(pc.max_element_wise(sums.column("calls"), 1), pa.float64()))
    rows, _ = top_rows(sums.append_column("mean", mean), MAX_CANDIDATES, "-mean method")
    return [row["method"] for row in rows]


def _count_calls(
    tables: ReportTables,
    most: int,
    cells: TimeBuckets,
    names: list[str],
    spreads: tuple[LatencyHistogram, LatencyHistogram],
) -> bool:
    """Count every call; False if the calls are not at hand."""
    batches = tables.calls(most)
    if batches is None:
        return False
    known = pa.array(names, pa.string())
    for batch in batches:
        timed = batch.filter(
            pc.and_(pc.is_valid(batch.column("latency_ns")), pc.is_valid(batch.column("requested_at")))
        )
        times = timed.column("latency_ns").to_numpy()
        places = (timed.column("requested_at").to_numpy() // 10**9 - cells.start) // cells.width
        spreads[0].add(np.where((places >= 0) & (places < cells.bucket_count), places, cells.bucket_count), times)
        methods = pc.fill_null(pc.index_in(timed.column("method"), value_set=known, skip_nulls=True), -1)
        spreads[1].add(methods.to_numpy(zero_copy_only=False).astype(np.int64), times)
    return True


def _estimate_from_slo(
    slo: pa.Table, places: Int64Array, names: list[str], spreads: tuple[LatencyHistogram, LatencyHistogram]
) -> None:
    timed = pc.is_valid(slo.column("p50_ns"))
    chosen = timed.to_numpy()
    rows = slo.filter(timed)
    low = rows.column("p50_ns")
    knots = [pc.fill_null(pc.coalesce(rows.column(each), low), 0).to_numpy() for each in _PERCENTILE_COLUMNS]
    calls = pc.fill_null(rows.column("calls"), 0).to_numpy()
    methods = pc.fill_null(pc.index_in(rows.column("method"), value_set=pa.array(names, pa.string())), -1)
    add_estimates(spreads[0], places[chosen], calls, knots)
    add_estimates(spreads[1], methods.to_numpy().astype(np.int64), calls, knots)
