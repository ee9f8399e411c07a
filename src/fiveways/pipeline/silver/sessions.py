"""Silver table `sessions`: sessions from open to close."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.expressions import (
    count_where,
    direction_total,
    duration_or_null,
    negative_flag,
    sum_or_zero,
    utc_date,
)

_CONSTANT_COLUMNS: Final = ("node", "protocol", "transport")
"""Columns with one value per session, which may be missing in some rows."""
NO_PROTOCOL: Final = "none"
"""Protocol of records about the journal itself."""


def sessions(activity: DataFrame, marks: DataFrame) -> DataFrame:
    """Which sessions existed, how long, with how much traffic, and how did they end?

    One row per session; in NQ, one per connection. `opened_at` is null if the opening is not in the data, `closed_at`
    if the session is still open.

    Columns:
        date: UTC day of the opening; if unknown, of the first record
        run: id of the hub process
        node: name of the hub
        session: name of the session
        peer: last NQ session or identity; null if anonymous
        protocol: protocol of the session
        transport: transport of the session
        opened_at: time of the opening
        closed_at: time of the close
        duration_ns: time from opening to close
        close_reason: reason of the close
        frames_in: frames from the peer, including unreadable ones
        frames_out: frames to the peer
        bytes_in: bytes of the frames from the peer
        bytes_out: bytes of the frames to the peer
        messages_in: messages from the peer
        messages_out: messages to the peer
        errors: unreadable frames
        drops: messages to the peer that were dropped
        denials: requests of the peer that were denied
        negative_durations: 1 if the duration was negative because the clock was set back, and is null; else 0
    """
    rows = _traffic_rows(activity).unionByName(_mark_rows(marks))
    groups = rows.groupBy("run", "session").agg(
        *(F.max(name).alias(name) for name in _CONSTANT_COLUMNS),
        F.max(F.when(F.col("peer").isNotNull(), F.struct("last_seq", "peer"))).alias("last"),
        F.min(F.struct("first_seq", "first_at")).alias("first"),
        F.min(_mark_position("open")).alias("opened"),
        F.max(_mark_position("open")).alias("reopened"),
        F.max(_mark_position("close")).alias("end"),
        *(direction_total(name, direction) for name in ("frames", "bytes", "messages") for direction in ("in", "out")),
        sum_or_zero("errors").alias("errors"),
        count_where(F.col("mark") == "drop").alias("drops"),
        count_where(F.col("mark") == "deny").alias("denials"),
    )
    # A session that was opened again after a close is open.
    is_closed = F.col("end.last_seq") > F.coalesce("reopened.last_seq", F.lit(-1))
    closed_at = F.when(is_closed, F.col("end.last_at"))
    lasted = closed_at - F.col("opened.last_at")
    columns = {
        "date": utc_date(F.coalesce("opened.last_at", "first.first_at")),
        "peer": F.col("last.peer"),
        "opened_at": F.col("opened.last_at"),
        "closed_at": closed_at,
        "duration_ns": duration_or_null(lasted),
        "close_reason": F.when(is_closed, F.col("end.reason")),
        "negative_durations": negative_flag(lasted),
    }
    return groups.select(*(columns.get(name, F.col(name)).alias(name) for name in spark_schemas.SESSIONS.fieldNames()))


def _traffic_rows(activity: DataFrame) -> DataFrame:
    nothing = F.lit(None)
    return activity.select(
        *("run", "session", "peer", *_CONSTANT_COLUMNS, "direction", "frames", "bytes", "messages", "errors"),
        *("first_at", "last_at", "first_seq", "last_seq"),
        nothing.cast("string").alias("mark"),
        nothing.cast("string").alias("reason"),
    )


def _mark_rows(marks: DataFrame) -> DataFrame:
    return marks.filter(F.col("protocol") != NO_PROTOCOL).select(
        *("run", "session", "peer", *_CONSTANT_COLUMNS, "direction"),
        *(F.lit(0).alias(name) for name in ("frames", "bytes", "messages", "errors")),
        F.col("at").alias("first_at"),
        F.col("at").alias("last_at"),
        F.col("seq").alias("first_seq"),
        F.col("seq").alias("last_seq"),
        F.col("kind").alias("mark"),
        "reason",
    )


def _mark_position(mark: str) -> Column:
    """Return the position, time and reason of the records with this mark."""
    return F.when(F.col("mark") == mark, F.struct("last_seq", "last_at", "reason"))
