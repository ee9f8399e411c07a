"""Silver table `deliveries`: publications and their deliveries to subscribers."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.expressions import count_where, duration_or_null, negative_flag, utc_date

_KEY: Final = ("run", "key")
_PUBLICATION_COLUMNS: Final = {
    "topic": "topic",
    "publisher_session": "session",
    "publisher_protocol": "protocol",
    "published_at": "at",
    "published_seq": "seq",
}
_FIRST_EVENT_COLUMNS: Final = ("at", "seq", "session", "peer", "queued_ns", "size")


def deliveries(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """How was each publication delivered to each subscriber?

    One row per publication and subscriber: a session, in NQ over all its connections. A publication without subscribers
    has no row. Without an operation id, each event is a row with unknown publication.

    Columns:
        date: UTC day of the publication; if unknown, of the first event
        run: id of the hub process
        op: operation id of the publication; null if unknown
        topic: topic of the publication
        publisher_session: session of the publisher; null for the hub's own process or an earlier run
        publisher_protocol: protocol of the publisher
        published_at: arrival of the publication
        published_seq: record number of the publication
        subscriber_session: session of the subscriber
        subscriber_peer: NQ session or identity of the subscriber; null if anonymous
        subscriber_protocol: protocol of the subscriber
        first_at: time of the first sending; null if it was never sent
        first_seq: record number of the first sending
        copies: times it was sent; once to each of several subscriptions of a session counts as one
        dropped: times the hub dropped it
        outcome: delivered, dropped
        latency_ns: time from publication to first sending
        queued_ns: time that the first sending waited in the hub
        size: bytes of the first frame
        negative_durations: 1 if the latency was negative because the clock was set back, and is null; else 0
    """
    # One shuffle by publication serves both the join and the aggregation.
    sent = _events(messages).unionByName(_drops(marks)).repartition(*_KEY)
    is_nq = F.col("protocol") == "nq"
    subscriber = F.when(is_nq, F.coalesce("peer", "session")).otherwise(F.col("session"))
    groups = (
        sent.join(_publications(messages), on=[*_KEY], how="left")
        .groupBy(*_KEY, "op", subscriber.alias("subscriber"), "protocol", "lone_part", *_PUBLICATION_COLUMNS)
        .agg(*_delivery_aggregates())
    )
    is_sent = F.col("first.is_sent")
    first = {name: F.when(is_sent, F.col(f"first.{name}")) for name in _FIRST_EVENT_COLUMNS}
    latency = first["at"] - F.col("published_at")
    columns = {
        "date": utc_date(F.coalesce("published_at", "first.at")),
        "topic": F.coalesce("topic", "event_topic"),
        "subscriber_session": F.col("first.session"),
        "subscriber_peer": F.col("first.peer"),
        "subscriber_protocol": F.col("protocol"),
        "first_at": first["at"],
        "first_seq": first["seq"],
        "outcome": F.when(is_sent, "delivered").otherwise("dropped"),
        "latency_ns": duration_or_null(latency),
        "queued_ns": first["queued_ns"],
        "size": first["size"],
        "negative_durations": negative_flag(latency),
    }
    return groups.select(
        *(columns.get(name, F.col(name)).alias(name) for name in spark_schemas.DELIVERIES.fieldNames())
    )


def _publications(messages: DataFrame) -> DataFrame:
    """Return the first message of each publication; NQ may repeat it, also over another connection."""
    is_publication = (F.col("kind") == "publish") | ((F.col("kind") == "call") & (F.col("method") == "hub.publish"))
    firsts = (
        messages.filter((F.col("direction") == "in") & F.col("op").isNotNull() & is_publication)
        .groupBy("run", F.col("op").alias("key"))
        .agg(F.min(F.struct("seq", "part", "at", "topic", "session", "protocol")).alias("first"))
    )
    return firsts.select(*_KEY, *(F.col(f"first.{field}").alias(name) for name, field in _PUBLICATION_COLUMNS.items()))


def _events(messages: DataFrame) -> DataFrame:
    """Return events that were sent."""
    rows = messages.filter((F.col("direction") == "out") & (F.col("kind") == "event"))
    return _keyed_events(rows.withColumn("event_topic", F.col("topic")), is_sent=True)


def _drops(marks: DataFrame) -> DataFrame:
    """Return events that were dropped; dropped calls and responses are not included."""
    # Without an operation id, a drop with a topic in `channel` is an event; in HTTP, `channel` is the path.
    names_topic = F.col("channel").isNotNull() & (F.coalesce("transport", F.lit("")) != "http")
    rows = marks.filter((F.col("kind") == "drop") & F.coalesce(F.col("op").startswith("p"), names_topic)).select(
        "*",
        F.lit(0).alias("part"),
        F.col("channel").alias("event_topic"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in {"id": "string", "queued_ns": "bigint"}.items()),
    )
    return _keyed_events(rows, is_sent=False)


def _keyed_events(rows: DataFrame, *, is_sent: bool) -> DataFrame:
    """Add the key: the operation id, or without one the record number, which keeps each event separate."""
    has_no_op = F.col("op").isNull()
    return rows.select(
        "run",
        F.coalesce("op", F.col("seq").cast("string")).alias("key"),
        F.when(has_no_op, F.col("part")).alias("lone_part"),
        F.lit(is_sent).alias("is_sent"),
        F.xxhash64("id").alias("subscription"),
        *("op", "protocol", "event_topic", "at", "seq", "part", "session", "peer", "queued_ns", "size"),
    )


def _delivery_aggregates() -> list[Column]:
    """Return the aggregates of the events of a row: counts, and the first event, a sent one if possible."""
    is_sent = F.col("is_sent")
    subscription = F.when(is_sent, F.col("subscription"))
    # Events with equal identifiers are of one subscription, or one NQ message: only these are repeats.
    is_repeat = F.min(subscription).eqNullSafe(F.max(subscription))
    copies = count_where(is_sent)
    rest = ("session", "peer", "queued_ns", "size", "is_sent")
    return [
        F.when(is_repeat, copies).otherwise(1).cast("int").alias("copies"),
        count_where(~is_sent).cast("int").alias("dropped"),
        F.max("event_topic").alias("event_topic"),
        F.min(F.struct(~is_sent, "seq", "part", "at", *rest)).alias("first"),
    ]
