"""Calls, each with both its legs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.silver import call_merging


def calls(shared: DataFrame) -> DataFrame:
    """What became of each call, and where did its time go?

    One row per operation, a call of one of the hub's own methods among them. Where no operation is known, one row per
    request on one leg: a row of the callee's leg has no caller, no latency and no attempts, and its outcome is what the
    callee said. Callbacks, publications and requests for descriptions are no calls. First is what the hub recorded
    first (by `seq`), also if the clock was set back meanwhile.

    Columns:
        date: day of the first request in UTC; if that is unknown, of the first passing on
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
        negative_durations: durations of this row that came out negative, as the clock was set back; these are null
    """
    hashed = shared.withColumn(call_merging.HASH, call_merging.key_hash())
    keys = F.broadcast(call_merging.shared_keys(shared))
    alone = call_merging.calls_in_one_segment(hashed.join(keys, on=call_merging.HASH, how="left_anti"))
    return alone.unionByName(
        call_merging.calls_across_segments(hashed.join(keys, on=call_merging.HASH, how="left_semi"))
    )
