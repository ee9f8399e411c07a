"""Silver table `calls`: calls with both the caller's and the callee's side."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.silver import call_merging


def calls(shared: DataFrame) -> DataFrame:
    """How did each call end, and where was its time spent?

    One row per operation, including calls of built-in methods. Without an operation id, one row per request on one
    side: a row of the callee's side has no caller, latency or attempts, and its outcome is the callee's response.
    Callbacks, publications and description requests are not calls. "First" refers to the order of recording (`seq`),
    even if the clock was set back.

    Columns:
        date: UTC day of the first request; if unknown, of the first forwarding
        run: id of the hub process
        op: operation id; null if unknown
        method: name of the method in the hub's spelling
        caller_session: session of the first request
        caller_peer: NQ session or identity of the caller
        caller_protocol: protocol of the caller
        callee_session: session to which the request was first forwarded
        callee_peer: NQ session or identity of the callee
        callee_protocol: protocol of the callee
        requested_at: arrival of the first request
        accepted_at: first acceptance sent to the caller
        forwarded_at: first forwarding of the request to a callee
        returned_at: first response of a callee
        answered_at: first response to the caller
        cancelled_at: first cancellation by the caller
        outcome: result, failed, not_executed, timeout, lost, cancelled, unanswered
        reason: reason of a failure
        code: error code of a failure on the wire
        attempts: requests of the caller, including repeats
        answers: responses to the caller, including repeats
        forwards: requests to callees, including repeats
        returns: responses of callees, including repeats
        parts: stream parts sent to the caller, without the last one
        progress: progress messages sent to the caller
        useless: requests that arrived after the response was sent
        request_size: bytes of the frame with the first request
        answer_size: bytes of the frame with the first response
        latency_ns: time from the first request to the first response
        callee_ns: time from the first forwarding to the callee's first response
        hub_ns: the rest of the latency
        negative_durations: durations of this row that were negative because the clock was set back, and are null
    """
    hashed = shared.withColumn(call_merging.HASH, call_merging.key_hash())
    keys = F.broadcast(call_merging.shared_keys(shared))
    in_one_segment = call_merging.calls_in_one_segment(hashed.join(keys, on=call_merging.HASH, how="left_anti"))
    return in_one_segment.unionByName(
        call_merging.calls_across_segments(hashed.join(keys, on=call_merging.HASH, how="left_semi"))
    )
