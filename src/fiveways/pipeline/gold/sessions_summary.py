"""Gold table `sessions_summary`: sessions by protocol and transport."""

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
"""Close reasons that are not errors, of peers and of the hub, in lower case."""


def sessions_summary(sessions: DataFrame) -> DataFrame:
    """How many sessions are opened, how long do they last, and how many end with an error?

    One row per day, protocol and transport. Sessions count on the day on which they were opened; each connection of
    an NQ session counts.

    Columns:
        date: UTC day
        protocol: protocol of the sessions
        transport: transport of the sessions
        sessions: number of sessions
        still_open: sessions without a recorded end
        p50_duration_ns: median duration of the closed sessions
        max_duration_ns: maximum duration
        frames: frames in both directions
        bytes: bytes of these frames
        closed_by_error: sessions that ended for another reason than a normal close, or had an unreadable frame
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
