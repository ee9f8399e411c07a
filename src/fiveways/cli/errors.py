"""Exit codes, and error messages on stderr."""

import os
import sys
import traceback
from enum import IntEnum

import typer

from fiveways.errors import CallError, CallFailed, CallTimeout, FivewaysError


class ExitCode(IntEnum):
    """Exit codes of all commands except `check`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMEOUT = 124


class UsageError(FivewaysError):
    """An error in the command line."""


class OutputClosed(FivewaysError):
    """The reader closed stdout, as `head` does. This is not a failure."""


def exit_code(exc: BaseException) -> ExitCode:
    """Return the exit code for an exception."""
    if isinstance(exc, CallTimeout | TimeoutError):
        return ExitCode.TIMEOUT
    if isinstance(exc, UsageError):
        return ExitCode.USAGE
    return ExitCode.FAILED


def error_message(exc: BaseException) -> str:
    """Return the sentence for an exception."""
    match exc:
        case CallError():
            return f"{exc}{_error_details(exc)}"
        case FivewaysError():
            return str(exc)
        case TimeoutError():
            return str(exc) or "no response in time"
        case OSError():
            reason = exc.strerror or str(exc) or type(exc).__name__
            return f"{os.fsdecode(exc.filename)}: {reason}" if isinstance(exc.filename, str | bytes) else reason
        case _:
            return f"unexpected error ({type(exc).__name__}: {exc}); `fiveways --debug ...` prints a traceback"


def _error_details(exc: CallError) -> str:
    from fiveways.wire.payload import Value  # noqa: PLC0415  not needed for help

    error_name = (exc.name or exc.code) if isinstance(exc, CallFailed) else ""
    data = "" if exc.data is None else f" {Value(exc.data).json().decode()}"
    retry = "" if exc.retry_after is None else f"; retry after {exc.retry_after:g} s"
    return f"{f' [{error_name}]' if error_name else ''}{data}{retry}"


def printable(text: str) -> str:
    """Return a text on one line, with control characters escaped: it cannot move the cursor."""
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    )


def print_stderr(text: str) -> None:
    """Print one line on stderr."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def report_error(command: str, exc: BaseException, *, debug: bool) -> int:
    """Print the reason for a failure on stderr, and return the exit code."""
    if debug:
        traceback.print_exception(exc)
    message = error_message(exc)
    # The error about a missing extra begins with the command.
    print_stderr(message if message.startswith(f"{command} ") else f"{command}: {message}")
    return int(exit_code(exc))


def report_usage_error(exc: typer.TyperException, fallback: str) -> int:
    """Print an error of the command line parser on stderr, and return its exit code."""
    context = getattr(exc, "ctx", None)
    command = str(getattr(context, "command_path", fallback))
    text = exc.format_message().strip().rstrip(".")
    # Without arguments, typer has printed the help already.
    if text:
        print_stderr(f"{command}: {text[:1].lower()}{text[1:]}; `{command} --help` shows an example")
    return exc.exit_code
