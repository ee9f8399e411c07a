"""Who calls whom."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, is_error
from fiveways.pipeline.percentiles import percentile, sorted_values


def service_graph(calls: DataFrame) -> DataFrame:
    """Who calls whom, for what?

    One row per day, caller, method and callee. Both are identities, or conversations of NQ; who is nobody is known by
    the link. A leg that was recorded without its caller does not count.

    Columns:
        date: day in UTC
        caller: who called
        caller_protocol: in which protocol
        method: what was called
        callee: who was called; null if the hub answered by itself
        callee_protocol: in which protocol
        calls: calls
        errors: those that failed, were not run, timed out, were lost or have no answer
        p50_ns: half of the calls that were answered took no longer
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
