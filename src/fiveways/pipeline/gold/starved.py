"""Requests that wait for ever."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

_FIRST_REQUEST_COLUMNS: Final = {
    "run": "run",
    "op": "op",
    "caller_session": "session",
    "requested_at": "at",
    "method": "method",
}
"""What a call has in common with the message that was its first request."""


def starved(calls: DataFrame, messages: DataFrame, activity: DataFrame) -> DataFrame:
    """Which requests were accepted and never answered?

    One row per request that the hub took on, and that was neither answered nor cancelled until the end of the data. One
    that outlived its hub and was answered by the next is not among them; one that was repeated to the next counts once,
    from its beginning.

    Columns:
        date: day of the request in UTC
        run: one life of a hub
        op: the operation, null if unknown
        method: what was called
        caller_session: link of the first request
        caller_peer: who called
        caller_protocol: in which protocol
        requested_at: when the first request came
        accepted_at: when the caller was told that the request is safe
        waited_ns: from the request to the last record of the data
        forwards: how often it was passed on to a callee; 0 if nobody serves the method
    """
    is_waiting = "accepted_at is not null and answered_at is null and cancelled_at is null and requested_at is not null"
    waiting = calls.filter(is_waiting).select(
        *("date", "run", "op", "method", "caller_session", "caller_peer", "caller_protocol", "requested_at"),
        *("accepted_at", "forwards"),
    )
    later = _messages_in_later_runs(_requests_of_ended_runs(waiting, messages, activity), messages)
    over = later.filter("kind <> 'call'").select(*(F.col(f"old.{name}").alias(name) for name in _FIRST_REQUEST_COLUMNS))
    again = later.filter("kind = 'call'").select(
        *(F.col(theirs).alias(ours) for ours, theirs in _FIRST_REQUEST_COLUMNS.items())
    )
    gone = over.unionByName(again).distinct().alias("gone")
    is_gone = [F.col(f"waiting.{name}").eqNullSafe(F.col(f"gone.{name}")) for name in _FIRST_REQUEST_COLUMNS]
    left = waiting.alias("waiting").join(F.broadcast(gone), on=is_gone, how="left_anti")
    end = activity.agg(F.max("last_at").alias("end_at"))
    return left.crossJoin(F.broadcast(end)).select(
        *waiting.columns[:-1],
        F.greatest(F.col("end_at") - F.col("requested_at"), F.lit(0)).alias("waited_ns"),
        "forwards",
    )


def _requests_of_ended_runs(waiting: DataFrame, messages: DataFrame, activity: DataFrame) -> DataFrame:
    """Return those whose hub has had a successor, each with what NQ knows it by, whichever hub its peer talks to.

    There are few, and most often none: then Spark does not read the messages.
    """
    runs = activity.groupBy(F.col("run").alias("later_run")).agg(F.min("first_at").alias("begun_at"))
    has_successor = (F.col("begun_at") > F.col("requested_at")) & (F.col("later_run") != F.col("run"))
    older = waiting.join(F.broadcast(runs), on=has_successor, how="left_semi").select(
        *_FIRST_REQUEST_COLUMNS, "caller_peer"
    )
    requests = messages.filter(_is_message("call", "in") & (F.col("protocol") == "nq")).select(
        *_FIRST_REQUEST_COLUMNS.values(), "target", "id"
    )
    is_first = [
        F.col(f"old.{ours}").eqNullSafe(F.col(f"request.{theirs}")) for ours, theirs in _FIRST_REQUEST_COLUMNS.items()
    ]
    found = requests.alias("request").join(F.broadcast(older.alias("old")), on=is_first, how="inner")
    return found.select(
        F.struct(*(f"old.{name}" for name in _FIRST_REQUEST_COLUMNS)).alias("old"), "caller_peer", "target", "id"
    )


def _messages_in_later_runs(outlived: DataFrame, messages: DataFrame) -> DataFrame:
    """Return what was said about these requests in later runs: answers, cancellations, repeats."""
    ends = _is_message("result", "out") | _is_message("failure", "out") | _is_message("cancel", "in")
    said = messages.filter((F.col("protocol") == "nq") & (ends | _is_message("call", "in"))).select(
        *_FIRST_REQUEST_COLUMNS.values(),
        "kind",
        "peer",
        F.col("target").alias("said_target"),
        F.col("id").alias("said_id"),
    )
    # What an answer names besides the identifier is its backchannel; a repeat names the target again.
    is_about = (
        (F.col("peer") == F.col("caller_peer"))
        & (F.col("said_id") == F.col("id"))
        & ((F.col("kind") != "call") | (F.col("said_target") == F.col("target")))
        & (F.col("run") != F.col("old.run"))
        & (F.col("at") > F.col("old.requested_at"))
    )
    return said.join(F.broadcast(outlived), on=is_about, how="inner")


def _is_message(kind: str, direction: str) -> Column:
    return (F.col("kind") == kind) & (F.col("direction") == direction)
