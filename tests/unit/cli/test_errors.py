"""Exit codes, and error messages on stderr."""

from enum import Enum

import pytest

from fiveways.cli.errors import ExitCode, UsageError, error_message, exit_code, report_error
from fiveways.errors import CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted, Reason, Refused

ERRORS: list[tuple[Exception, ExitCode, str]] = [
    (NotExecuted(Reason.NO_SUCH_METHOD, "x.y"), ExitCode.FAILED, "no such method: x.y"),
    (NotExecuted(Reason.OVERLOADED, retry_after=1.5), ExitCode.FAILED, "overloaded; retry after 1.5 s"),
    (CallFailed("too small"), ExitCode.FAILED, "too small"),
    (CallFailed("too small", name="math.err.small"), ExitCode.FAILED, "too small [math.err.small]"),
    (CallFailed("too small", code=422), ExitCode.FAILED, "too small [422]"),
    (CallFailed("too small", data={"least": 3}), ExitCode.FAILED, 'too small {"least":3}'),
    (CallTimeout("timeout"), ExitCode.TIMEOUT, "timeout"),
    (CallLost("lost"), ExitCode.FAILED, "lost"),
    (Cancelled("cancelled"), ExitCode.FAILED, "cancelled"),
    (ConnectionLost("gone"), ExitCode.FAILED, "gone"),
    (Refused("who are you?"), ExitCode.FAILED, "who are you?"),
    (TimeoutError(), ExitCode.TIMEOUT, "no response in time"),
    (ConnectionRefusedError(111, "Connection refused"), ExitCode.FAILED, "Connection refused"),
    (OSError("odd"), ExitCode.FAILED, "odd"),
    (OSError(28, "No space left on device", "out.html"), ExitCode.FAILED, "out.html: No space left on device"),
    (IsADirectoryError(21, "Is a directory", b"out"), ExitCode.FAILED, "out: Is a directory"),
    (OSError(9, "Bad file descriptor", 5), ExitCode.FAILED, "Bad file descriptor"),
    (UsageError("what?"), ExitCode.USAGE, "what?"),
]


@pytest.mark.parametrize(("error", "code", "sentence"), ERRORS, ids=lambda value: repr(value)[:40])
def test_error_has_exit_code_and_message(error: Exception, code: ExitCode, sentence: str) -> None:
    assert (exit_code(error), error_message(error)) == (code, sentence)


def test_unexpected_error_suggests_debug_option() -> None:
    assert "KeyError" in error_message(KeyError("x"))
    assert "--debug" in error_message(KeyError("x"))


def test_control_characters_of_a_peer_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error("fiveways call", CallFailed("red\x1b[31m\nline"), debug=False) == 1
    assert capsys.readouterr().err == "fiveways call: red\\x1b[31m\\nline\n"


def test_debug_prints_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    report_error("fiveways call", CallFailed("no"), debug=True)
    output = capsys.readouterr().err
    assert "CallFailed: no" in output
    assert output.endswith("fiveways call: no\n")


def test_exit_codes_are_stable() -> None:
    assert issubclass(ExitCode, Enum)
    assert {code.value for code in ExitCode} == {0, 1, 2, 124}
