"""Who uses the hub most."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import sum_or_zero

_MAX_ROWS: Final = 100


def top_talkers(activity: DataFrame, calls: DataFrame) -> DataFrame:
    """Who uses the hub most?

    One row per day and link, the 100 with the most bytes of each day; between equals more frames decide, then names.

    Columns:
        date: day in UTC
        rank: 1 for the most
        session: the link
        peer: whose it was at last, null if nobody's
        protocol: which one
        frames_in: frames from the peer that day
        frames_out: frames to the peer
        bytes_in: size of the frames from the peer
        bytes_out: size of the frames to the peer
        calls: calls that the peer made over this link
        share: part of all bytes of that day, both ways
    """
    moved = activity.groupBy("date", "run", "session").agg(
        F.max("protocol").alias("protocol"),
        F.max(F.when(F.col("peer").isNotNull(), F.struct("last_seq", "peer"))).alias("last"),
        *(_direction_total(name, direction) for name in ("frames", "bytes") for direction in ("in", "out")),
    )
    size = F.col("bytes_in") + F.col("bytes_out")
    frames = F.col("frames_in") + F.col("frames_out")
    order = Window.partitionBy("date").orderBy(size.desc(), frames.desc(), "session", "run")
    share = F.coalesce(F.try_divide(size, F.sum(size).over(Window.partitionBy("date"))), F.lit(0.0))
    top = moved.select("*", share.alias("share"), F.row_number().over(order).alias("rank")).filter(
        F.col("rank") <= _MAX_ROWS
    )
    made = (
        calls.filter("requested_at is not null")
        .groupBy("date", "run", F.col("caller_session").alias("session"))
        .agg(F.count("*").alias("calls"))
    )
    return (
        F.broadcast(top)
        .join(made, on=["date", "run", "session"], how="left")
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


def _direction_total(name: str, direction: str) -> Column:
    return sum_or_zero(F.when(F.col("direction") == direction, F.col(name))).alias(f"{name}_{direction}")
