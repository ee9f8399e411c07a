"""Service levels."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import MINUTE, count_where, is_error, to_timestamp, truncate_time, utc_date
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values


def slo(calls: DataFrame) -> DataFrame:
    """How fast and how reliable was each method, minute by minute?

    One row per minute and method. Calls count in the minute of their first request, the hub's own methods included; a
    leg that was recorded without its caller does not count.

    Columns:
        date: day in UTC
        minute: when the minute began
        method: what was called; null if its name could not be read
        calls: calls that were made
        errors: those that failed, were not run, timed out, were lost or have no answer; having been cancelled is none
        error_rate: errors per call
        p50_ns: half of the calls that were answered took no longer
        p95_ns: 95 in a hundred took no longer
        p99_ns: 99 in a hundred took no longer
        max_ns: the longest
    """
    groups = (
        calls.filter("requested_at is not null")
        .groupBy(truncate_time("requested_at", MINUTE).alias("minute_at"), "method")
        .agg(
            F.count("*").alias("calls"),
            count_where(is_error()).alias("errors"),
            sorted_values("latency_ns").alias("latencies"),
        )
    )
    return groups.select(
        utc_date(F.col("minute_at")).alias("date"),
        to_timestamp("minute_at").alias("minute"),
        "method",
        "calls",
        "errors",
        (F.col("errors") / F.col("calls")).alias("error_rate"),
        percentile("latencies", 50).alias("p50_ns"),
        percentile("latencies", 95).alias("p95_ns"),
        percentile("latencies", 99).alias("p99_ns"),
        greatest("latencies").alias("max_ns"),
    )
