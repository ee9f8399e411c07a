"""Where time goes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.percentiles import percentile, sorted_values

_DURATION_NAMES = ("latency", "callee", "hub")
_PERCENTILES = (50, 95, 99)


def latency_breakdown(calls: DataFrame) -> DataFrame:
    """Where does the time of a call go: to the callee, or to the hub?

    One row per day, method and pair of protocols. Percentiles of the three times are each taken by themselves, so that
    those of callee and hub do not add up to that of the latency; `hub_share` tells of sums. A leg that was recorded by
    itself is in a row whose other protocol is null.

    Columns:
        date: day in UTC
        method: what was called
        caller_protocol: of who called
        callee_protocol: of who was called; null if the hub answered by itself
        calls: calls, answered or not
        latency_p50_ns: from request to answer: half took no longer
        latency_p95_ns: 95 in a hundred took no longer
        latency_p99_ns: 99 in a hundred took no longer
        callee_p50_ns: from passing on to the callee's answer: half took no longer
        callee_p95_ns: 95 in a hundred took no longer
        callee_p99_ns: 99 in a hundred took no longer
        hub_p50_ns: the rest of each call's latency: half took no longer
        hub_p95_ns: 95 in a hundred took no longer
        hub_p99_ns: 99 in a hundred took no longer
        hub_share: part of the whole latency that was spent in the hub, of calls for which both are known
    """
    keys = ("date", "method", "caller_protocol", "callee_protocol")
    groups = calls.groupBy(*keys).agg(
        F.count("*").alias("calls"),
        *(sorted_values(f"{time}_ns").alias(time) for time in _DURATION_NAMES),
        F.sum("hub_ns").alias("hub_sum"),
        F.sum(F.when(F.col("hub_ns").isNotNull(), F.col("latency_ns"))).alias("latency_sum"),
    )
    return groups.select(
        *keys,
        "calls",
        *(
            percentile(time, percent).alias(f"{time}_p{percent}_ns")
            for time in _DURATION_NAMES
            for percent in _PERCENTILES
        ),
        F.try_divide("hub_sum", "latency_sum").alias("hub_share"),
    )
