"""Cases of matching: messages, the expected calls, and the numbers of the expected orphans."""

from tests.support.reference_matching import Case, Row, answered_row, call_row, caller_row, message

OF_UMQ: Row = {"caller_session": "s", "caller_protocol": "umq"}
TO_LRPM: Row = {"callee_session": "t", "callee_peer": "q", "callee_protocol": "lrpm-json"}
FAILED = {"status": "failed", "reason": "raised", "code": "6"}
CALLEE = {"session": "t", "peer": "q", "protocol": "lrpm-json"}
NQ = {"protocol": "nq", "session": "s", "peer": "p"}

BY_OPERATION = {
    "a call goes both legs": Case(
        [
            message(1, "in", "call", op="7", id="a", peer="p"),
            message(3, "out", "call", op="7", id="256", method="math.plus", **CALLEE),
            message(8, "in", "result", op="7", id="256", **CALLEE),
            message(10, "out", "result", op="7", id="a", peer="p"),
        ],
        [
            call_row(
                op="7",
                caller_session="s",
                caller_peer="p",
                caller_protocol="umq",
                **TO_LRPM,
                requested_at=1,
                forwarded_at=3,
                returned_at=8,
                answered_at=10,
                outcome="result",
                attempts=1,
                answers=1,
                forwards=1,
                returns=1,
                request_size=101,
                answer_size=110,
                latency_ns=9,
                callee_ns=5,
                hub_ns=4,
            )
        ],
    ),
    "a call is refused and never forwarded": Case(
        [
            message(1, "in", "call", op="7", id="a", method="no.such"),
            message(2, "out", "failure", op="7", id="a", status="not_executed", reason="no_such_method", code="7"),
        ],
        [
            call_row(
                op="7",
                method="no.such",
                **OF_UMQ,
                requested_at=1,
                answered_at=2,
                outcome="not_executed",
                reason="no_such_method",
                code="7",
                attempts=1,
                answers=1,
                request_size=101,
                answer_size=102,
                latency_ns=1,
            )
        ],
    ),
    "requests, forwards and answers are repeated, over other sessions and to other callees": Case(
        [
            message(1, "in", "call", op="7", id="a", **NQ),
            message(2, "out", "accepted", op="7", id="a", **NQ),
            message(3, "out", "call", op="7", id="1", **CALLEE),
            message(4, "in", "call", op="7", id="a", protocol="nq", session="s2", peer="p"),
            message(5, "out", "accepted", op="7", id="a", **NQ),
            message(6, "out", "call", op="7", id="9", session="u", protocol="umq36"),
            message(7, "out", "progress", op="7", id="a", **NQ),
            message(8, "in", "failure", op="7", id="9", session="u", protocol="umq36", **FAILED),
            message(9, "out", "failure", op="7", id="a", **NQ, **FAILED),
            message(10, "in", "result", op="7", id="1", **CALLEE),
            message(11, "in", "call", op="7", id="a", **NQ),
            message(12, "out", "failure", op="7", id="a", **NQ, **FAILED),
            message(13, "in", "ack", op="7", target="x", **NQ),
        ],
        [
            call_row(
                op="7",
                caller_session="s",
                caller_peer="p",
                caller_protocol="nq",
                **TO_LRPM,
                requested_at=1,
                accepted_at=2,
                forwarded_at=3,
                returned_at=8,
                answered_at=9,
                outcome="failed",
                reason="raised",
                code="6",
                attempts=3,
                answers=2,
                forwards=2,
                returns=2,
                progress=1,
                useless=1,
                request_size=101,
                answer_size=109,
                latency_ns=8,
                callee_ns=5,
                hub_ns=3,
            )
        ],
    ),
    "the answer is streamed": Case(
        [
            message(1, "in", "call", op="7", id="a"),
            message(2, "in", "call_part", op="7", id="a"),
            message(3, "out", "part", op="7", id="a"),
            message(4, "in", "part", op="7", id="1", **CALLEE),
            message(5, "out", "part", op="7", id="a"),
            message(6, "out", "result", op="7", id="a"),
        ],
        [
            call_row(
                op="7",
                **OF_UMQ,
                requested_at=1,
                answered_at=6,
                outcome="result",
                attempts=1,
                answers=1,
                parts=2,
                request_size=101,
                answer_size=106,
                latency_ns=5,
            )
        ],
    ),
    "a caller cancels and hears no more": Case(
        [message(1, "in", "call", op="7", id="a"), message(2, "in", "cancel", op="7", id="a")],
        [
            call_row(
                op="7",
                **OF_UMQ,
                requested_at=1,
                cancelled_at=2,
                outcome="cancelled",
                attempts=1,
                request_size=101,
            )
        ],
    ),
    "nobody answers": Case(
        [message(1, "in", "call", op="7", id="a"), message(2, "out", "call", op="7", id="1", **CALLEE)],
        [
            call_row(
                op="7",
                **OF_UMQ,
                **TO_LRPM,
                requested_at=1,
                forwarded_at=2,
                outcome="unanswered",
                attempts=1,
                forwards=1,
                request_size=101,
            )
        ],
    ),
    "the caller's request was not written down": Case(
        [
            message(1, "out", "call", op="7", id="1", **CALLEE),
            message(2, "in", "result", op="7", id="1", **CALLEE),
            message(3, "out", "result", op="7", id="a"),
        ],
        [
            call_row(
                op="7",
                **TO_LRPM,
                forwarded_at=1,
                returned_at=2,
                answered_at=3,
                outcome="result",
                answers=1,
                forwards=1,
                returns=1,
                answer_size=103,
                callee_ns=1,
            )
        ],
        orphans=(3,),
    ),
    "answers to nobody, of an operation that is known by them alone": Case(
        [message(1, "in", "result", op="7", id="1"), message(2, "in", "result", op="7", id="1")], [], orphans=(1, 2)
    ),
    "callbacks, publications and events are no calls, and their answers no orphans": Case(
        [
            message(1, "in", "callback", op="7", id="a"),
            message(2, "out", "callback", op="7", id="1", **CALLEE),
            message(3, "in", "result", op="7", id="1", **CALLEE),
            message(4, "out", "result", op="7", id="a"),
            message(5, "in", "publish", op="p8", id="300", **CALLEE),
            message(6, "out", "event", op="p8", id="e1", target="news", **NQ),
            message(7, "out", "event", op="p8", target="3"),
            message(8, "out", "result", op="p8", id="300", **CALLEE),
            message(9, "in", "result", op="p8", id="e1", target="b", **NQ),
            message(10, "in", "result", id="e1", target="b", **NQ),
        ],
        [],
    ),
    "a publication made by a call is one that was never forwarded": Case(
        [
            message(1, "in", "call", op="p8", id="a", method="hub.publish"),
            message(2, "out", "event", op="p8", id="e1", target="news", **NQ),
            message(3, "out", "result", op="p8", id="a"),
            message(4, "in", "result", op="p8", id="e1", target="b", **NQ),
            message(5, "in", "result", op="p8", id="e2", target="b", **NQ),
        ],
        [
            call_row(
                op="p8",
                method="hub.publish",
                **OF_UMQ,
                requested_at=1,
                answered_at=3,
                outcome="result",
                attempts=1,
                answers=1,
                request_size=101,
                answer_size=103,
                latency_ns=2,
            )
        ],
        orphans=(5,),
    ),
}

CLOCK_SET_BACK = {
    "the clock is set back while the callee works": Case(
        [
            message(1, "in", "call", op="7", id="a", at=1000),
            message(2, "out", "call", op="7", id="1", at=1001, **CALLEE),
            message(3, "in", "result", op="7", id="1", at=11, **CALLEE),
            message(4, "out", "result", op="7", id="a", at=12),
        ],
        [
            call_row(
                op="7",
                **OF_UMQ,
                **TO_LRPM,
                requested_at=1000,
                forwarded_at=1001,
                returned_at=11,
                answered_at=12,
                outcome="result",
                attempts=1,
                answers=1,
                forwards=1,
                returns=1,
                request_size=101,
                answer_size=104,
                negative_durations=2,
            )
        ],
    ),
    "the callee seems to take longer than the whole call": Case(
        [
            message(1, "in", "call", op="7", id="a", at=1000),
            message(2, "out", "call", op="7", id="1", at=990, **CALLEE),
            message(3, "in", "result", op="7", id="1", at=1005, **CALLEE),
            message(4, "out", "result", op="7", id="a", at=1006),
        ],
        [
            call_row(
                op="7",
                **OF_UMQ,
                **TO_LRPM,
                requested_at=1000,
                forwarded_at=990,
                returned_at=1005,
                answered_at=1006,
                outcome="result",
                attempts=1,
                answers=1,
                forwards=1,
                returns=1,
                request_size=101,
                answer_size=104,
                latency_ns=6,
                callee_ns=15,
                negative_durations=1,
            )
        ],
    ),
    "a repeat behind the answer is useless, and one before it is not, whatever the clock says": Case(
        [
            message(1, "in", "call", op="7", id="a", at=500, **NQ),
            message(2, "in", "call", op="7", id="a", at=1000, **NQ),
            message(3, "out", "result", op="7", id="a", at=600, **NQ),
            message(4, "in", "call", op="7", id="a", at=10, **NQ),
            message(5, "out", "result", op="7", id="a", at=20, **NQ),
        ],
        [
            call_row(
                op="7",
                caller_session="s",
                caller_peer="p",
                caller_protocol="nq",
                requested_at=500,
                answered_at=600,
                outcome="result",
                attempts=3,
                answers=2,
                useless=1,
                request_size=101,
                answer_size=103,
                latency_ns=100,
            )
        ],
    ),
    "an identifier is used again after the clock was set back": Case(
        [
            message(1, "in", "call", id="a", at=1000),
            message(2, "out", "result", id="a", at=1010),
            message(3, "in", "call", id="a", at=10),
            message(4, "out", "failure", id="a", at=15, **FAILED),
        ],
        [
            caller_row(
                1000, request_size=101, outcome="result", answers=1, answered_at=1010, answer_size=102, latency_ns=10
            ),
            caller_row(
                10,
                request_size=103,
                outcome="failed",
                reason="raised",
                code="6",
                answers=1,
                answered_at=15,
                answer_size=104,
                latency_ns=5,
            ),
        ],
    ),
}

BY_IDENTIFIER = {
    "each leg has its own row": Case(
        [
            message(1, "in", "call", id="a"),
            message(2, "out", "call", id="a"),
            message(3, "in", "failure", id="a", **FAILED),
            message(4, "out", "failure", id="a", **FAILED),
        ],
        [
            answered_row(1, 4, outcome="failed", reason="raised", code="6"),
            call_row(
                callee_session="s",
                callee_protocol="umq",
                forwarded_at=2,
                returned_at=3,
                outcome="failed",
                reason="raised",
                code="6",
                forwards=1,
                returns=1,
                callee_ns=1,
            ),
        ],
    ),
    "the n-th use of an identifier has its n-th answer": Case(
        [
            message(1, "in", "call", id="a"),
            message(2, "out", "result", id="a"),
            message(3, "in", "call", id="a"),
            message(4, "in", "call", id="a"),
            message(5, "out", "part", id="a"),
            message(6, "out", "failure", id="a", **FAILED),
            message(7, "in", "cancel", id="a"),
            message(8, "in", "call", id="a", session="s2"),
            message(9, "out", "part", id="a"),
        ],
        [
            answered_row(1, 2),
            answered_row(3, 6, outcome="failed", reason="raised", code="6", parts=1),
            caller_row(4, cancelled_at=7, outcome="cancelled", parts=1),
            caller_row(8, caller_session="s2"),
        ],
    ),
    "an answer again repeats the last": Case(
        [
            message(1, "in", "call", id="a"),
            message(2, "out", "result", id="a"),
            message(3, "in", "call", id="a"),
            message(4, "out", "result", id="a"),
            message(5, "out", "result", id="a"),
        ],
        [answered_row(1, 2), answered_row(3, 4, answers=2)],
    ),
    "an NQ request is repeated over another session, and its answer as well": Case(
        [
            message(1, "in", "call", id="a", **NQ),
            message(2, "out", "accepted", id="a", target="b", **NQ),
            message(3, "in", "call", id="a", protocol="nq", session="s2", peer="p"),
            message(4, "out", "result", id="a", target="b", **NQ),
            message(5, "in", "call", id="a", protocol="nq", session="s3", peer="p"),
            message(6, "out", "result", id="a", target="b", protocol="nq", session="s3", peer="p"),
            message(7, "in", "call", id="a", protocol="nq", session="s3", peer="p2"),
        ],
        [
            answered_row(1, 4, caller_peer="p", caller_protocol="nq", accepted_at=2, attempts=3, answers=2, useless=1),
            caller_row(7, caller_session="s3", caller_peer="p2", caller_protocol="nq"),
        ],
    ),
    "NQ requests to two targets share an identifier; backchannels tell their answers apart": Case(
        [
            message(1, "in", "call", id="a", **NQ),
            message(2, "in", "call", id="a", target="two", method="two", **NQ),
            message(3, "out", "accepted", id="a", target="b1", **NQ),
            message(4, "out", "accepted", id="a", target="b2", **NQ),
            message(5, "out", "failure", id="a", target="b2", **NQ, **FAILED),
            message(6, "out", "failure", id="a", target="b2", **NQ, **FAILED),
            message(7, "out", "result", id="a", target="b1", **NQ),
        ],
        [
            answered_row(1, 7, caller_peer="p", caller_protocol="nq", accepted_at=3),
            answered_row(
                2,
                5,
                caller_peer="p",
                caller_protocol="nq",
                method="two",
                accepted_at=4,
                outcome="failed",
                reason="raised",
                code="6",
                answers=2,
            ),
        ],
    ),
    "MQTT is matched by topic, whatever the session": Case(
        [
            message(1, "in", "call", id="5", protocol="mqtt-rpc", channel="/a"),
            message(2, "in", "call", id="5", protocol="mqtt-rpc", channel="/b"),
            message(3, "out", "result", id="5", protocol="mqtt-rpc", channel="/b", session="s2"),
        ],
        [caller_row(1, caller_protocol="mqtt-rpc"), answered_row(2, 3, caller_protocol="mqtt-rpc")],
    ),
    "other requests take their own answers": Case(
        [
            message(1, "out", "callback", id="1"),
            message(2, "out", "call", id="1"),
            message(3, "in", "result", id="1"),
            message(4, "in", "failure", id="1", **FAILED),
            message(5, "in", "discover", id="1"),
            message(6, "out", "result", id="1"),
        ],
        [
            call_row(
                callee_session="s",
                callee_protocol="umq",
                forwarded_at=2,
                returned_at=4,
                outcome="failed",
                reason="raised",
                code="6",
                forwards=1,
                returns=1,
                callee_ns=2,
            )
        ],
    ),
    "an answer without an operation is none to a request that has one": Case(
        [
            message(1, "out", "call", op="7", id="1"),
            message(2, "in", "result", id="1"),
            message(3, "in", "result", id="2"),
            message(4, "out", "result", id="2"),
            message(5, "in", "part", id="2"),
            message(6, "out", "progress", id="9"),
            message(7, "in", "cancel", target="b", **NQ),
        ],
        [
            call_row(
                op="7",
                callee_session="s",
                callee_protocol="umq",
                forwarded_at=1,
                outcome="unanswered",
                forwards=1,
            )
        ],
        orphans=(2, 3, 4),
    ),
}
CASES = BY_OPERATION | CLOCK_SET_BACK | BY_IDENTIFIER
