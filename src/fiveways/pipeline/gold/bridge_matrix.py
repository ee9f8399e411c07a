"""Protocol by protocol."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, is_error
from fiveways.pipeline.percentiles import percentile, sorted_values


def bridge_matrix(calls: DataFrame) -> DataFrame:
    """Which protocol calls which, how often, how fast, and how often in vain?

    One row per day and pair of protocols. A leg that was recorded without its caller does not count.

    Columns:
        date: day in UTC
        caller_protocol: of who called
        callee_protocol: of who was called; null if the hub answered by itself
        calls: calls
        errors: those that failed, were not run, timed out, were lost or have no answer
        p50_ns: half of the calls that were answered took no longer
        p95_ns: 95 in a hundred took no longer
        p99_ns: 99 in a hundred took no longer
    """
    keys = ("date", "caller_protocol", "callee_protocol")
    groups = (
        calls.filter("requested_at is not null")
        .groupBy(*keys)
        .agg(
            F.count("*").alias("calls"),
            count_where(is_error()).alias("errors"),
            sorted_values("latency_ns").alias("latencies"),
        )
    )
    return groups.select(
        *keys, "calls", "errors", *(percentile("latencies", each).alias(f"p{each}_ns") for each in (50, 95, 99))
    )
