"""Gold table `starved`: accepted requests without a response."""

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
"""Columns of a call, and the columns with the same values in the message of its first request."""


def starved(calls: DataFrame, messages: DataFrame, activity: DataFrame) -> DataFrame:
    """Which requests were accepted and never got a response?

    One row per request that the hub accepted and that has neither a response nor a cancellation in the data. A request
    that outlived its hub process and was finished by the next one is not listed. One that was repeated to the next
    process is listed once, from its beginning.

    Columns:
        date: UTC day of the request
        run: id of the hub process
        op: operation id; null if unknown
        method: name of the method
        caller_session: session of the first request
        caller_peer: NQ session or identity of the caller
        caller_protocol: protocol of the caller
        requested_at: arrival of the first request
        accepted_at: first acceptance sent to the caller
        waited_ns: time from the request to the last record of the data
        forwards: requests to callees; 0 if the method has no callee
    """
    is_waiting = "accepted_at is not null and answered_at is null and cancelled_at is null and requested_at is not null"
    waiting = calls.filter(is_waiting).select(
        *("date", "run", "op", "method", "caller_session", "caller_peer", "caller_protocol", "requested_at"),
        *("accepted_at", "forwards"),
    )
    later = _messages_in_later_runs(_requests_of_ended_runs(waiting, messages, activity), messages)
    completed = later.filter("kind <> 'call'").select(
        *(F.col(f"old.{name}").alias(name) for name in _FIRST_REQUEST_COLUMNS)
    )
    repeated = later.filter("kind = 'call'").select(
        *(F.col(theirs).alias(ours) for ours, theirs in _FIRST_REQUEST_COLUMNS.items())
    )
    resolved = completed.unionByName(repeated).distinct().alias("resolved")
    is_resolved = [F.col(f"waiting.{name}").eqNullSafe(F.col(f"resolved.{name}")) for name in _FIRST_REQUEST_COLUMNS]
    remaining = waiting.alias("waiting").join(F.broadcast(resolved), on=is_resolved, how="left_anti")
    end = activity.agg(F.max("last_at").alias("end_at"))
    return remaining.crossJoin(F.broadcast(end)).select(
        *waiting.columns[:-1],
        F.greatest(F.col("end_at") - F.col("requested_at"), F.lit(0)).alias("waited_ns"),
        "forwards",
    )


def _requests_of_ended_runs(waiting: DataFrame, messages: DataFrame, activity: DataFrame) -> DataFrame:
    """Return requests of hub processes with a successor, with the ids that identify them in NQ for any hub.

    There are few. Usually there are none, and Spark does not read the messages.
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
    first_requests = requests.alias("request").join(F.broadcast(older.alias("old")), on=is_first, how="inner")
    return first_requests.select(
        F.struct(*(f"old.{name}" for name in _FIRST_REQUEST_COLUMNS)).alias("old"), "caller_peer", "target", "id"
    )


def _messages_in_later_runs(outlived: DataFrame, messages: DataFrame) -> DataFrame:
    """Return the messages about these requests in later runs: responses, cancellations, repeats."""
    ends = _is_message("result", "out") | _is_message("failure", "out") | _is_message("cancel", "in")
    later = messages.filter((F.col("protocol") == "nq") & (ends | _is_message("call", "in"))).select(
        *_FIRST_REQUEST_COLUMNS.values(),
        "kind",
        "peer",
        F.col("target").alias("later_target"),
        F.col("id").alias("later_id"),
    )
    # The target of a response is its backchannel; a repeated request has the original target.
    is_about = (
        (F.col("peer") == F.col("caller_peer"))
        & (F.col("later_id") == F.col("id"))
        & ((F.col("kind") != "call") | (F.col("later_target") == F.col("target")))
        & (F.col("run") != F.col("old.run"))
        & (F.col("at") > F.col("old.requested_at"))
    )
    return later.join(F.broadcast(outlived), on=is_about, how="inner")


def _is_message(kind: str, direction: str) -> Column:
    return (F.col("kind") == kind) & (F.col("direction") == direction)
