"""`fiveways replay`: output for people and for programs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hubs
from tests.support.command_output import CommandRunner
from tests.support.journal_scenarios import BEGAN, JournalBuilder
from tests.support.terminals import Terminal


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a hub with the test application."""
    with hubs.serving("--app", "tests.support.hub_app:app") as hub:
        yield hub.urls["lrpm"].replace("lrpm+ws", "http").removesuffix("/lrpm")


def recorded_call(answer: bytes = b"5") -> JournalBuilder:
    """Return the recording of a peer that called a method of the application."""
    story = JournalBuilder().mark("s", "umq", "open").received("s", "umq", b"H1\n***").sent("s", "umq", b"W1\n***")
    story.received("s", "umq", b"M1\nmath:add\n[2,3]", "1").sent("s", "umq", b"R1\n%b" % answer, "1")
    return story.received("s", "umq", b"E\n11 Closing").mark("s", "umq", "close")


def test_equal_responses_return_0(url: str, tmp_path: Path, said: CommandRunner) -> None:
    output = said("replay", str(recorded_call().write(tmp_path)), url)
    assert output.splitlines() == [
        "sent 2 frames of 1 sessions",
        "calls: 1 equal",
        "requests to callees: none",
        "events: none",
        "all responses and events are as recorded",
    ]
    assert said.err == ""


def test_differences_are_printed_and_return_1(url: str, tmp_path: Path, said: CommandRunner) -> None:
    directory = str(recorded_call(b"6").write(tmp_path))
    output = said("replay", directory, url, "--speed", "max", code=1)
    assert output.splitlines()[1:] == [
        "calls: 1 different body",
        "requests to callees: none",
        "events: none",
        "  session s: 1 different body",
        "call math.add #1 in session s, record 3: different body",
        '  recorded  {"status":"result","body":6}',
        '  live      {"status":"result","body":5.0}',
    ]
    report = json.loads(said("replay", directory, url, "--speed", "10", "--json", code=1))
    assert (report["equal"], report["sent"], report["sessions"]) == (False, 2, 1)
    assert report["call"] == {"equal": 0, "different body": 1, "different status": 0, "missing": 0, "extra": 0}
    assert report["differing_sessions"] == {"s": {"different body": 1}}
    assert report["differences"] == [
        {
            "what": "call",
            "verdict": "different body",
            "session": "s",
            "name": "math.add",
            "id": "1",
            "seq": 3,
            "recorded": {"status": "result", "body": 6},
            "live": {"status": "result", "body": 5.0},
        }
    ]


def test_time_range_selects_frames(url: str, tmp_path: Path, said: CommandRunner) -> None:
    directory = str(recorded_call().write(tmp_path))
    assert BEGAN == 1_767_225_600 * 10**9
    later = json.loads(said("replay", directory, url, "--from", "2026-01-01T00:00:01Z", "--json"))
    earlier = json.loads(said("replay", directory, url, "--to", "2026-01-01T00:00:00.002Z", "--json"))
    whole = json.loads(said("replay", directory, url, "--from", "2026-01-01", "--to", "2026-01-02", "--json"))
    assert (later["sent"], earlier["sent"], whole["sent"]) == (0, 0, 2)


def test_skipped_frames_and_sessions_are_listed(url: str, tmp_path: Path, said: CommandRunner) -> None:
    story = recorded_call().received("m", "mqtt-rpc", b"", channel="/a").received("z", "nq", b"[]", transport="zmq")
    story.received("s2", "umq", b"M1\nmath:", size=99).write(tmp_path)
    output = said("replay", str(tmp_path), url)
    assert "  1 frames not sent: truncated in the journal" in output
    assert "  1 sessions skipped, mqtt-rpc/mqtt: sessions over an MQTT broker are not replayed" in output
    assert "  1 sessions skipped, nq/zmq: --zmq is required for sessions over ZeroMQ" in output


def test_control_characters_are_escaped(url: str, tmp_path: Path, said: CommandRunner) -> None:
    story = (
        JournalBuilder()
        .received("\x1b[2J", "umq", b"M1\nhub:echo\n\x1b[2Jnow")
        .sent("\x1b[2J", "umq", b"R1\n\xc2\x9b2Jthen")
    )
    story.write(tmp_path)
    for options in ([], ["--json"]):
        output = said("replay", str(tmp_path), url, *options, code=1)
        assert all(line.isprintable() for line in output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["http://hub.example:7500"], 2, "hub.example is another machine"),
        (["http://localhost:1", "--zmq", "nq+zmq://10.0.0.1:7555"], 2, "10.0.0.1 is another machine"),
        (["ftp://localhost"], 2, "'ftp://localhost' is not the URL of a hub"),
        (["mqtt-rpc+mqtt://localhost"], 2, "'mqtt-rpc+mqtt://localhost' is not the URL of a hub"),
        (["http://me:secret@localhost"], 2, "the URL must not contain a user or a password"),
        (["http://localhost:1", "--speed", "0"], 2, "--speed must be a number such as 1 or 10, or max, not '0'"),
        (["http://localhost:1", "--speed", "fast"], 2, "--speed must be a number"),
        (["http://localhost:1", "--from", "noon"], 2, "--from noon is not a time"),
        (
            ["http://localhost:1", "--zmq", "nq+ws://localhost"],
            2,
            "'nq+ws://localhost' is not the URL of a ZeroMQ port",
        ),
    ],
)
def test_usage_error_is_one_sentence(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, said: CommandRunner
) -> None:
    said("replay", str(recorded_call().write(tmp_path)), *arguments, code=code)
    assert said.err.startswith(f"fiveways replay: {sentence}")
    assert said.err.count("\n") == 1


def test_directory_without_journal_is_an_error(tmp_path: Path, said: CommandRunner) -> None:
    said("replay", str(tmp_path), "http://localhost:1", code=1)
    assert said.err == f"fiveways replay: there is no journal in {tmp_path}: it has no segments\n"


def test_replay_to_a_port_without_listener_sends_nothing(tmp_path: Path, said: CommandRunner) -> None:
    assert said("replay", str(recorded_call().write(tmp_path)), "http://127.0.0.1:1", code=1) == ""
    assert said.err == "fiveways replay: cannot replay: nothing listens on 127.0.0.1:1\n"


def test_terminal_shows_progress(url: str, tmp_path: Path) -> None:
    recorded_call().wait(500).received("t", "umq", b"M1\nmath:add\n[2,3]").sent("t", "umq", b"R1\n5").write(tmp_path)
    with Terminal("replay", str(tmp_path), url) as terminal:
        terminal.until("replay")
        terminal.until("/9")
        assert terminal.end() == 0
    assert "calls: 2 equal" in terminal.shown
