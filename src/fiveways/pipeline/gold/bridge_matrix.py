"""Gold table `bridge_matrix`: calls by pair of protocols."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, is_error
from fiveways.pipeline.percentiles import percentile, sorted_values


def bridge_matrix(calls: DataFrame) -> DataFrame:
    """How many calls pass between each pair of protocols, how fast are they, and how many fail?

    One row per day and pair of protocols. Records of the callee's side without a matching caller do not count.

    Columns:
        date: UTC day
        caller_protocol: protocol of the caller
        callee_protocol: protocol of the callee; null if the hub responded itself
        calls: number of calls
        errors: calls that failed, were not executed, timed out, were lost or have no response
        p50_ns: median latency of the calls with a response
        p95_ns: 95th percentile of the latency
        p99_ns: 99th percentile of the latency
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
        *keys,
        "calls",
        "errors",
        *(percentile("latencies", percent).alias(f"p{percent}_ns") for percent in (50, 95, 99)),
    )
