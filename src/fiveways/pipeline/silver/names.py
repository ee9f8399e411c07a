"""Which methods and topics were spoken of, day by day: a few rows out of all messages."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import DAY_NS, truncate_time, utc_date

_KEYS: Final = ("what", "name", "run", "session", "peer", "protocol")
_REQUEST_KEY: Final = ("run", "session", "id")
_POSITION_COLUMNS: Final = ("seq", "part")
"""Where a message stands in its run."""


def names(messages: DataFrame) -> DataFrame:
    """Which names were offered, subscribed to, published to and given up?

    One row per day, name and who spoke of it; who published to a topic is not told. What the hub refused is left out.

    Columns:
        date: day in UTC
        what: offered (a method), subscribed (to a topic), published (to a topic), ended (some subscription)
        name: the method, or the topic or pattern; null where a subscription ended
        run: one life of a hub
        session: the link; null for what was published
        peer: whose it is, null if nobody's
        protocol: which one; null for what was published
        first_at: when it was first said that day
        first_seq: the number of the record of that
    """
    published = messages.filter(_is_operation("publish", "hub.publish") | (F.col("kind") == "event")).select(
        F.lit("published").alias("what"),
        F.col("topic").alias("name"),
        "run",
        *(F.lit(None).cast("string").alias(each) for each in ("session", "peer", "protocol")),
        "at",
        "seq",
    )
    spoken = (
        published.filter("name is not null")
        .unionByName(_accepted_offers(messages).select(*published.columns))
        .unionByName(_ended_subscriptions(messages).select(*published.columns))
    )
    groups = spoken.groupBy(truncate_time("at", DAY_NS).alias("day_at"), *_KEYS).agg(
        F.min(F.struct("seq", "at")).alias("first")
    )
    return groups.select(
        utc_date(F.col("day_at")).alias("date"),
        *_KEYS,
        F.col("first.at").alias("first_at"),
        F.col("first.seq").alias("first_seq"),
    )


def _is_operation(kind: str, method: str) -> Column:
    """Say whether a message is of this kind, or calls the built-in method that means the same."""
    return (F.col("kind") == kind) | ((F.col("kind") == "call") & (F.col("method") == method))


def _accepted_offers(messages: DataFrame) -> DataFrame:
    """Return offers and subscriptions, but not those whose first answer is a failure."""
    offered = (F.col("kind") == "call") & (F.col("method") == "hub.register")
    claims = messages.filter(
        (F.col("direction") == "in")
        & F.col("topic").isNotNull()
        & (offered | _is_operation("subscribe", "hub.subscribe"))
    ).select(
        F.when(offered, "offered").otherwise("subscribed").alias("what"),
        F.col("topic").alias("name"),
        "peer",
        "protocol",
        "at",
        *_REQUEST_KEY,
        *_POSITION_COLUMNS,
    )
    return claims.join(
        F.broadcast(_refused_offers(claims, messages)), on=[*_REQUEST_KEY, *_POSITION_COLUMNS], how="left_anti"
    )


def _refused_offers(claims: DataFrame, messages: DataFrame) -> DataFrame:
    """Return claims whose first answer is a failure: few fail, so that results are looked through for these alone."""
    asked = F.broadcast(claims.select(*_REQUEST_KEY, *_POSITION_COLUMNS))
    is_behind = F.col("answer") > F.struct(*_POSITION_COLUMNS)
    failed = (
        _answers(messages, "failure")
        .join(asked, on=[*_REQUEST_KEY], how="inner")
        .filter(is_behind)
        .groupBy(*_REQUEST_KEY, *_POSITION_COLUMNS)
        .agg(F.min("answer").alias("failure"))
    )
    done_before = (
        _answers(messages, "result")
        .join(F.broadcast(failed), on=[*_REQUEST_KEY], how="inner")
        .filter(is_behind & (F.col("answer") < F.col("failure")))
    )
    return failed.join(
        F.broadcast(done_before.select(*_REQUEST_KEY, *_POSITION_COLUMNS)),
        on=[*_REQUEST_KEY, *_POSITION_COLUMNS],
        how="left_anti",
    )


def _answers(messages: DataFrame, kind: str) -> DataFrame:
    return messages.filter((F.col("direction") == "out") & (F.col("kind") == kind)).select(
        *_REQUEST_KEY, F.struct(*_POSITION_COLUMNS).alias("answer")
    )


def _ended_subscriptions(messages: DataFrame) -> DataFrame:
    """Return who ended a subscription, or whose was ended."""
    ended = _is_operation("unsubscribe", "hub.unsubscribe") | (F.col("kind") == "topic_closed")
    nothing = F.lit(None).cast("string").alias("name")
    return messages.filter(ended).select(
        F.lit("ended").alias("what"), nothing, "run", "session", "peer", "protocol", "at", "seq"
    )
