"""`fiveways replay`: what is said of it, to people and to programs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hubs
from tests.support.command_output import Said
from tests.support.journal_scenarios import BEGAN, Story
from tests.support.terminals import Terminal


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A hub with the tests' application, and where it is."""
    with hubs.serving("--app", "tests.support.hub_app:app") as hub:
        yield hub.urls["lrpm"].replace("lrpm+ws", "http").removesuffix("/lrpm")


def asked(answer: bytes = b"5") -> Story:
    """Somebody who called a method of the application, and what came back."""
    story = Story().mark("s", "umq", "open").heard("s", "umq", b"H1\n***").said("s", "umq", b"W1\n***")
    story.heard("s", "umq", b"M1\nmath:add\n[2,3]", "1").said("s", "umq", b"R1\n%b" % answer, "1")
    return story.heard("s", "umq", b"E\n11 Closing").mark("s", "umq", "close")


def test_what_is_as_it_was(url: str, tmp_path: Path, said: Said) -> None:
    shown = said("replay", str(asked().write(tmp_path)), url)
    assert shown.splitlines() == [
        "sent 2 frames of 1 sessions",
        "calls: 1 equal",
        "requests to callees: none",
        "events: none",
        "all that came back is as it was",
    ]
    assert said.err == ""


def test_what_differs_is_told_in_full_and_ends_with_1(url: str, tmp_path: Path, said: Said) -> None:
    directory = str(asked(b"6").write(tmp_path))
    shown = said("replay", directory, url, "--speed", "max", code=1)
    assert shown.splitlines()[1:] == [
        "calls: 1 different body",
        "requests to callees: none",
        "events: none",
        "  session s: 1 different body",
        "call math.add #1 in session s, record 3: different body",
        '  then  {"status":"result","body":6}',
        '  now   {"status":"result","body":5.0}',
    ]
    found = json.loads(said("replay", directory, url, "--speed", "10", "--json", code=1))
    assert (found["equal"], found["sent"], found["sessions"]) == (False, 2, 1)
    assert found["call"] == {"equal": 0, "different body": 1, "different status": 0, "missing": 0, "extra": 0}
    assert found["differing_sessions"] == {"s": {"different body": 1}}
    assert found["differences"] == [
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


def test_a_time_is_chosen(url: str, tmp_path: Path, said: Said) -> None:
    directory = str(asked().write(tmp_path))
    assert BEGAN == 1_767_225_600 * 10**9
    later = json.loads(said("replay", directory, url, "--from", "2026-01-01T00:00:01Z", "--json"))
    earlier = json.loads(said("replay", directory, url, "--to", "2026-01-01T00:00:00.002Z", "--json"))
    whole = json.loads(said("replay", directory, url, "--from", "2026-01-01", "--to", "2026-01-02", "--json"))
    assert (later["sent"], earlier["sent"], whole["sent"]) == (0, 0, 2)


def test_what_is_left_out_is_named(url: str, tmp_path: Path, said: Said) -> None:
    story = asked().heard("m", "mqtt-rpc", b"", channel="/a").heard("z", "nq", b"[]", transport="zmq")
    story.heard("s2", "umq", b"M1\nmath:", size=99).write(tmp_path)
    shown = said("replay", str(tmp_path), url)
    assert "  1 frames not sent: cut in the journal" in shown
    assert "  1 sessions left out, mqtt-rpc/mqtt: frames that came by a broker are not sent again" in shown
    assert "  1 sessions left out, nq/zmq: no URL of a ZeroMQ port was given (--zmq)" in shown


def test_hostile_answers_do_nothing_to_the_terminal(url: str, tmp_path: Path, said: Said) -> None:
    story = Story().heard("\x1b[2J", "umq", b"M1\nhub:echo\n\x1b[2Jnow").said("\x1b[2J", "umq", b"R1\n\xc2\x9b2Jthen")
    story.write(tmp_path)
    for options in ([], ["--json"]):
        shown = said("replay", str(tmp_path), url, *options, code=1)
        assert all(line.isprintable() for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["http://hub.example:7500"], 2, "hub.example is another machine"),
        (["http://localhost:1", "--zmq", "nq+zmq://10.0.0.1:7555"], 2, "10.0.0.1 is another machine"),
        (["ftp://localhost"], 2, "'ftp://localhost' is no hub's URL"),
        (["mqtt-rpc+mqtt://localhost"], 2, "'mqtt-rpc+mqtt://localhost' is no hub's URL"),
        (["http://me:secret@localhost"], 2, "a URL holds no names or secrets"),
        (["http://localhost:1", "--speed", "0"], 2, "--speed is a number such as 1 or 10, or max, not '0'"),
        (["http://localhost:1", "--speed", "fast"], 2, "--speed is a number"),
        (["http://localhost:1", "--from", "noon"], 2, "--from noon is no time"),
        (["http://localhost:1", "--zmq", "nq+ws://localhost"], 2, "'nq+ws://localhost' is no URL of a ZeroMQ port"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, said: Said
) -> None:
    said("replay", str(asked().write(tmp_path)), *arguments, code=code)
    assert said.err.startswith(f"fiveways replay: {sentence}")
    assert said.err.count("\n") == 1


def test_a_directory_without_a_journal_is_told_of(tmp_path: Path, said: Said) -> None:
    said("replay", str(tmp_path), "http://localhost:1", code=1)
    assert said.err == f"fiveways replay: there is no journal in {tmp_path}: it holds no segments\n"


def test_replay_to_a_port_without_listener_sends_nothing(tmp_path: Path, said: Said) -> None:
    assert said("replay", str(asked().write(tmp_path)), "http://127.0.0.1:1", code=1) == ""
    assert said.err == "fiveways replay: cannot replay: nothing listens on 127.0.0.1:1\n"


def test_a_terminal_shows_how_far_it_is(url: str, tmp_path: Path) -> None:
    asked().wait(500).heard("t", "umq", b"M1\nmath:add\n[2,3]").said("t", "umq", b"R1\n5").write(tmp_path)
    with Terminal("replay", str(tmp_path), url) as terminal:
        terminal.until("replay")
        terminal.until("/9")
        assert terminal.end() == 0
    assert "calls: 2 equal" in terminal.shown
