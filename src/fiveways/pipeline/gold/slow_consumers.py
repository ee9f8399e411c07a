"""Who does not keep up."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, subscriber_key
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values


def slow_consumers(deliveries: DataFrame) -> DataFrame:
    """Which subscribers do not keep up with what they subscribed to?

    One row per day and subscriber: a link, or in NQ a conversation over all its links. All subscribers are there; who
    keeps up has nothing dropped and hardly waits.

    Columns:
        date: day of the publications in UTC
        session: the link; the last one, if there were several
        peer: whose it is, null if nobody's
        protocol: which one
        events: events that were for it
        dropped: those that it never got
        dropped_share: dropped per event
        queued_p50_ns: half of what it got waited no longer in the hub
        queued_p95_ns: 95 in a hundred waited no longer
        queued_max_ns: the longest wait
    """
    who = subscriber_key("subscriber_session", "subscriber_peer", "subscriber_protocol")
    is_dropped = F.col("outcome") == "dropped"
    groups = deliveries.groupBy("date", "run", who.alias("who"), "subscriber_protocol").agg(
        F.count("*").alias("events"),
        count_where(is_dropped).alias("dropped"),
        sorted_values("queued_ns").alias("queued"),
        F.max(F.struct("first_seq", "subscriber_session", "subscriber_peer")).alias("last"),
    )
    return groups.select(
        "date",
        F.col("last.subscriber_session").alias("session"),
        F.col("last.subscriber_peer").alias("peer"),
        F.col("subscriber_protocol").alias("protocol"),
        "events",
        "dropped",
        (F.col("dropped") / F.col("events")).alias("dropped_share"),
        percentile("queued", 50).alias("queued_p50_ns"),
        percentile("queued", 95).alias("queued_p95_ns"),
        greatest("queued").alias("queued_max_ns"),
    )
