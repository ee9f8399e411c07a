"""Links in sum."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values

_NORMAL_CLOSE_REASONS: Final = (
    *("", "bye", "closed", "done", "going away", "goodbye", "idle", "leaving", "left", "normal"),
    *("it did not come back", "the hub is closing", "the session continues on another connection"),
    "the conversation goes on over another link",  # journals of older hubs
)
"""Reasons that are no trouble: those of peers, and our own."""


def sessions_summary(sessions: DataFrame) -> DataFrame:
    """How many links are opened, how long do they last, and how do they end?

    One row per day, protocol and transport. Links count on the day they were opened.

    Columns:
        date: day in UTC
        protocol: which one
        transport: how they came
        sessions: links
        still_open: those whose end is not in the data
        p50_duration_ns: half of those that were opened and closed lasted no longer
        max_duration_ns: the longest
        frames: frames over all of them, both ways
        bytes: their size
        closed_by_error: links that ended with a reason that is no farewell, or had a frame that cannot be read
    """
    keys = ("date", "protocol", "transport")
    reason = F.lower(F.trim(F.coalesce("close_reason", F.lit(""))))
    is_closed = F.col("closed_at").isNotNull()
    groups = sessions.groupBy(*keys).agg(
        F.count("*").alias("sessions"),
        count_where(~is_closed).alias("still_open"),
        sorted_values("duration_ns").alias("durations"),
        F.sum(F.col("frames_in") + F.col("frames_out")).alias("frames"),
        F.sum(F.col("bytes_in") + F.col("bytes_out")).alias("bytes"),
        count_where(is_closed & (~reason.isin(*_NORMAL_CLOSE_REASONS) | (F.col("errors") > 0))).alias(
            "closed_by_error"
        ),
    )
    return groups.select(
        *keys,
        "sessions",
        "still_open",
        percentile("durations", 50).alias("p50_duration_ns"),
        greatest("durations").alias("max_duration_ns"),
        "frames",
        "bytes",
        "closed_by_error",
    )
