"""Comparison of recorded and live responses, events and requests."""

import math

import pytest

from fiveways.journal.records import Record
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.comparison import (
    DIFFERENT_BODY,
    DIFFERENT_STATUS,
    EQUAL,
    EXTRA,
    MISSING,
    Difference,
    ReplayedRequest,
    ReplayStats,
    ResponsePart,
    digest,
    values_equal,
)
from fiveways.replay.event_matcher import EventKey, EventMatcher
from fiveways.replay.frame_rewriting import FramePart
from fiveways.replay.replay_session import ReplaySession
from fiveways.replay.request_matcher import HubRequest, RequestMatcher
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

KEY = EventKey("s", "event", "news")


def session_of(session: str = "s", protocol: str = "umq") -> ReplaySession:
    return ReplaySession(
        Record(0, 0, None, "r", session, None, protocol, "ws", "in", "open", None, None, None, None, None)
    )


@pytest.mark.parametrize(
    ("recorded", "live", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (math.nan, math.nan, True),
        ("***", {"any": "thing"}, True),
        ("any", "***", False),
        ({"a": [1, {"b": "***"}]}, {"a": [1.0, {"b": 7}]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        (None, 0, False),
        (b"x", b"x", True),
    ],
)
def test_values_equal(recorded: object, live: object, expected: bool) -> None:
    assert values_equal(recorded, live) is expected
    if "***" not in str((recorded, live)) and not isinstance(recorded, bool) and not isinstance(live, bool):
        assert (digest(recorded) == digest(live)) is expected


def result(value: object, *, is_complete: bool = True) -> ResponsePart:
    return ResponsePart("result", "result", body=Value(value), is_complete=is_complete)


def part(value: object) -> ResponsePart:
    return ResponsePart("part", body=Value(value))


FAILED = ResponsePart("failure", "failed", "raised", "6", Value("no"))


@pytest.mark.parametrize(
    ("recorded", "live", "verdict"),
    [
        ([result(1)], [result(1)], EQUAL),
        ([result(1)], [result(2)], DIFFERENT_BODY),
        ([result(1)], [FAILED], DIFFERENT_STATUS),
        ([result(1)], [], MISSING),
        ([], [result(1)], EXTRA),
        ([], [], None),
        ([part(1), part(2), result(3)], [part(1), part(2), result(3)], EQUAL),
        ([part(1), part(2), result(3)], [part(1), part(9), result(3)], DIFFERENT_BODY),
        ([part(1), result(3)], [result(3)], DIFFERENT_STATUS),
        ([part(9), result(3)], [part(1), FAILED], DIFFERENT_STATUS),
        ([result(1, is_complete=False)], [result(2)], EQUAL),
    ],
)
@pytest.mark.parametrize("live_first", [True, False])
def test_verdict_of_a_request(
    recorded: list[ResponsePart], live: list[ResponsePart], verdict: str | None, *, live_first: bool
) -> None:
    stats, request = (
        ReplayStats(),
        ReplayedRequest(session_of(), 3, MessageRow("call", "1", "a.b", "a.b"), is_sent=True),
    )
    for is_live in (live_first, not live_first):
        for part in live if is_live else recorded:
            request.add(part, live=is_live)
    request.report(stats)
    assert dict(stats.counts["call"]) == ({} if verdict is None else {verdict: 1})
    assert stats.is_equal is (verdict in {EQUAL, None})


def test_unsent_request_has_no_verdict() -> None:
    stats, request = ReplayStats(), ReplayedRequest(session_of(), 3, MessageRow("call", "1"), is_sent=False)
    request.add(result(1), live=False)
    request.report(stats)
    assert stats.counts["call"] == {}


def test_events_match_in_any_order() -> None:
    stats = ReplayStats()
    matcher = EventMatcher(stats)
    for value in (1, 2, 2, 3):
        matcher.add(KEY, value, live=False)
    assert matcher.expected == {"s": 4}
    for value in (2, 1, 2, 4):
        matcher.add(KEY, value, live=True)
    assert matcher.expected == {"s": 1}
    matcher.add(KEY._replace(session="t"), 5, live=True)
    matcher.add(KEY._replace(session="t"), 5, live=False)
    matcher.report_unmatched()
    assert matcher.expected == {}
    assert stats.counts["event"] == {EQUAL: 4, MISSING: 1, EXTRA: 1}


def test_incomplete_event_matches_any() -> None:
    stats = ReplayStats()
    matcher = EventMatcher(stats)
    matcher.add(KEY, None, live=False, is_complete=False)
    matcher.add(KEY, {"a": "***"}, live=False)
    for value in (1, 2, 3):
        matcher.add(KEY, value, live=True)
    matcher.report_unmatched()
    assert stats.counts["event"] == {EQUAL: 2, EXTRA: 1}


def test_difference_is_reported_without_secrets() -> None:
    stats = ReplayStats()
    stats.add_difference(
        Difference("call", "different body", "s", recorded={"a": "***"}, live={"a": "b", "Api-Key": "geheim"})
    )
    assert stats.differences[0].live == {"a": "b", "Api-Key": "***"}


class MatcherHarness:
    """A request matcher, and its matches."""

    def __init__(self) -> None:
        self.stats = ReplayStats()
        self.matches: list[tuple[str, str]] = []
        self.ambiguities = 0
        self.matcher = RequestMatcher(self.stats, self._on_match, self._on_ambiguity)
        self.sessions = {name: session_of(name) for name in ("s", "t")}

    def _on_match(self, request: HubRequest) -> None:
        assert request.counterpart is not None
        self.matches.append((request.id, request.counterpart.id))

    def _on_ambiguity(self) -> None:
        self.ambiguities += 1

    def request(self, request_id: str, body: object, session: str = "s") -> HubRequest:
        message = MessageRow("call", request_id, "a.b", "a.b")
        return HubRequest(self.sessions[session], None, message, Value(body), is_complete=True)


def test_requests_with_equal_arguments_match() -> None:
    harness = MatcherHarness()
    for number in range(3):
        harness.matcher.add_recorded(harness.request(f"then{number}", number))
    for number in (2, 0, 1):
        harness.matcher.add_live(harness.request(f"now{number}", number))
    assert harness.matches == [("then2", "now2"), ("then0", "now0"), ("then1", "now1")]
    assert harness.stats.counts["request"] == {EQUAL: 3}


def test_request_of_the_same_session_is_preferred() -> None:
    harness = MatcherHarness()
    harness.matcher.add_live(harness.request("other", 1, "t"))
    harness.matcher.add_live(harness.request("own", 1, "s"))
    harness.matcher.add_recorded(harness.request("then", 1, "s"))
    assert harness.matches == [("then", "own")]


def test_requests_match_by_order_if_a_response_is_available() -> None:
    harness = MatcherHarness()
    recorded = harness.request("then", 1)
    harness.matcher.add_recorded(recorded)
    harness.matcher.add_live(harness.request("now", 2))
    harness.matcher.match_by_order()
    assert (harness.matches, harness.ambiguities) == ([], 0)
    recorded.answers.append(FramePart(Packet(b"")))
    harness.matcher.answer_recorded(recorded)
    assert harness.ambiguities == 1
    harness.matcher.match_by_order()
    assert harness.matches == [("then", "now")]
    assert harness.stats.counts["request"] == {DIFFERENT_BODY: 1}


def test_unmatched_requests_are_missing_or_extra() -> None:
    harness = MatcherHarness()
    harness.matcher.add_recorded(harness.request("then", 1))
    harness.matcher.add_live(harness.request("now", 2))
    harness.matcher.report_unmatched()
    assert harness.stats.counts["request"] == {MISSING: 1, EXTRA: 1}
    assert harness.matcher.expected == 0
