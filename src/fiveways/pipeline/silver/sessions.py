"""Links, from their opening to their end."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.expressions import count_where, duration_or_null, negative_flag, sum_or_zero, utc_date

_CONSTANT_COLUMNS: Final = ("node", "protocol", "transport")
"""What is the same in all rows of one link, but may be missing in some."""
NO_PROTOCOL: Final = "none"
"""The protocol of what the journal says of itself."""


def sessions(activity: DataFrame, marks: DataFrame) -> DataFrame:
    """Which links were there, how long, what passed over them, and how did they end?

    One row per link. One whose opening is not in the data has no `opened_at`, one that is still open no `closed_at`.

    Columns:
        date: day of its opening in UTC, or of the first that is known of it
        run: one life of a hub
        node: the machine
        session: the link
        peer: whose it was at last, null if nobody's
        protocol: which one
        transport: how it came
        opened_at: when it was opened
        closed_at: when it was closed
        duration_ns: from one to the other
        close_reason: why it was closed
        frames_in: frames from the peer, unreadable ones included
        frames_out: frames to the peer
        bytes_in: size of the frames from the peer
        bytes_out: size of the frames to the peer
        messages_in: messages from the peer
        messages_out: messages to the peer
        errors: frames that cannot be read
        drops: messages that were dropped on the way to the peer
        denials: requests of the peer that were refused
        negative_durations: 1 if the duration came out negative, as the clock was set back, and is null; else 0
    """
    rows = _traffic_rows(activity).unionByName(_mark_rows(marks))
    groups = rows.groupBy("run", "session").agg(
        *(F.max(name).alias(name) for name in _CONSTANT_COLUMNS),
        F.max(F.when(F.col("peer").isNotNull(), F.struct("last_seq", "peer"))).alias("last"),
        F.min(F.struct("first_seq", "first_at")).alias("first"),
        F.min(_mark_position("open")).alias("opened"),
        F.max(_mark_position("open")).alias("reopened"),
        F.max(_mark_position("close")).alias("end"),
        *(_direction_total(name, direction) for name in ("frames", "bytes", "messages") for direction in ("in", "out")),
        sum_or_zero("errors").alias("errors"),
        count_where(F.col("mark") == "drop").alias("drops"),
        count_where(F.col("mark") == "deny").alias("denials"),
    )
    # One that was opened again is open, whatever was before.
    is_closed = F.col("end.last_seq") > F.coalesce("reopened.last_seq", F.lit(-1))
    closed_at = F.when(is_closed, F.col("end.last_at"))
    lasted = closed_at - F.col("opened.last_at")
    made = {
        "date": utc_date(F.coalesce("opened.last_at", "first.first_at")),
        "peer": F.col("last.peer"),
        "opened_at": F.col("opened.last_at"),
        "closed_at": closed_at,
        "duration_ns": duration_or_null(lasted),
        "close_reason": F.when(is_closed, F.col("end.reason")),
        "negative_durations": negative_flag(lasted),
    }
    return groups.select(*(made.get(name, F.col(name)).alias(name) for name in spark_schemas.SESSIONS.fieldNames()))


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
    """Return where such a mark stands in the run, its time and its reason."""
    return F.when(F.col("mark") == mark, F.struct("last_seq", "last_at", "reason"))


def _direction_total(name: str, direction: str) -> Column:
    return sum_or_zero(F.when(F.col("direction") == direction, F.col(name))).alias(f"{name}_{direction}")
