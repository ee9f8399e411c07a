"""What was said more than once."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where


def retries(calls: DataFrame) -> DataFrame:
    """How much is said more than once, and was it of use?

    One row per day, method and protocol of the caller. A leg that was recorded without its caller has a null there.

    Columns:
        date: day in UTC
        method: what was called
        caller_protocol: of who called
        calls: calls
        retried: calls that were requested more than once
        retransmissions: requests beyond the first of each call
        duplicates: answers beyond the first of each call
        useless: requests that came when the answer had been sent
        redeliveries: requests to callees beyond the first of each call
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
