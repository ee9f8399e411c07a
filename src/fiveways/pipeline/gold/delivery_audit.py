"""Whether subscribers got what was published."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import count_where, subscriber_key

_TOPIC_KEY: Final = ("date", "run", "topic")
_SUBSCRIBER_KEY: Final = (*_TOPIC_KEY, "who", "subscriber_protocol")


def delivery_audit(deliveries: DataFrame, names: DataFrame) -> DataFrame:
    """Did every subscriber get everything, once, and in order?

    One row per day, topic and subscriber: a link, or in NQ a conversation over all its links. What was for a subscriber
    is what there is a record of, sent or dropped, and every publication to the topic between the first and the last of
    these that has no record. The latter are not counted for who gave up a subscription that day or published to the
    topic itself, since it may not have wanted them.

    Columns:
        date: day of the publications in UTC
        topic: what was published to
        subscriber_session: the link; the last one, if there were several
        subscriber_peer: whose it is, null if nobody's
        subscriber_protocol: which one
        publications: publications that were for it
        delivered: those that were sent to it
        lost: those that were dropped, or vanished without a record
        duplicated: those that were sent to it more than once
        reordered: those that were sent to it behind a later one
    """
    got = (
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
    named = got.select("*", F.col("last.subscriber_session"), F.col("last.subscriber_peer"))
    judged = named.join(F.broadcast(_publishers(deliveries)), on=[*_TOPIC_KEY, "subscriber_session"], how="left").join(
        F.broadcast(_unsubscribers(names)), on=["date", "run", "who"], how="left"
    )
    is_sure = F.col("publishes").isNull() & F.col("leaves").isNull()
    publications = F.col("known") + F.coalesce(F.when(is_sure, F.col("gaps")), F.lit(0))
    return judged.select(
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
    """Count the publications of each topic, and say how far each subscriber was when it got one."""
    in_topic = Window.partitionBy(*_TOPIC_KEY).orderBy("published_seq", F.length("op"), "op")
    number = F.when(F.col("published_seq").isNotNull(), F.dense_rank().over(in_topic))
    so_far = (
        Window.partitionBy(*_SUBSCRIBER_KEY).orderBy("first_seq", "number").rowsBetween(Window.unboundedPreceding, -1)
    )
    who = subscriber_key("subscriber_session", "subscriber_peer", "subscriber_protocol")
    columns = ("op", "published_seq", "first_seq", "copies", "subscriber_session", "subscriber_peer")
    numbered = deliveries.select(*_TOPIC_KEY, who.alias("who"), "subscriber_protocol", *columns).withColumn(
        "number", number
    )
    sent = numbered.withColumn("sent_number", F.when(F.col("first_seq").isNotNull(), F.col("number")))
    return sent.withColumn("latest", F.max("sent_number").over(so_far))


def _publishers(deliveries: DataFrame) -> DataFrame:
    """Return who publishes to a topic, under the name of a subscriber."""
    pairs = deliveries.filter("publisher_session is not null").select(
        *_TOPIC_KEY, F.col("publisher_session").alias("subscriber_session")
    )
    return pairs.distinct().withColumn("publishes", F.lit(True))


def _unsubscribers(names: DataFrame) -> DataFrame:
    """Return who has ended a subscription."""
    who = subscriber_key("session", "peer", "protocol")
    return (
        names.filter("what = 'ended'")
        .select("date", "run", who.alias("who"))
        .distinct()
        .withColumn("leaves", F.lit(True))
    )
