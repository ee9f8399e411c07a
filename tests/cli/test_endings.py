"""Exit codes, and the one sentence on stderr."""

from enum import Enum

import pytest

from fiveways.cli.endings import Code, UsageError, code_of, end, sentence_of
from fiveways.errors import CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted, Refused
from fiveways.model.failures import Reason

ENDINGS: list[tuple[Exception, Code, str]] = [
    (NotExecuted(Reason.NO_METHOD, "x.y"), Code.FAILED, "no such method: x.y"),
    (NotExecuted(Reason.BUSY, retry_after=1.5), Code.FAILED, "overloaded; try again in 1.5 s"),
    (CallFailed("too small"), Code.FAILED, "too small"),
    (CallFailed("too small", name="math.err.small"), Code.FAILED, "too small [math.err.small]"),
    (CallFailed("too small", code=422), Code.FAILED, "too small [422]"),
    (CallFailed("too small", data={"least": 3}), Code.FAILED, 'too small {"least":3}'),
    (CallTimeout("timeout"), Code.TIMEOUT, "timeout"),
    (CallLost("lost"), Code.FAILED, "lost"),
    (Cancelled("cancelled"), Code.FAILED, "cancelled"),
    (ConnectionLost("gone"), Code.FAILED, "gone"),
    (Refused("who are you?"), Code.FAILED, "who are you?"),
    (TimeoutError(), Code.TIMEOUT, "no answer in time"),
    (ConnectionRefusedError(111, "Connection refused"), Code.FAILED, "Connection refused"),
    (OSError("odd"), Code.FAILED, "odd"),
    (OSError(28, "No space left on device", "out.html"), Code.FAILED, "out.html: No space left on device"),
    (IsADirectoryError(21, "Is a directory", b"out"), Code.FAILED, "out: Is a directory"),
    (OSError(9, "Bad file descriptor", 5), Code.FAILED, "Bad file descriptor"),
    (UsageError("what?"), Code.USAGE, "what?"),
]


@pytest.mark.parametrize(("error", "code", "sentence"), ENDINGS, ids=lambda each: repr(each)[:40])
def test_an_error_is_a_code_and_a_sentence(error: Exception, code: Code, sentence: str) -> None:
    assert (code_of(error), sentence_of(error)) == (code, sentence)


def test_an_error_that_nobody_foresaw_says_how_to_learn_more() -> None:
    assert "KeyError" in sentence_of(KeyError("x"))
    assert "--debug" in sentence_of(KeyError("x"))


def test_what_a_peer_wrote_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert end("fiveways call", CallFailed("red\x1b[31m\nline"), debug=False) == 1
    assert capsys.readouterr().err == "fiveways call: red\\x1b[31m\\nline\n"


def test_a_traceback_is_shown_to_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    end("fiveways call", CallFailed("no"), debug=True)
    shown = capsys.readouterr().err
    assert "CallFailed: no" in shown
    assert shown.endswith("fiveways call: no\n")


def test_every_code_is_documented() -> None:
    assert issubclass(Code, Enum)
    assert {each.value for each in Code} == {0, 1, 2, 124}
