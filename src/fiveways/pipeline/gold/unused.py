"""Gold table `unused`: registered methods without calls, and subscribed topics without publications."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import utc_date


def unused(names: DataFrame, retries: DataFrame) -> DataFrame:
    """Which registered methods are never called, and which subscribed topics have no publications?

    One row per method, topic or pattern without use in all data. A route (`account.`) is used if a method below it is
    called, a pattern if a matching topic is published on. Methods of the hub's own process and services on an MQTT
    broker register without a message and are not listed.

    Columns:
        date: UTC day of the first registration or subscription
        what: method or topic
        name: name in the hub's spelling
        offered_by: first registered callee or subscriber; its session if it is anonymous
        protocol: protocol of that peer
        since_at: time of the first registration or subscription
    """
    offers = (
        names.filter("what in ('offered', 'subscribed')")
        # Within a run the order of records is exact; between runs only the clock is comparable.
        .groupBy("what", "name", "run")
        .agg(F.min(F.struct("first_seq", "first_at", "peer", "session", "protocol")).alias("first"))
        .groupBy("what", "name")
        .agg(F.min(F.struct(*(f"first.{name}" for name in ("first_at", "peer", "session", "protocol")))).alias("first"))
    )
    called = retries.select(F.col("method").alias("used")).filter("used is not null").distinct()
    published = names.filter("what = 'published'").select(F.col("name").alias("used")).distinct()
    unused_methods = _unused_offers(
        offers.filter("what = 'offered'"), called, F.col("name").endswith("."), _is_below_route()
    )
    unused_topics = _unused_offers(
        offers.filter("what = 'subscribed'"), published, F.col("name").contains("*"), _matches_pattern()
    )
    return unused_methods.unionByName(unused_topics).select(
        utc_date(F.col("first.first_at")).alias("date"),
        F.when(F.col("what") == "offered", "method").otherwise("topic").alias("what"),
        "name",
        F.coalesce("first.peer", "first.session").alias("offered_by"),
        F.col("first.protocol").alias("protocol"),
        F.col("first.first_at").alias("since_at"),
    )


def _unused_offers(offers: DataFrame, used: DataFrame, is_pattern: Column, matches: Column) -> DataFrame:
    """Return unused names; only routes and patterns are compared with all used names."""
    exact = offers.filter(~is_pattern).join(used, on=F.col("name") == F.col("used"), how="left_anti")
    patterns = offers.filter(is_pattern).join(F.broadcast(used), on=matches, how="left_anti")
    return exact.unionByName(patterns)


def _is_below_route() -> Column:
    return F.col("used").startswith(F.col("name"))


def _matches_pattern() -> Column:
    """Return whether a topic matches a pattern.

    Both are in the spelling with only letters, digits, `_` and `.`; `*` stands for one or more characters of a segment.
    A `*` at the beginning does not match topics that begin with `$`, which is written `__24`.
    """
    pattern = F.replace(F.replace("name", F.lit("."), F.lit("[.]")), F.lit("*"), F.lit("[^.]+"))
    is_hidden = F.col("used").startswith("__24") & F.col("name").startswith("*")
    return F.rlike("used", F.concat(F.lit("^"), pattern, F.lit("$"))) & ~is_hidden
