"""Gold table `latency_breakdown`: latency of calls, divided between callee and hub."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.percentiles import percentile, sorted_values

_DURATION_NAMES = ("latency", "callee", "hub")
_PERCENTILES = (50, 95, 99)


def latency_breakdown(calls: DataFrame) -> DataFrame:
    """Where does the latency of a call come from: the callee or the hub?

    One row per day, method and pair of protocols. The percentiles of latency, callee time and hub time are computed
    separately, so callee and hub do not add up to the latency; `hub_share` is computed from sums. If only one side of
    a call is recorded, the other protocol is null.

    Columns:
        date: UTC day
        method: name of the method
        caller_protocol: protocol of the caller
        callee_protocol: protocol of the callee; null if the hub responded itself
        calls: calls with or without a response
        latency_p50_ns: median time from request to response
        latency_p95_ns: 95th percentile of the time from request to response
        latency_p99_ns: 99th percentile of the time from request to response
        callee_p50_ns: median time from forwarding the request to the callee's response
        callee_p95_ns: 95th percentile of the callee time
        callee_p99_ns: 99th percentile of the callee time
        hub_p50_ns: median of the remaining latency, spent in the hub
        hub_p95_ns: 95th percentile of the hub time
        hub_p99_ns: 99th percentile of the hub time
        hub_share: hub time divided by latency, over all calls for which both are known
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
