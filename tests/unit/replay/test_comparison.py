"""What is the same, and what is only counted."""

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

HERE = EventKey("s", "event", "news")


def talk(session: str = "s", protocol: str = "umq") -> ReplaySession:
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
def test_same(recorded: object, live: object, expected: bool) -> None:
    assert values_equal(recorded, live) is expected
    if "***" not in str((recorded, live)) and not isinstance(recorded, bool) and not isinstance(live, bool):
        assert (digest(recorded) == digest(live)) is expected


def result(value: object, *, known: bool = True) -> ResponsePart:
    return ResponsePart("result", "result", body=Value(value), is_complete=known)


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
        ([result(1, known=False)], [result(2)], EQUAL),
    ],
)
@pytest.mark.parametrize("live_first", [True, False])
def test_verdicts(
    recorded: list[ResponsePart], live: list[ResponsePart], verdict: str | None, *, live_first: bool
) -> None:
    tally, exchange = ReplayStats(), ReplayedRequest(talk(), 3, MessageRow("call", "1", "a.b", "a.b"), is_sent=True)
    for is_live in (live_first, not live_first):
        for answer in live if is_live else recorded:
            exchange.add(answer, live=is_live)
    exchange.report(tally)
    assert dict(tally.counts["call"]) == ({} if verdict is None else {verdict: 1})
    assert tally.is_equal is (verdict in {EQUAL, None})


def test_what_was_not_sent_is_not_judged() -> None:
    tally, exchange = ReplayStats(), ReplayedRequest(talk(), 3, MessageRow("call", "1"), is_sent=False)
    exchange.add(result(1), live=False)
    exchange.report(tally)
    assert tally.counts["call"] == {}


def test_happenings_are_counted_in_any_order() -> None:
    tally = ReplayStats()
    happenings = EventMatcher(tally)
    for value in (1, 2, 2, 3):
        happenings.add(HERE, value, live=False)
    assert happenings.expected == {"s": 4}
    for value in (2, 1, 2, 4):
        happenings.add(HERE, value, live=True)
    assert happenings.expected == {"s": 1}
    happenings.add(HERE._replace(session="t"), 5, live=True)
    happenings.add(HERE._replace(session="t"), 5, live=False)
    happenings.report_unmatched()
    assert happenings.expected == {}
    assert tally.counts["event"] == {EQUAL: 4, MISSING: 1, EXTRA: 1}


def test_any_will_do_for_one_that_is_not_known() -> None:
    tally = ReplayStats()
    happenings = EventMatcher(tally)
    happenings.add(HERE, None, live=False, is_known=False)
    happenings.add(HERE, {"a": "***"}, live=False)
    for value in (1, 2, 3):
        happenings.add(HERE, value, live=True)
    happenings.report_unmatched()
    assert tally.counts["event"] == {EQUAL: 2, EXTRA: 1}


def test_difference_is_reported_without_secrets() -> None:
    tally = ReplayStats()
    tally.add_difference(
        Difference("call", "different body", "s", recorded={"a": "***"}, live={"a": "b", "Api-Key": "geheim"})
    )
    assert tally.differences[0].live == {"a": "b", "Api-Key": "***"}


class Asked:
    """A desk, and what it finds."""

    def __init__(self) -> None:
        self.tally = ReplayStats()
        self.found: list[tuple[str, str]] = []
        self.doubts = 0
        self.desk = RequestMatcher(self.tally, self._paired, self._doubt)
        self.talks = {name: talk(name) for name in ("s", "t")}

    def _paired(self, ask: HubRequest) -> None:
        assert ask.counterpart is not None
        self.found.append((ask.id, ask.counterpart.id))

    def _doubt(self) -> None:
        self.doubts += 1

    def ask(self, identifier: str, body: object, session: str = "s") -> HubRequest:
        message = MessageRow("call", identifier, "a.b", "a.b")
        return HubRequest(self.talks[session], None, message, Value(body), is_known=True)


def test_requests_with_the_same_arguments_belong_together() -> None:
    asked = Asked()
    for number in range(3):
        asked.desk.add_recorded(asked.ask(f"then{number}", number))
    for number in (2, 0, 1):
        asked.desk.add_live(asked.ask(f"now{number}", number))
    assert asked.found == [("then2", "now2"), ("then0", "now0"), ("then1", "now1")]
    assert asked.tally.counts["request"] == {EQUAL: 3}


def test_those_of_the_same_session_come_first() -> None:
    asked = Asked()
    asked.desk.add_live(asked.ask("other", 1, "t"))
    asked.desk.add_live(asked.ask("own", 1, "s"))
    asked.desk.add_recorded(asked.ask("then", 1, "s"))
    assert asked.found == [("then", "own")]


def test_other_arguments_do_when_there_is_an_answer_and_nothing_better() -> None:
    asked = Asked()
    then = asked.ask("then", 1)
    asked.desk.add_recorded(then)
    asked.desk.add_live(asked.ask("now", 2))
    asked.desk.match_by_order()
    assert (asked.found, asked.doubts) == ([], 0)
    then.answers.append(FramePart(Packet(b"")))
    asked.desk.answer_recorded(then)
    assert asked.doubts == 1
    asked.desk.match_by_order()
    assert asked.found == [("then", "now")]
    assert asked.tally.counts["request"] == {DIFFERENT_BODY: 1}


def test_what_nobody_asks_is_missing_or_extra() -> None:
    asked = Asked()
    asked.desk.add_recorded(asked.ask("then", 1))
    asked.desk.add_live(asked.ask("now", 2))
    asked.desk.report_unmatched()
    assert asked.tally.counts["request"] == {MISSING: 1, EXTRA: 1}
    assert asked.desk.expected == 0
