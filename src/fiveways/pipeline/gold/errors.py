"""Gold table `errors`: failed calls per hour and cause."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import HOUR, is_error, to_timestamp, truncate_time, utc_date


def errors(calls: DataFrame) -> DataFrame:
    """Which calls fail, why, between which protocols, and since when?

    One row per hour, method, outcome, reason, code and pair of protocols. Calls count in the hour of their first
    request; cancelled calls are not errors.

    Columns:
        date: UTC day
        hour: start of the hour
        method: name of the method
        outcome: failed, not_executed, timeout, lost, unanswered
        reason: reason of the failure, the same word in all protocols; null without a response
        code: error code that the caller received
        caller_protocol: protocol of the caller
        callee_protocol: protocol of the callee; null if the request was not forwarded
        calls: number of calls
        first_at: request of the first call
        last_at: request of the last call
        sample_op: operation id of the last call, for `fiveways trace`
    """
    keys = ("method", "outcome", "reason", "code", "caller_protocol", "callee_protocol")
    groups = (
        calls.filter(F.col("requested_at").isNotNull() & is_error())
        .groupBy(truncate_time("requested_at", HOUR).alias("hour_at"), *keys)
        .agg(
            F.count("*").alias("calls"),
            F.min("requested_at").alias("first_at"),
            F.max(F.struct("requested_at", "op")).alias("last"),
        )
    )
    return groups.select(
        utc_date(F.col("hour_at")).alias("date"),
        to_timestamp("hour_at").alias("hour"),
        *keys,
        "calls",
        "first_at",
        F.col("last.requested_at").alias("last_at"),
        F.col("last.op").alias("sample_op"),
    )
