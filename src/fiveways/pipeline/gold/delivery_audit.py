"""Gold table `delivery_audit`: completeness and order of deliveries per subscriber."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, subscriber_key

_TOPIC_KEY: Final = ("date", "run", "topic")
_SUBSCRIBER_KEY: Final = (*_TOPIC_KEY, "subscriber", "subscriber_protocol")


def delivery_audit(deliveries: DataFrame, names: DataFrame) -> DataFrame:
    """Did every subscriber get all publications, once and in order?

    One row per day, topic and subscriber: a session, in NQ over all its connections. Expected publications are those
    with a record, sent or dropped, and all publications on the topic between the first and the last of these. Those
    without a record are not expected if the subscriber ended a subscription that day or published on the topic itself,
    because it may not have subscribed to them.

    Columns:
        date: UTC day of the publications
        topic: topic of the publications
        subscriber_session: session of the subscriber; the last one, if there were several
        subscriber_peer: NQ session or identity of the subscriber; null if anonymous
        subscriber_protocol: protocol of the subscriber
        publications: expected publications
        delivered: publications that were sent
        lost: publications that were dropped, or have no record
        duplicated: publications that were sent more than once
        reordered: publications that were sent after a later one
    """
    by_subscriber = (
        _number_publications(deliveries)
        .groupBy(*_SUBSCRIBER_KEY)
        .agg(
            F.count("*").alias("known"),
            count_where(F.col("copies") > 0).alias("delivered"),
            count_where(F.col("copies") > 1).alias("duplicated"),
            count_where(F.col("sent_number") < F.col("latest")).alias("reordered"),
            (F.max("number") - F.min("number") + 1 - F.count("number")).alias("gaps"),
            F.max(F.struct("first_seq", "subscriber_session", "subscriber_peer")).alias("last"),
        )
    )
    with_subscriber = by_subscriber.select("*", F.col("last.subscriber_session"), F.col("last.subscriber_peer"))
    checked = with_subscriber.join(
        F.broadcast(_publishers(deliveries)), on=[*_TOPIC_KEY, "subscriber_session"], how="left"
    ).join(F.broadcast(_unsubscribers(names)), on=["date", "run", "subscriber"], how="left")
    is_exact = F.col("publishes").isNull() & F.col("leaves").isNull()
    publications = F.col("known") + F.coalesce(F.when(is_exact, F.col("gaps")), F.lit(0))
    return checked.select(
        "date",
        "topic",
        "subscriber_session",
        "subscriber_peer",
        "subscriber_protocol",
        publications.alias("publications"),
        "delivered",
        (publications - F.col("delivered")).alias("lost"),
        "duplicated",
        "reordered",
    )


def _number_publications(deliveries: DataFrame) -> DataFrame:
    """Number the publications of each topic; `latest` is the highest number that a subscriber got before."""
    in_topic = Window.partitionBy(*_TOPIC_KEY).orderBy("published_seq", F.length("op"), "op")
    number = F.when(F.col("published_seq").isNotNull(), F.dense_rank().over(in_topic))
    so_far = (
        Window.partitionBy(*_SUBSCRIBER_KEY).orderBy("first_seq", "number").rowsBetween(Window.unboundedPreceding, -1)
    )
    subscriber = subscriber_key("subscriber_session", "subscriber_peer", "subscriber_protocol")
    columns = ("op", "published_seq", "first_seq", "copies", "subscriber_session", "subscriber_peer")
    numbered = deliveries.select(
        *_TOPIC_KEY, subscriber.alias("subscriber"), "subscriber_protocol", *columns
    ).withColumn("number", number)
    sent = numbered.withColumn("sent_number", F.when(F.col("first_seq").isNotNull(), F.col("number")))
    return sent.withColumn("latest", F.max("sent_number").over(so_far))


def _publishers(deliveries: DataFrame) -> DataFrame:
    """Return the publishers of each topic, with their session in the column of a subscriber's."""
    pairs = deliveries.filter("publisher_session is not null").select(
        *_TOPIC_KEY, F.col("publisher_session").alias("subscriber_session")
    )
    return pairs.distinct().withColumn("publishes", F.lit(True))


def _unsubscribers(names: DataFrame) -> DataFrame:
    """Return the subscribers that ended a subscription."""
    subscriber = subscriber_key("session", "peer", "protocol")
    return (
        names.filter("what = 'ended'")
        .select("date", "run", subscriber.alias("subscriber"))
        .distinct()
        .withColumn("leaves", F.lit(True))
    )
