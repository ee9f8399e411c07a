"""Work table `_names`: registered, subscribed and published names per day, a small extract of all messages."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import DAY_NS, truncate_time, utc_date

_KEYS: Final = ("what", "name", "run", "session", "peer", "protocol")
_REQUEST_KEY: Final = ("run", "session", "id")
_POSITION_COLUMNS: Final = ("seq", "part")
"""Position of a message in its run."""


def names(messages: DataFrame) -> DataFrame:
    """Which names were registered, subscribed to, published on, or unsubscribed from?

    One row per day, name and peer; publications do not name the peer. Requests that the hub refused are left out.

    Columns:
        date: UTC day
        what: offered (a method), subscribed (a topic), published (on a topic), ended (a subscription)
        name: method, topic or pattern; null where a subscription ended
        run: id of the hub process
        session: name of the session; null for publications
        peer: NQ session or identity; null if anonymous
        protocol: protocol of the session; null for publications
        first_at: time of the first message that day
        first_seq: record number of that message
    """
    published = messages.filter(_is_operation("publish", "hub.publish") | (F.col("kind") == "event")).select(
        F.lit("published").alias("what"),
        F.col("topic").alias("name"),
        "run",
        *(F.lit(None).cast("string").alias(name) for name in ("session", "peer", "protocol")),
        "at",
        "seq",
    )
    events = (
        published.filter("name is not null")
        .unionByName(_accepted_offers(messages).select(*published.columns))
        .unionByName(_ended_subscriptions(messages).select(*published.columns))
    )
    groups = events.groupBy(truncate_time("at", DAY_NS).alias("day_at"), *_KEYS).agg(
        F.min(F.struct("seq", "at")).alias("first")
    )
    return groups.select(
        utc_date(F.col("day_at")).alias("date"),
        *_KEYS,
        F.col("first.at").alias("first_at"),
        F.col("first.seq").alias("first_seq"),
    )


def _is_operation(kind: str, method: str) -> Column:
    """Return whether a message is of this kind, or calls the corresponding built-in method."""
    return (F.col("kind") == kind) | ((F.col("kind") == "call") & (F.col("method") == method))


def _accepted_offers(messages: DataFrame) -> DataFrame:
    """Return registrations and subscriptions without those that got a failure as first response."""
    is_registration = (F.col("kind") == "call") & (F.col("method") == "hub.register")
    requests = messages.filter(
        (F.col("direction") == "in")
        & F.col("topic").isNotNull()
        & (is_registration | _is_operation("subscribe", "hub.subscribe"))
    ).select(
        F.when(is_registration, "offered").otherwise("subscribed").alias("what"),
        F.col("topic").alias("name"),
        "peer",
        "protocol",
        "at",
        *_REQUEST_KEY,
        *_POSITION_COLUMNS,
    )
    return requests.join(
        F.broadcast(_refused_offers(requests, messages)), on=[*_REQUEST_KEY, *_POSITION_COLUMNS], how="left_anti"
    )


def _refused_offers(requests: DataFrame, messages: DataFrame) -> DataFrame:
    """Return requests with a failure as first response; only for these few are the results searched."""
    request_keys = F.broadcast(requests.select(*_REQUEST_KEY, *_POSITION_COLUMNS))
    is_behind = F.col("answer") > F.struct(*_POSITION_COLUMNS)
    failed = (
        _answers(messages, "failure")
        .join(request_keys, on=[*_REQUEST_KEY], how="inner")
        .filter(is_behind)
        .groupBy(*_REQUEST_KEY, *_POSITION_COLUMNS)
        .agg(F.min("answer").alias("failure"))
    )
    with_earlier_result = (
        _answers(messages, "result")
        .join(F.broadcast(failed), on=[*_REQUEST_KEY], how="inner")
        .filter(is_behind & (F.col("answer") < F.col("failure")))
    )
    return failed.join(
        F.broadcast(with_earlier_result.select(*_REQUEST_KEY, *_POSITION_COLUMNS)),
        on=[*_REQUEST_KEY, *_POSITION_COLUMNS],
        how="left_anti",
    )


def _answers(messages: DataFrame, kind: str) -> DataFrame:
    return messages.filter((F.col("direction") == "out") & (F.col("kind") == kind)).select(
        *_REQUEST_KEY, F.struct(*_POSITION_COLUMNS).alias("answer")
    )


def _ended_subscriptions(messages: DataFrame) -> DataFrame:
    """Return ended subscriptions, of clients that unsubscribed and of closed topics."""
    ended = _is_operation("unsubscribe", "hub.unsubscribe") | (F.col("kind") == "topic_closed")
    nothing = F.lit(None).cast("string").alias("name")
    return messages.filter(ended).select(
        F.lit("ended").alias("what"), nothing, "run", "session", "peer", "protocol", "at", "seq"
    )
