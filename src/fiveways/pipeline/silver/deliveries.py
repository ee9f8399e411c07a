"""Publications, and whom they reached."""

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
    """What became of each publication at each subscriber?

    One row per publication and subscriber: a link, or in NQ a conversation over all its links. A publication that
    nobody had subscribed to has none. Where no operation is known, each event is a row, and its publication unknown.

    Columns:
        date: day of the publication in UTC, or of the first that is known of it
        run: one life of a hub
        op: the publication, null if unknown
        topic: what it was published to
        publisher_session: link of who published it; null if that was the hub's own process, or an earlier run
        publisher_protocol: in which protocol
        published_at: when it came
        published_seq: the number of its record in the run
        subscriber_session: link that got it, or should have
        subscriber_peer: whose that is, null if nobody's
        subscriber_protocol: in which protocol
        first_at: when it was first sent, null if never
        first_seq: the number of the record of that
        copies: how often it was sent; once each to several subscriptions of one link is once
        dropped: how often the hub gave up sending it
        outcome: delivered, dropped
        latency_ns: from publication to first sending
        queued_ns: how long the first sending waited in the hub
        size: bytes of the first frame
        negative_durations: 1 if the latency came out negative, as the clock was set back, and is null; else 0
    """
    # All that is said of a publication comes together once, before it is joined and counted.
    sent = _events(messages).unionByName(_drops(marks)).repartition(*_KEY)
    is_nq = F.col("protocol") == "nq"
    who = F.when(is_nq, F.coalesce("peer", "session")).otherwise(F.col("session"))
    groups = (
        sent.join(_publications(messages), on=[*_KEY], how="left")
        .groupBy(*_KEY, "op", who.alias("who"), "protocol", "lone_part", *_PUBLICATION_COLUMNS)
        .agg(*_delivery_aggregates())
    )
    is_sent = F.col("first.is_sent")
    first = {name: F.when(is_sent, F.col(f"first.{name}")) for name in _FIRST_EVENT_COLUMNS}
    latency = first["at"] - F.col("published_at")
    made = {
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
    return groups.select(*(made.get(name, F.col(name)).alias(name) for name in spark_schemas.DELIVERIES.fieldNames()))


def _publications(messages: DataFrame) -> DataFrame:
    """Return the first message of each publication; NQ may repeat it, and over another link."""
    is_publication = (F.col("kind") == "publish") | ((F.col("kind") == "call") & (F.col("method") == "hub.publish"))
    firsts = (
        messages.filter((F.col("direction") == "in") & F.col("op").isNotNull() & is_publication)
        .groupBy("run", F.col("op").alias("key"))
        .agg(F.min(F.struct("seq", "part", "at", "topic", "session", "protocol")).alias("first"))
    )
    return firsts.select(*_KEY, *(F.col(f"first.{field}").alias(name) for name, field in _PUBLICATION_COLUMNS.items()))


def _events(messages: DataFrame) -> DataFrame:
    """Return what was sent."""
    rows = messages.filter((F.col("direction") == "out") & (F.col("kind") == "event"))
    return _keyed_events(rows.withColumn("event_topic", F.col("topic")), is_sent=True)


def _drops(marks: DataFrame) -> DataFrame:
    """Return events that were not sent; a call or an answer that was dropped is another matter."""
    # Without an operation, what names a topic is an event; in HTTP it is the path that is named.
    names_topic = F.col("channel").isNotNull() & (F.coalesce("transport", F.lit("")) != "http")
    rows = marks.filter((F.col("kind") == "drop") & F.coalesce(F.col("op").startswith("p"), names_topic)).select(
        "*",
        F.lit(0).alias("part"),
        F.col("channel").alias("event_topic"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in {"id": "string", "queued_ns": "bigint"}.items()),
    )
    return _keyed_events(rows, is_sent=False)


def _keyed_events(rows: DataFrame, *, is_sent: bool) -> DataFrame:
    """Where the operation is not known, each is by itself: its place in the journal is its key."""
    is_alone = F.col("op").isNull()
    return rows.select(
        "run",
        F.coalesce("op", F.col("seq").cast("string")).alias("key"),
        F.when(is_alone, F.col("part")).alias("lone_part"),
        F.lit(is_sent).alias("is_sent"),
        F.xxhash64("id").alias("subscription"),
        *("op", "protocol", "event_topic", "at", "seq", "part", "session", "peer", "queued_ns", "size"),
    )


def _delivery_aggregates() -> list[Column]:
    """Return what is counted of the messages of one row, and the first of them, sent if any was."""
    is_sent = F.col("is_sent")
    subscription = F.when(is_sent, F.col("subscription"))
    # Equal identifiers are one subscription, or one message of NQ: only that makes it a repeat.
    is_one = F.min(subscription).eqNullSafe(F.max(subscription))
    copies = count_where(is_sent)
    rest = ("session", "peer", "queued_ns", "size", "is_sent")
    return [
        F.when(is_one, copies).otherwise(1).cast("int").alias("copies"),
        count_where(~is_sent).cast("int").alias("dropped"),
        F.max("event_topic").alias("event_topic"),
        F.min(F.struct(~is_sent, "seq", "part", "at", *rest)).alias("first"),
    ]
