"""`fiveways trace`: the messages and the latency of one operation."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_output import CommandRunner
from tests.support.journal_scenarios import BEGAN, RUN, STEP, JournalBuilder, a_day_at_the_hub
from tests.support.terminals import Terminal

LATER = "20260102T000000-bbbbbb"


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(a_day_at_the_hub().write(tmp_path / "journal"))


def traced(said: CommandRunner, *arguments: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(said("trace", *arguments, "--json"))
    return summary


def test_call_is_shown_with_all_messages_and_times(journal: str, said: CommandRunner) -> None:
    lines = said("trace", "7", journal).splitlines()
    assert lines[0] == f"operation 7, math.add: result after 10.000 ms, run {RUN} on here, 2026-01-01"
    assert lines[1:4] == [
        "  caller  caller  umq/ws",
        "  callee  callee  lrpm-json/ws",
        "  1 attempt, 1 forward, 1 return, 1 answer",
    ]
    assert lines[4].endswith("█ callee 8.000 ms, ░ hub 2.000 ms")
    assert [line.rstrip() for line in lines[7:]] == [
        "00:00:00.003000      0.0 µs     +0.0 µs  ●···············  caller → hub     call      math.add #1 [2,3] 17 B",
        "00:00:00.004000    1.000 ms   +1.000 ms  ··●·············  hub → callee     call      math.add #9 [2,3] 26 B",
        "00:00:00.012000    9.000 ms   +8.000 ms  ··············●·  callee → hub     result    math.add #9 5 11 B",
        "00:00:00.013000   10.000 ms   +1.000 ms  ···············●  hub → caller     result    math.add #1 5 4 B",
    ]


def test_json_has_summary_and_frames(journal: str, said: CommandRunner) -> None:
    summary = traced(said, "7", journal)
    frames = summary.pop("frames")
    assert [(row["seq"], row["kind"], row["body"]) for row in frames] == [
        (3, "call", [2, 3]),
        (4, "call", [2, 3]),
        (5, "result", 5),
        (6, "result", 5),
    ]
    common = {"peer": None, "transport": "ws"}
    assert summary == {
        "run": RUN,
        "op": "7",
        "kind": "call",
        "method": "math.add",
        "outcome": "result",
        "caller": {"session": "caller", "protocol": "umq", **common},
        "callees": [{"session": "callee", "protocol": "lrpm-json", **common}],
        "attempts": 1,
        "answers": 1,
        "forwards": 1,
        "returns": 1,
        "parts": 0,
        "progress": 0,
        "requested_at": BEGAN + 3 * STEP,
        "accepted_at": None,
        "forwarded_at": BEGAN + 4 * STEP,
        "returned_at": BEGAN + 12 * STEP,
        "answered_at": BEGAN + 13 * STEP,
        "cancelled_at": None,
        "latency_ns": 10 * STEP,
        "callee_ns": 8 * STEP,
        "hub_ns": 2 * STEP,
    }


def test_attempts_forwards_and_parts_are_counted(tmp_path: Path, said: CommandRunner) -> None:
    story = JournalBuilder()
    request = b'{"t":"a-b","r":"k1","d":1}'
    story.received("q.1", "nq", request, "n1", peer="q").sent("q.1", "nq", b'{"a":"b1","i":"k1"}', "n1", peer="q")
    story.received("q.2", "nq", request, "n1", peer="q")
    story.sent("w1", "lrpm-json", b'[40,1,"a.b",1,{}]', "n1").sent("w2", "lrpm-json", b'[40,2,"a.b",1,{}]', "n1")
    story.received("w2", "lrpm-json", b'[20,40,2,"app.err.failed","no luck",{}]', "n1")
    story.sent("q.2", "nq", b'{"a":"b1","i":"k1","d":1,"n":1}', "n1", peer="q")
    story.sent(
        "q.2", "nq", b'{"a":"b1","i":"k1","n":2,"f":0,"e":{"type":"app","fatal":true,"text":"no luck"}}', "n1", peer="q"
    )
    story.write(tmp_path)
    summary = traced(said, "n1", str(tmp_path))
    counts = {key: summary[key] for key in ("attempts", "forwards", "returns", "parts", "answers", "outcome")}
    assert counts == {"attempts": 2, "forwards": 2, "returns": 1, "parts": 1, "answers": 1, "outcome": "failed"}
    assert summary["accepted_at"] == BEGAN + STEP
    assert [callee["session"] for callee in summary["callees"]] == ["w1", "w2"]
    output = said("trace", "n1", str(tmp_path))
    assert "2 attempts, 2 forwards, 1 return, 1 part, 1 answer" in output
    # With more than two sessions, each line names its session.
    assert "hub → callee     call      a.b #2 w2 1" in output


@pytest.mark.parametrize(("frame", "outcome"), [(b"[21,1,{}]", "cancelled"), (None, "unanswered")])
def test_call_without_response_has_no_latency(
    frame: bytes | None, outcome: str, tmp_path: Path, said: CommandRunner
) -> None:
    story = JournalBuilder().received("s", "lrpm-json", b'[40,1,"a.b",1,{}]', "1")
    if frame is not None:
        story.received("s", "lrpm-json", frame, "1")
    summary = traced(said, "1", str(story.write(tmp_path)))
    assert (summary["outcome"], summary["latency_ns"], summary["callees"]) == (outcome, None, [])
    assert f"a.b: {outcome}, run" in said("trace", "1", str(tmp_path))


def test_publication_shows_delivery_to_subscribers(journal: str, said: CommandRunner) -> None:
    summary = traced(said, "p1", journal)
    assert (summary["kind"], summary["topic"], summary["publisher"]["session"]) == ("publication", "news", "caller")
    subscribers = [
        (subscriber["session"], subscriber["latency_ns"], subscriber["copies"], subscriber["dropped"])
        for subscriber in summary["subscribers"]
    ]
    assert subscribers == [("first", STEP, 1, 0), ("second", 2 * STEP, 1, 0), ("third", None, 0, 1)]
    output = said("trace", "p1", journal)
    assert "2 subscribers received it, 1 events dropped" in output
    assert "subscriber second  lrpm-json/ws  after 2.000 ms" in output
    assert "hub → subscriber drop      news third the peer reads too slowly" in output


def test_other_messages_of_a_frame_are_not_shown(journal: str, said: CommandRunner) -> None:
    assert [row["id"] for row in traced(said, "n8", journal)["frames"]] == ["k1", "k1"]


def test_latest_run_is_shown_and_others_are_named(tmp_path: Path, said: CommandRunner) -> None:
    directory = a_day_at_the_hub().write(tmp_path)
    a_day_at_the_hub(LATER, BEGAN + 86_400_000 * STEP).write(directory)
    assert traced(said, "7", str(directory))["run"] == LATER
    assert said.err == f"fiveways trace: showing operation 7 of the latest run, {LATER}; --run selects another: {RUN}\n"
    assert traced(said, "7", str(directory), "--run", RUN)["run"] == RUN
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["99"], 1, "operation 99 not found in"),
        (["7", "--run", "other"], 1, "operation 7 not found in run other in"),
        (["1 2"], 2, "'1 2' is not an operation id"),
    ],
)
def test_unknown_operation_is_an_error(
    arguments: list[str], code: int, sentence: str, journal: str, said: CommandRunner
) -> None:
    said("trace", arguments[0], journal, *arguments[1:], code=code)
    assert said.err.startswith(f"fiveways trace: {sentence}")
    assert said.err.count("\n") == 1


def test_control_characters_are_escaped(tmp_path: Path, said: CommandRunner) -> None:
    story = JournalBuilder().received(
        "s\x1b[2J", "umq", b"M1\n\x1b[2Jx\n\x07", "1", peer="\x1b]0;boo\x07", node="\x9b2J"
    )
    story.mark("t", "umq", "drop", "p2", reason="\x1b", channel="\x1b[2J").write(tmp_path)
    for op in ("1", "p2"):
        for options in ([], ["--json"]):
            assert all(line.isprintable() for line in said("trace", op, str(tmp_path), *options).splitlines())


def test_terminal_output_is_coloured(journal: str) -> None:
    with Terminal("trace", "7", journal) as terminal:
        assert terminal.end() == 0
    assert "callee" in terminal.shown
    assert "\x1b[32mresult" in terminal.shown
