"""Exit codes, and the one sentence on stderr."""

from enum import Enum

import pytest

from fiveways.cli.errors import ExitCode, UsageError, error_message, exit_code, report_error
from fiveways.errors import CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted, Reason, Refused

ENDINGS: list[tuple[Exception, ExitCode, str]] = [
    (NotExecuted(Reason.NO_SUCH_METHOD, "x.y"), ExitCode.FAILED, "no such method: x.y"),
    (NotExecuted(Reason.OVERLOADED, retry_after=1.5), ExitCode.FAILED, "overloaded; try again in 1.5 s"),
    (CallFailed("too small"), ExitCode.FAILED, "too small"),
    (CallFailed("too small", name="math.err.small"), ExitCode.FAILED, "too small [math.err.small]"),
    (CallFailed("too small", code=422), ExitCode.FAILED, "too small [422]"),
    (CallFailed("too small", data={"least": 3}), ExitCode.FAILED, 'too small {"least":3}'),
    (CallTimeout("timeout"), ExitCode.TIMEOUT, "timeout"),
    (CallLost("lost"), ExitCode.FAILED, "lost"),
    (Cancelled("cancelled"), ExitCode.FAILED, "cancelled"),
    (ConnectionLost("gone"), ExitCode.FAILED, "gone"),
    (Refused("who are you?"), ExitCode.FAILED, "who are you?"),
    (TimeoutError(), ExitCode.TIMEOUT, "no answer in time"),
    (ConnectionRefusedError(111, "Connection refused"), ExitCode.FAILED, "Connection refused"),
    (OSError("odd"), ExitCode.FAILED, "odd"),
    (OSError(28, "No space left on device", "out.html"), ExitCode.FAILED, "out.html: No space left on device"),
    (IsADirectoryError(21, "Is a directory", b"out"), ExitCode.FAILED, "out: Is a directory"),
    (OSError(9, "Bad file descriptor", 5), ExitCode.FAILED, "Bad file descriptor"),
    (UsageError("what?"), ExitCode.USAGE, "what?"),
]


@pytest.mark.parametrize(("error", "code", "sentence"), ENDINGS, ids=lambda each: repr(each)[:40])
def test_an_error_is_a_code_and_a_sentence(error: Exception, code: ExitCode, sentence: str) -> None:
    assert (exit_code(error), error_message(error)) == (code, sentence)


def test_an_error_that_nobody_foresaw_says_how_to_learn_more() -> None:
    assert "KeyError" in error_message(KeyError("x"))
    assert "--debug" in error_message(KeyError("x"))


def test_what_a_peer_wrote_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error("fiveways call", CallFailed("red\x1b[31m\nline"), debug=False) == 1
    assert capsys.readouterr().err == "fiveways call: red\\x1b[31m\\nline\n"


def test_a_traceback_is_shown_to_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    report_error("fiveways call", CallFailed("no"), debug=True)
    shown = capsys.readouterr().err
    assert "CallFailed: no" in shown
    assert shown.endswith("fiveways call: no\n")


def test_every_code_is_documented() -> None:
    assert issubclass(ExitCode, Enum)
    assert {each.value for each in ExitCode} == {0, 1, 2, 124}
