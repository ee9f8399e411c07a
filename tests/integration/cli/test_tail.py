"""`fiveways tail`: last messages, filters, and new messages."""

import json
import signal
from pathlib import Path

import pytest

from fiveways.wire.packet import Packet
from tests.support import hubs
from tests.support.command_output import CommandRunner
from tests.support.journal_scenarios import RUN, JournalBuilder, a_day_at_the_hub
from tests.support.journal_writing import RecordedJournal
from tests.support.terminals import Terminal


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(a_day_at_the_hub().write(tmp_path / "journal"))


def words(output: str) -> list[list[str]]:
    """Return the words of each line, without the time."""
    return [line.split()[1:] for line in output.splitlines()]


def rows(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_message_is_one_line(journal: str, said: CommandRunner) -> None:
    lines = said("tail", journal, "--op", "7").splitlines()
    assert lines[0] == "00:00:00.003000 → umq/ws        caller         call      math.add #1 op=7 [2,3] 17 B"
    assert words("\n".join(lines[1:])) == [
        ["←", "lrpm-json/ws", "callee", "call", "math.add", "#9", "op=7", "[2,3]", "26", "B"],
        ["→", "lrpm-json/ws", "callee", "result", "math.add", "#9", "op=7", "5", "11", "B"],
        ["←", "umq/ws", "caller", "result", "math.add", "#1", "op=7", "5", "4", "B"],
    ]


def test_last_messages_are_printed(journal: str, said: CommandRunner) -> None:
    assert len(said("tail", journal).splitlines()) == 10
    assert words(said("tail", journal, "-n", "1")) == [["→", "umq/ws", "caller", "close", "11", "Closing"]]
    everything = said("tail", journal, "-n", "1000").splitlines()
    assert len(everything) == 21
    assert said("tail", journal, "--lines", "5").splitlines() == everything[-5:]
    assert said("tail", journal, "-n", "0") == ""


def test_last_messages_are_read_from_several_segments(tmp_path: Path, said: CommandRunner) -> None:
    story = JournalBuilder()
    for number in range(5):
        story.received("s", "umq", b"M%d\na\n" % number).write(tmp_path, number)
    other = JournalBuilder("20250101T000000-bbbbbb").received("old", "umq", b"M9\na\n")
    other.write(tmp_path)
    assert [row["id"] for row in rows(said("tail", str(tmp_path), "-n", "3", "--json"))] == ["2", "3", "4"]
    # Runs are merged by time, not by file name.
    assert [row["id"] for row in rows(said("tail", str(tmp_path), "--json"))][:2] == ["0", "9"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "Math:add"], ["call", "call", "result", "result", "call", "result"]),
        (["--method", "math.sub"], ["call", "failure"]),
        (["--peer", "q"], ["call", "ack", "result"]),
        (["--session", "call"], None),
        (["--session", "callee"], ["call", "result"]),
        (["--protocol", "umq36"], ["event"]),
        (["--kind", "failure"], ["failure"]),
        (["--kind", "drop"], ["drop"]),
        (["--op", "p1"], ["call", "event", "event", "drop", "result"]),
        (["--op", "n8"], ["call", "result"]),
        (["--kind", "call", "--protocol", "nq"], ["call"]),
        (["--kind", "nothing"], []),
    ],
)
def test_filter_selects_messages(
    options: list[str], expected: list[str] | None, journal: str, said: CommandRunner
) -> None:
    kinds = [row["kind"] for row in rows(said("tail", journal, "-n", "100", "--json", *options))]
    assert kinds == expected if expected is not None else {"open", "close"} <= set(kinds)


def test_json_has_all_fields(journal: str, said: CommandRunner) -> None:
    (row,) = rows(said("tail", journal, "--kind", "failure", "--json"))
    assert row["time"] == "2026-01-01T00:00:00.015000Z"
    fields = {key: row[key] for key in ("run", "direction", "id", "method", "status", "reason", "code", "body")}
    assert fields == {
        "run": RUN,
        "direction": "out",
        "id": "2",
        "method": "math.sub",
        "status": "not_executed",
        "reason": "no_such_method",
        "code": "7",
        "body": "7 No such method",
    }


def test_control_characters_are_escaped(journal: str, said: CommandRunner) -> None:
    for options in ([], ["--raw"], ["--json"], ["--json", "--raw"]):
        output = said("tail", journal, "-n", "100", *options)
        assert all(line.isprintable() for line in output.splitlines())
    (line,) = said("tail", journal, "--session", "foe", "--kind", "call").splitlines()
    assert "\\x1b[2Jboo" in line
    assert "\\u202e" in line


def test_raw_prints_payloads(journal: str, said: CommandRunner) -> None:
    assert (
        said("tail", journal, "--op", "7", "--raw", "-n", "4")
        .splitlines()[0]
        .endswith(r"op=7 M1\nmath:add\n[2,3] 17 B")
    )
    (batch,) = said("tail", journal, "--peer", "q", "--raw", "-n", "2").splitlines()[:1]
    assert 'op=n8 - [{"t":"math-add","r":"k1","d":[1,1]},{"i":"b1"}]' in batch


def test_unreadable_frame_has_a_reason(tmp_path: Path, said: CommandRunner) -> None:
    story = JournalBuilder().received("s", "lrpm-json", b"[40").received("s", "umq", b"R1\nabc", size=100)
    story.received("s", "lrpm-json", None, size=100).write(tmp_path)
    output = said("tail", str(tmp_path)).splitlines()
    assert "unreadable" in output[0]
    assert output[1].endswith("result     #1 (cut) 100 B")
    assert output[2].endswith("payload left out 100 B")


def test_terminal_lines_are_coloured_and_truncated(tmp_path: Path) -> None:
    body = b'"' + "ü".encode() * 400 + b'"'
    story = JournalBuilder().received("s", "lrpm-json", b'[40,1,"a.b",%b,{}]' % body)
    story.sent("s", "lrpm-json", b'[20,40,1,"app.err.failed","no luck",{}]').write(tmp_path)
    with Terminal("tail", str(tmp_path)) as terminal:
        assert terminal.end() == 0
    first, second = terminal.shown.splitlines()
    assert "…" in first
    assert first.count("ü") < 60
    assert "\x1b[31m" in second
    assert "raised" in second


def test_follow_prints_new_messages_once_until_ctrl_c(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path)
    written.hear(b'[40,0,"a.b",null,{}]')
    written.turn()
    while written.journal.written_records < 1:
        pass
    process = hubs.start("tail", str(tmp_path), "-f", "--json", "--kind", "call")
    assert process.stdout is not None
    ids = [json.loads(process.stdout.readline())["id"]]
    for number in range(1, 300):
        written.hear(b'[40,%d,"a.b",null,{}]' % number)
        written.turn()
        if number == 150:
            ids += [json.loads(process.stdout.readline())["id"] for _ in range(100)]
    written.stop()
    second_run = RecordedJournal(tmp_path, run="20260101T000001-bbbbbb")
    second_run.track().record_received(1, Packet(b'[40,300,"a.b",null,{}]'), "")
    second_run.stop()
    while len(ids) < 301:
        ids.append(json.loads(process.stdout.readline())["id"])
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=hubs.PATIENCE)
    assert (process.returncode, rest, err) == (0, "", "")
    assert ids == [str(number) for number in range(301)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "fiveways tail: directory nowhere does not exist"),
        (["."], "fiveways tail: there is no journal in .: it has no segments"),
        (["file"], "fiveways tail: file is a file, not the directory of a journal"),
        (["--method", "a..b"], "fiveways tail: "),
        (["--op", "1 2"], "fiveways tail: '1 2' is not an operation id"),
    ],
)
def test_error_is_one_sentence(
    arguments: list[str], sentence: str, said: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    said("tail", *arguments, code=2 if arguments[0].startswith("-") else 1)
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1


def test_closed_stdout_ends_follow(journal: str) -> None:
    process = hubs.start("tail", journal, "-f", "-n", "100")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    JournalBuilder("20270101T000000-cccccc").received("s", "umq", b"M1\na\n").write(Path(journal))
    assert process.wait(hubs.PATIENCE) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_limited_encoding_gets_ascii(journal: str, encoding: str) -> None:
    code, out, err = hubs.run("tail", journal, PYTHONIOENCODING=encoding)
    assert (code, err) == (0, "")
    assert " > " in out
    assert out.isascii()
