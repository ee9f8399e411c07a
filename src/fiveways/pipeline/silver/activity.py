"""Work table `_activity`: traffic of each session per minute, the input of all tables on traffic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import MINUTE, sum_or_zero, truncate_time, utc_date

_CONNECTION_COLUMNS = ("run", "node", "session", "peer", "protocol", "transport", "direction")


def activity(messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    """How much traffic had each session?

    One row per minute, session and direction; a session that authenticated later has one row for each peer.
    Unreadable frames count as frames, with unknown node.

    Columns:
        date: UTC day of the minute
        minute_at: start of the minute
        run: id of the hub process
        node: name of the hub
        session: name of the session
        peer: NQ session or identity; null if anonymous
        protocol: protocol of the session
        transport: transport of the session
        direction: in is to the hub, out is from the hub
        frames: frames, including unreadable ones
        messages: messages in these frames
        bytes: bytes of these frames
        errors: unreadable frames
        first_at: time of the first frame
        last_at: time of the last frame
        first_seq: record number of the first frame
        last_seq: record number of the last frame
    """
    is_first = F.col("part") == 0
    readable = _frame_counts(messages, is_first, F.lit(1), F.lit(0))
    unreadable = _frame_counts(
        quarantine.withColumn("node", F.lit(None).cast("string")), F.lit(True), F.lit(0), F.lit(1)
    )
    groups = (
        readable.unionByName(unreadable)
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
    """Return the counts of each row; the size of a frame counts for its first message only."""
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
