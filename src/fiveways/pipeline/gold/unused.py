"""What nobody needs."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import utc_date


def unused(names: DataFrame, retries: DataFrame) -> DataFrame:
    """Which methods are offered and never called, which topics subscribed to and never published?

    One row per method, or topic or pattern, of which all of the data has no use. A route (`account.`) is used if
    anything below it is called; a pattern, if anything that it matches is published. Methods of the hub's own process
    and services on a broker are offered without a message, and so are not here.

    Columns:
        date: day of the first offer in UTC
        what: method or topic
        name: in the hub's own spelling
        offered_by: who offered or subscribed first; the link, if that is nobody
        protocol: in which protocol
        since_at: when
    """
    offers = (
        names.filter("what in ('offered', 'subscribed')")
        # Within a run the order of its records tells who was first; between runs only the clock does.
        .groupBy("what", "name", "run")
        .agg(F.min(F.struct("first_seq", "first_at", "peer", "session", "protocol")).alias("first"))
        .groupBy("what", "name")
        .agg(F.min(F.struct(*(f"first.{name}" for name in ("first_at", "peer", "session", "protocol")))).alias("first"))
    )
    called = retries.select(F.col("method").alias("used")).filter("used is not null").distinct()
    published = names.filter("what = 'published'").select(F.col("name").alias("used")).distinct()
    idle_methods = _unused_offers(
        offers.filter("what = 'offered'"), called, F.col("name").endswith("."), _is_below_route()
    )
    idle_topics = _unused_offers(
        offers.filter("what = 'subscribed'"), published, F.col("name").contains("*"), _matches_pattern()
    )
    return idle_methods.unionByName(idle_topics).select(
        utc_date(F.col("first.first_at")).alias("date"),
        F.when(F.col("what") == "offered", "method").otherwise("topic").alias("what"),
        "name",
        F.coalesce("first.peer", "first.session").alias("offered_by"),
        F.col("first.protocol").alias("protocol"),
        F.col("first.first_at").alias("since_at"),
    )


def _unused_offers(offers: DataFrame, used: DataFrame, is_wide: Column, fits: Column) -> DataFrame:
    """Return offers of which nothing was used; only those that stand for many names are held against all of them."""
    narrow = offers.filter(~is_wide).join(used, on=F.col("name") == F.col("used"), how="left_anti")
    wide = offers.filter(is_wide).join(F.broadcast(used), on=fits, how="left_anti")
    return narrow.unionByName(wide)


def _is_below_route() -> Column:
    return F.col("used").startswith(F.col("name"))


def _matches_pattern() -> Column:
    """Say whether a topic is one that a pattern stands for.

    Both are in the spelling that has letters, digits, `_` and `.` only, and `*` for one character or more of a segment.
    A `*` at the very beginning stands for no topic that begins with `$`, which is written `__24`.
    """
    pattern = F.replace(F.replace("name", F.lit("."), F.lit("[.]")), F.lit("*"), F.lit("[^.]+"))
    is_hidden = F.col("used").startswith("__24") & F.col("name").startswith("*")
    return F.rlike("used", F.concat(F.lit("^"), pattern, F.lit("$"))) & ~is_hidden
