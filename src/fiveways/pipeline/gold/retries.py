"""Gold table `retries`: retransmissions, duplicates and redeliveries."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where


def retries(calls: DataFrame) -> DataFrame:
    """How often are requests and responses repeated, and do the repeats help?

    One row per day, method and protocol of the caller. The protocol is null for records of the callee's side without a
    matching caller.

    Columns:
        date: UTC day
        method: name of the method
        caller_protocol: protocol of the caller
        calls: number of calls
        retried: calls that were requested more than once
        retransmissions: requests of callers after the first one of each call
        duplicates: responses to callers after the first one of each call
        useless: requests that arrived after the response was sent
        redeliveries: requests to callees after the first one of each call
    """
    keys = ("date", "method", "caller_protocol")
    groups = calls.groupBy(*keys).agg(
        F.count("*").alias("calls"),
        count_where(F.col("attempts") > 1).alias("retried"),
        _sum_beyond_first("attempts").alias("retransmissions"),
        _sum_beyond_first("answers").alias("duplicates"),
        F.sum("useless").alias("useless"),
        _sum_beyond_first("forwards").alias("redeliveries"),
    )
    return groups.select(*keys, "calls", "retried", "retransmissions", "duplicates", "useless", "redeliveries")


def _sum_beyond_first(name: str) -> Column:
    return F.sum(F.greatest(F.col(name) - 1, F.lit(0)))
