"""What passed over each link, minute by minute: small enough for all who ask about traffic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import MINUTE, sum_or_zero, truncate_time, utc_date

_CONNECTION_COLUMNS = ("run", "node", "session", "peer", "protocol", "transport", "direction")


def activity(messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    """How much passed over each link?

    One row per minute, link and direction; a link that told its identity on the way has one row for each peer. Frames
    that cannot be read count as frames, and their node is not known.

    Columns:
        date: day of the minute in UTC
        minute_at: when the minute began
        run: one life of a hub
        node: the machine
        session: the link
        peer: whose it is, null if nobody's
        protocol: which one
        transport: how it came
        direction: in or out, seen from the hub
        frames: frames, unreadable ones included
        messages: messages in them
        bytes: size of the frames
        errors: frames that cannot be read
        first_at: the earliest of them
        last_at: the latest of them
        first_seq: the number of the first record
        last_seq: the number of the last record
    """
    is_first = F.col("part") == 0
    read = _frame_counts(messages, is_first, F.lit(1), F.lit(0))
    unread = _frame_counts(quarantine.withColumn("node", F.lit(None).cast("string")), F.lit(True), F.lit(0), F.lit(1))
    groups = (
        read.unionByName(unread)
        .groupBy("minute_at", *_CONNECTION_COLUMNS)
        .agg(
            F.sum("frames").alias("frames"),
            F.sum("messages").alias("messages"),
            sum_or_zero("bytes").alias("bytes"),
            F.sum("errors").alias("errors"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
        )
    )
    return groups.select(
        utc_date(F.col("minute_at")).alias("date"),
        "minute_at",
        *_CONNECTION_COLUMNS,
        "frames",
        "messages",
        "bytes",
        "errors",
        "first_at",
        "last_at",
        "first_seq",
        "last_seq",
    )


def _frame_counts(rows: DataFrame, is_frame: Column, messages: Column, errors: Column) -> DataFrame:
    """Return what each row adds; the size of a frame belongs to its first message alone."""
    return rows.select(
        truncate_time("at", MINUTE).alias("minute_at"),
        *_CONNECTION_COLUMNS,
        "at",
        "seq",
        F.when(is_frame, 1).otherwise(0).alias("frames"),
        messages.alias("messages"),
        F.when(is_frame, F.col("size")).alias("bytes"),
        errors.alias("errors"),
    )
