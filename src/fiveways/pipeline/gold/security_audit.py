"""Gold table `security_audit`: denied requests, invalid frames and gaps in the journal."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import HOUR, to_timestamp, truncate_time, utc_date
from fiveways.pipeline.silver.sessions import NO_PROTOCOL

_JOURNAL_TRUNCATION_REASONS: Final = ("payload cut", "payload left out")
"""Reasons of frames that were valid when they arrived, but are not stored completely."""


def security_audit(marks: DataFrame, quarantine: DataFrame, orphans: DataFrame) -> DataFrame:
    """Which peers were denied, sent unreadable frames, or sent responses without a request?

    One row per hour, kind of event, reason, peer, protocol and transport. It covers frames from peers only, without
    those that the journal itself truncated. Records that the journal could not write are included, because their
    content is unknown.

    Columns:
        date: UTC day
        hour: start of the hour
        what: denied (a login or request), unreadable (a frame), stray (a response), unrecorded (lost journal records)
        reason: reason of the denial or error; for a stray response its status
        peer: NQ session or identity; null if anonymous
        protocol: protocol of the session
        transport: transport of the session
        count: number of events
        first_at: time of the first event
        last_at: time of the last event
        sample_session: session of the last event
    """
    reason = F.col("reason")
    denied = _audit_rows(marks.filter(F.col("kind") == "deny"), F.lit("denied"), reason)
    is_gap = (F.col("kind") == "drop") & (F.col("protocol") == NO_PROTOCOL)
    unrecorded = _audit_rows(marks.filter(is_gap), F.lit("unrecorded"), reason)
    is_from_peer = F.col("direction") == "in"
    is_truncated = F.coalesce(reason.isin(*_JOURNAL_TRUNCATION_REASONS), F.lit(False))
    unreadable = _audit_rows(quarantine.filter(is_from_peer & ~is_truncated), F.lit("unreadable"), reason)
    stray = _audit_rows(orphans.filter(is_from_peer), F.lit("stray"), F.col("status"))
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


def _audit_rows(rows: DataFrame, event: Column, reason: Column) -> DataFrame:
    return rows.select(
        "at", "seq", event.alias("what"), reason.alias("reason"), "peer", "protocol", "transport", "session"
    )
