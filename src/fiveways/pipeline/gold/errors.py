"""What went wrong."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import HOUR, is_error, to_timestamp, truncate_time, utc_date


def errors(calls: DataFrame) -> DataFrame:
    """What goes wrong, where, and since when?

    One row per hour, method, outcome, reason, code and pair of protocols. Calls count in the hour of their first
    request; cancelled ones are no errors.

    Columns:
        date: day in UTC
        hour: when the hour began
        method: what was called
        outcome: failed, not_executed, timeout, lost, unanswered
        reason: why, the same word in all protocols; null without an answer
        code: why, as the caller was told
        caller_protocol: of who called
        callee_protocol: of who was called; null if it was never passed on
        calls: how many
        first_at: request of the first of them
        last_at: request of the last of them
        sample_op: operation of the last of them, for `fiveways trace`
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
