"""Gold table `slow_consumers`: dropped events and queueing per subscriber."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, subscriber_key
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values


def slow_consumers(deliveries: DataFrame) -> DataFrame:
    """Which subscribers are slow consumers?

    One row per day and subscriber: a session, in NQ over all its connections. All subscribers are listed; a fast one
    has no dropped events and hardly any queueing.

    Columns:
        date: UTC day of the publications
        session: session of the subscriber; the last one, if there were several
        peer: NQ session or identity; null if anonymous
        protocol: protocol of the session
        events: events for this subscriber
        dropped: events that were never sent
        dropped_share: dropped events per event
        queued_p50_ns: median time in the hub of the events that were sent
        queued_p95_ns: 95th percentile of the time in the hub
        queued_max_ns: maximum time in the hub
    """
    subscriber = subscriber_key("subscriber_session", "subscriber_peer", "subscriber_protocol")
    is_dropped = F.col("outcome") == "dropped"
    groups = deliveries.groupBy("date", "run", subscriber.alias("subscriber"), "subscriber_protocol").agg(
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
