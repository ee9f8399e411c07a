"""How a command ends: its exit code, and the one sentence on stderr."""

import os
import sys
import traceback
from enum import IntEnum

import typer

from fiveways.errors import CallError, CallFailed, CallTimeout, FivewaysError


class ExitCode(IntEnum):
    """The exit codes of all commands but `check`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMEOUT = 124


class UsageError(FivewaysError):
    """The command cannot mean what was typed."""


class OutputClosed(FivewaysError):
    """Whoever read our output has enough, as `head` has. Nothing is wrong with that."""


def exit_code(exc: BaseException) -> ExitCode:
    """Return how a command ends that `exc` ended."""
    if isinstance(exc, CallTimeout | TimeoutError):
        return ExitCode.TIMEOUT
    if isinstance(exc, UsageError):
        return ExitCode.USAGE
    return ExitCode.FAILED


def error_message(exc: BaseException) -> str:
    """Return what happened, in words."""
    match exc:
        case CallError():
            return f"{exc}{_error_details(exc)}"
        case FivewaysError():
            return str(exc)
        case TimeoutError():
            return str(exc) or "no answer in time"
        case OSError():
            what = exc.strerror or str(exc) or type(exc).__name__
            return f"{os.fsdecode(exc.filename)}: {what}" if isinstance(exc.filename, str | bytes) else what
        case _:
            return f"an error that nobody foresaw ({type(exc).__name__}: {exc}); `fiveways --debug ...` shows where"


def _error_details(exc: CallError) -> str:
    from fiveways.wire.payload import Value  # noqa: PLC0415  help does without it

    own = (exc.name or exc.code) if isinstance(exc, CallFailed) else ""
    data = "" if exc.data is None else f" {Value(exc.data).json().decode()}"
    retry = "" if exc.retry_after is None else f"; try again in {exc.retry_after:g} s"
    return f"{f' [{own}]' if own else ''}{data}{retry}"


def printable(text: str) -> str:
    """Return a text that is one line and cannot move the cursor, whoever wrote it."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def print_stderr(text: str) -> None:
    """Say one line on stderr."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def report_error(command: str, exc: BaseException, *, debug: bool) -> int:
    """Tell why a command ended, and return its exit code."""
    if debug:
        traceback.print_exception(exc)
    sentence = error_message(exc)
    # The sentence about a missing extra names the command already.
    print_stderr(sentence if sentence.startswith(f"{command} ") else f"{command}: {sentence}")
    return int(exit_code(exc))


def report_usage_error(exc: typer.TyperException, fallback: str) -> int:
    """Tell what is wrong with the command line."""
    context = getattr(exc, "ctx", None)
    command = str(getattr(context, "command_path", fallback))
    text = exc.format_message().strip().rstrip(".")
    # Without any argument the help was shown instead.
    if text:
        print_stderr(f"{command}: {text[:1].lower()}{text[1:]}; `{command} --help` shows an example")
    return exc.exit_code
