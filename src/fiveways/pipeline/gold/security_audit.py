"""Who tried what they may not, or should not."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import HOUR, to_timestamp, truncate_time, utc_date
from fiveways.pipeline.silver.sessions import NO_PROTOCOL

_JOURNAL_TRUNCATION_REASONS: Final = ("payload cut", "payload left out")
"""Why a frame cannot be read that was good when it came: the journal was told to keep less of it."""


def security_audit(marks: DataFrame, quarantine: DataFrame, orphans: DataFrame) -> DataFrame:
    """Who was refused, sent what nobody can read, or answered what nobody asked?

    One row per hour, what it was, its reason and whose it was. Only what came from peers is here, and frames that the
    journal itself has cut are not; but records that the journal could not write are, since what they held is unknown.

    Columns:
        date: day in UTC
        hour: when the hour began
        what: denied (a login or a request), unreadable (a frame), stray (an answer), unrecorded (parts of the journal)
        reason: why it was refused, or cannot be read; of a stray answer its status
        peer: who, null if nobody
        protocol: which one
        transport: how it came
        count: how often
        first_at: for the first time
        last_at: for the last time
        sample_session: link of the last of them by the clock
    """
    told = F.col("reason")
    denied = _audit_rows(marks.filter(F.col("kind") == "deny"), F.lit("denied"), told)
    is_gap = (F.col("kind") == "drop") & (F.col("protocol") == NO_PROTOCOL)
    unrecorded = _audit_rows(marks.filter(is_gap), F.lit("unrecorded"), told)
    is_theirs = F.col("direction") == "in"
    is_cut = F.coalesce(told.isin(*_JOURNAL_TRUNCATION_REASONS), F.lit(False))
    unreadable = _audit_rows(quarantine.filter(is_theirs & ~is_cut), F.lit("unreadable"), told)
    stray = _audit_rows(orphans.filter(is_theirs), F.lit("stray"), F.col("status"))
    keys = ("what", "reason", "peer", "protocol", "transport")
    groups = (
        denied.unionByName(unrecorded)
        .unionByName(unreadable)
        .unionByName(stray)
        .groupBy(truncate_time("at", HOUR).alias("hour_at"), *keys)
        .agg(
            F.count("*").alias("count"),
            F.min("at").alias("first_at"),
            F.max(F.struct("at", "seq", "session")).alias("last"),
        )
    )
    return groups.select(
        utc_date(F.col("hour_at")).alias("date"),
        to_timestamp("hour_at").alias("hour"),
        *keys,
        "count",
        "first_at",
        F.col("last.at").alias("last_at"),
        F.col("last.session").alias("sample_session"),
    )


def _audit_rows(rows: DataFrame, what: Column, reason: Column) -> DataFrame:
    return rows.select(
        "at", "seq", what.alias("what"), reason.alias("reason"), "peer", "protocol", "transport", "session"
    )
