"""Gold table `top_talkers`: sessions with the most traffic."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import direction_total

_MAX_ROWS: Final = 100


def top_talkers(activity: DataFrame, calls: DataFrame) -> DataFrame:
    """Which sessions have the most traffic?

    One row per day and session, for the 100 sessions with the most bytes of each day. Sessions with equal bytes are
    ordered by frames, then by name.

    Columns:
        date: UTC day
        rank: position, from 1
        session: name of the session
        peer: last NQ session or identity; null if anonymous
        protocol: protocol of the session
        frames_in: frames from the peer
        frames_out: frames to the peer
        bytes_in: bytes of the frames from the peer
        bytes_out: bytes of the frames to the peer
        calls: calls of the peer in this session
        share: share of all bytes of the day
    """
    by_session = activity.groupBy("date", "run", "session").agg(
        F.max("protocol").alias("protocol"),
        F.max(F.when(F.col("peer").isNotNull(), F.struct("last_seq", "peer"))).alias("last"),
        *(direction_total(name, direction) for name in ("frames", "bytes") for direction in ("in", "out")),
    )
    size = F.col("bytes_in") + F.col("bytes_out")
    frames = F.col("frames_in") + F.col("frames_out")
    order = Window.partitionBy("date").orderBy(size.desc(), frames.desc(), "session", "run")
    share = F.coalesce(F.try_divide(size, F.sum(size).over(Window.partitionBy("date"))), F.lit(0.0))
    top = by_session.select("*", share.alias("share"), F.row_number().over(order).alias("rank")).filter(
        F.col("rank") <= _MAX_ROWS
    )
    call_counts = (
        calls.filter("requested_at is not null")
        .groupBy("date", "run", F.col("caller_session").alias("session"))
        .agg(F.count("*").alias("calls"))
    )
    return (
        F.broadcast(top)
        .join(call_counts, on=["date", "run", "session"], how="left")
        .select(
            "date",
            "rank",
            "session",
            F.col("last.peer").alias("peer"),
            "protocol",
            "frames_in",
            "frames_out",
            "bytes_in",
            "bytes_out",
            F.coalesce("calls", F.lit(0)).alias("calls"),
            "share",
        )
    )
