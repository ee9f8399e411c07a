"""Gold table `service_graph`: calls by caller, method and callee."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, is_error
from fiveways.pipeline.percentiles import percentile, sorted_values


def service_graph(calls: DataFrame) -> DataFrame:
    """Which callers call which methods of which callees?

    One row per day, caller, method and callee. Caller and callee are identities or NQ sessions; anonymous peers are
    known by their session. Records of the callee's side without a matching caller do not count.

    Columns:
        date: UTC day
        caller: caller
        caller_protocol: protocol of the caller
        method: name of the method
        callee: callee; null if the hub responded itself
        callee_protocol: protocol of the callee
        calls: number of calls
        errors: calls that failed, were not executed, timed out, were lost or have no response
        p50_ns: median latency of the calls with a response
    """
    keys = ("date", "caller", "caller_protocol", "method", "callee", "callee_protocol")
    groups = (
        calls.filter("requested_at is not null")
        .withColumn("caller", F.coalesce("caller_peer", "caller_session"))
        .withColumn("callee", F.coalesce("callee_peer", "callee_session"))
        .groupBy(*keys)
        .agg(
            F.count("*").alias("calls"),
            count_where(is_error()).alias("errors"),
            sorted_values("latency_ns").alias("latencies"),
        )
    )
    return groups.select(*keys, "calls", "errors", percentile("latencies", 50).alias("p50_ns"))
