"""Calls, each with both its legs."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import schemas
from fiveways.pipeline.silver import merging

DAY: Final = 86_400_000_000_000


def calls(pieces: DataFrame) -> DataFrame:
    """What became of each call, and where did its time go?

    One row per operation, a call of one of the hub's own methods among them. Where no operation is known, one row per
    request on one leg: a row of the callee's leg has no caller, no latency and no attempts, and its outcome is what the
    callee said. Callbacks, publications and requests for descriptions are no calls.

    Columns:
        date: day of the request in UTC, or of the first that is known of the call
        run: one life of a hub
        op: the operation, null if unknown
        method: what was called, in the hub's own spelling
        caller_session: link of the first request
        caller_peer: who called
        caller_protocol: in which protocol
        callee_session: link on which the request was first passed on
        callee_peer: who was called
        callee_protocol: in which protocol
        requested_at: when the first request came
        accepted_at: when the caller was first told that the request is safe
        forwarded_at: when it was first passed on
        returned_at: when the first answer of a callee came
        answered_at: when the first answer was sent to the caller
        cancelled_at: when the caller first said that it wants no answer
        outcome: result, failed, not_executed, timeout, lost, cancelled, unanswered
        reason: why it failed
        code: why it failed, as on the wire
        attempts: requests of the caller, repeats included
        answers: answers to the caller, repeats included
        forwards: requests to callees, repeats included
        returns: answers of callees, repeats included
        parts: elements of a streamed answer sent to the caller, without the last
        progress: messages to the caller on how it goes
        useless: requests that came when the answer had been sent
        request_size: bytes of the first request's frame
        answer_size: bytes of the first answer's frame
        latency_ns: from first request to first answer
        callee_ns: from first passing on to the callee's first answer
        hub_ns: what is left of the latency
    """
    hashed = pieces.withColumn(merging.HASH, merging.key_hash())
    shared = merging.shared_keys(pieces)
    alone = hashed.join(F.broadcast(shared), on=merging.HASH, how="left_anti")
    # What is shared lacks something here, as a rule, and such rows are few and the first of their file. The whole ones
    # are read again only if one of them is shared too: where the second list is empty, Spark leaves the reading out.
    lacking = hashed.filter("whole = false").join(F.broadcast(shared), on=merging.HASH, how="left_semi")
    whole = hashed.filter("whole = true").join(F.broadcast(shared.filter("is_whole")), on=merging.HASH, how="left_semi")
    return _rows(alone).unionByName(_rows(merging.merged(lacking.unionByName(whole))))


def date_of(at: Column) -> Column:
    """Return the day of a time in UTC as text, whatever Spark thinks of time zones."""
    # Whole days are exact as floating numbers, single nanoseconds are not.
    days = (at - F.pmod(at, F.lit(DAY))) / DAY
    return F.date_from_unix_date(days.cast("int")).cast("string")


def _rows(pieces: DataFrame) -> DataFrame:
    """Turn pieces that are complete into calls."""
    answered, forwarded = F.col("answers") > 0, F.col("forwards") > 0
    # What callees say is told apart from a subscriber's answers by there having been a request.
    returned_at = F.when(forwarded, F.col("returned_at"))
    latency, callee = F.col("answered_at") - F.col("requested_at"), returned_at - F.col("forwarded_at")
    is_callees = F.coalesce(F.col("leg") == "callee", F.lit(False))
    ended = F.when(answered, F.col("status")).when(F.col("cancelled_at").isNotNull(), "cancelled")
    outcome = F.coalesce(F.when(is_callees, F.col("returned_status")).otherwise(ended), F.lit("unanswered"))
    first_at = F.coalesce("requested_at", F.least("forwarded_at", "returned_at", "answered_at"))
    made = {
        "date": date_of(first_at),
        "method": F.coalesce("method", "callee_method"),
        "returned_at": returned_at,
        "outcome": outcome,
        "reason": F.when(is_callees, F.col("returned_reason")).otherwise(F.col("reason")),
        "code": F.when(is_callees, F.col("returned_code")).otherwise(F.col("code")),
        "returns": F.when(forwarded, F.col("returns")).otherwise(0),
        "latency_ns": latency,
        "callee_ns": callee,
        "hub_ns": latency - callee,
    }
    is_call = (F.col("attempts") > 0) | (forwarded & (F.col("others_in") == 0))
    names = schemas.CALLS.fieldNames()
    return pieces.filter(is_call).select(*(made.get(name, F.col(name)).alias(name) for name in names))
