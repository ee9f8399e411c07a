"""Gold tables about anomalies."""

from pyspark.sql import SparkSession

from fiveways.pipeline.gold.security_audit import security_audit
from fiveways.pipeline.gold.starved import starved
from tests.integration.pipeline.table_rows import (
    DAY,
    HOUR,
    MIDNIGHT,
    NEXT,
    NOON,
    Row,
    activity,
    calls,
    marks,
    messages,
    orphans,
    quarantine,
    sorted_rows,
)

WAITS: Row = {"caller_protocol": "nq", "accepted_at": NOON + 1, "outcome": "unanswered", "answers": 0}


def test_starved_lists_accepted_requests_without_response_or_cancellation(spark: SparkSession) -> None:
    table = starved(
        calls(
            spark,
            {**WAITS, "op": "1", "caller_peer": "conv", "forwards": 0},
            {**WAITS, "op": "2", "latency": 50, "outcome": "result"},
            {**WAITS, "op": "3", "cancelled_at": NOON + 9, "outcome": "cancelled"},
            {**WAITS, "op": "4", "accepted_at": None},
            {**WAITS, "op": "5", "requested_at": MIDNIGHT, "accepted_at": MIDNIGHT},
            {**WAITS, "op": None, "forwards": 3, "requested_at": NOON + 2},
        ),
        messages(spark),
        activity(spark, {"last_at": NOON + 100}, {"minute_at": MIDNIGHT - 60, "last_at": MIDNIGHT - 1, "run": "run0"}),
    )
    end = MIDNIGHT - 1
    caller = ("math.add", "c1")
    assert sorted_rows(table, " ".join(table.columns)) == sorted(
        [
            (DAY, "run1", "1", *caller, "conv", "nq", NOON, NOON + 1, end - NOON, 0),
            (NEXT, "run1", "5", *caller, None, "nq", MIDNIGHT, MIDNIGHT, 0, 1),
            (DAY, "run1", None, *caller, None, "nq", NOON + 2, NOON + 1, end - NOON - 2, 3),
        ],
        key=repr,
    )


def test_starved_excludes_requests_finished_by_the_next_hub(spark: SparkSession) -> None:
    request: Row = {"protocol": "nq", "peer": "conv", "session": "c1", "method": "math.add", "target": "math-add"}
    later: Row = {**request, "run": "run2", "session": "c2", "at": NOON + HOUR}
    waits: Row = {**WAITS, "caller_peer": "conv"}
    again: Row = {**waits, "run": "run2", "op": "1", "caller_session": "c2", "requested_at": NOON + HOUR}
    numbers = ("1", "2", "3", "4", "5")
    table = starved(
        calls(
            spark,
            *({**waits, "op": number} for number in numbers),
            {**again, "accepted_at": NOON + HOUR},
            {**waits, "op": None, "requested_at": NOON + 7},
        ),
        messages(
            spark,
            *({**request, "op": number, "id": f"r{number}"} for number in numbers),
            {**request, "id": "r9", "at": NOON + 7},
            # The next hub responded to the first; the second was repeated there without response, the third cancelled.
            {**later, "kind": "result", "direction": "out", "id": "r1", "target": "back"},
            {**later, "op": "1", "id": "r2"},
            {**later, "kind": "cancel", "id": "r3", "target": None},
            # Responses to other requests: of another peer, and to another target.
            {**later, "kind": "result", "direction": "out", "id": "r4", "peer": "conv2"},
            {**later, "op": "2", "id": "r5", "target": "math-sub", "method": "math.sub"},
            {**later, "kind": "failure", "direction": "out", "id": "r9"},
        ),
        activity(spark, {}, {"run": "run2", "minute_at": NOON + HOUR}),
    )
    assert sorted_rows(table, "run op waited_ns") == [("run1", "2", HOUR), ("run1", "4", HOUR), ("run1", "5", HOUR)]


def test_security_audit_counts_denials_unreadable_frames_and_stray_responses(spark: SparkSession) -> None:
    table = security_audit(
        marks(
            spark,
            {"kind": "deny", "reason": "no token", "session": "s1"},
            {"kind": "deny", "reason": "no token", "session": "s0", "at": NOON + 5},
            {"kind": "deny", "reason": "no token", "session": "s9", "at": NOON + 5},
            {"kind": "deny", "reason": "no token", "at": NOON + HOUR},
            {"kind": "deny", "reason": "no token", "peer": "eve"},
            {"kind": "drop", "reason": "slow"},
            {"kind": "drop", "reason": "3 records", "protocol": "none", "transport": "memory", "session": "journal"},
        ),
        quarantine(
            spark,
            {"at": MIDNIGHT},
            {"direction": "out"},
            {"reason": "payload cut"},
            {"reason": "payload left out"},
            {"reason": None},
        ),
        orphans(spark, {"status": "failed"}, {"direction": "out"}),
    )
    one = (1, NOON, NOON)
    assert sorted_rows(table, " ".join(table.columns)) == sorted(
        [
            (DAY, "12:00", "denied", "no token", None, "umq", "ws", 3, NOON, NOON + 5, "s9"),
            (DAY, "13:00", "denied", "no token", None, "umq", "ws", 1, NOON + HOUR, NOON + HOUR, "s1"),
            (DAY, "12:00", "denied", "no token", "eve", "umq", "ws", *one, "s1"),
            (DAY, "12:00", "unrecorded", "3 records", None, "none", "memory", *one, "journal"),
            (NEXT, "00:00", "unreadable", "no type", None, "umq", "ws", 1, MIDNIGHT, MIDNIGHT, "s1"),
            (DAY, "12:00", "unreadable", None, None, "umq", "ws", *one, "s1"),
            (DAY, "12:00", "stray", "failed", None, "umq", "ws", *one, "s1"),
        ],
        key=repr,
    )
