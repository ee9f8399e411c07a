"""Gold table `slo`: latency and error rate per method and minute."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import MINUTE, count_where, is_error, to_timestamp, truncate_time, utc_date
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values


def slo(calls: DataFrame) -> DataFrame:
    """How fast and how reliable was each method, minute by minute?

    One row per minute and method, including built-in methods. Calls count in the minute of their first request; records
    of the callee's side without a matching caller do not count.

    Columns:
        date: UTC day
        minute: start of the minute
        method: name of the method; null if it could not be read
        calls: number of calls
        errors: calls that failed, were not executed, timed out, were lost or have no response; cancelled ones are none
        error_rate: errors per call
        p50_ns: median latency of the calls with a response
        p95_ns: 95th percentile of the latency
        p99_ns: 99th percentile of the latency
        max_ns: maximum latency
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
