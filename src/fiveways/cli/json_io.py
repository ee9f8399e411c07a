"""JSON in, JSON out."""

import sys
from pathlib import Path

import msgspec

from fiveways.cli.errors import OutputClosed, UsageError
from fiveways.errors import FivewaysError
from fiveways.wire import strict_json
from fiveways.wire.payload import Json, Value


def parse_json_argument(argument: str | None) -> object:
    """Return the value of a JSON argument: the text itself, `-` for standard input, `@file` for a file; null if none.

    Raises:
        UsageError: there is no JSON.
    """
    if argument is None:
        return None
    raw, where = _read_argument(argument)
    hint = "" if where else """ (a text needs quotes of its own: '"hello"')"""
    return parse_json(raw, where or repr(argument), hint)


def parse_json(raw: bytes, where: str, hint: str = "") -> object:
    """Return the value of a text in JSON, which stood there.

    Raises:
        UsageError: it is no JSON.
    """
    try:
        strict_json.check(raw)
        return Json(raw).value()
    except FivewaysError as exc:
        reason = str(exc).removeprefix("not JSON: ")
        raise UsageError(f"{where} is no JSON: {reason}{hint}") from exc


def _read_argument(argument: str) -> tuple[bytes, str]:
    """Return the bytes of a JSON argument, and where they are if not on the command line."""
    if argument == "-":
        return sys.stdin.buffer.read().strip(), "standard input"
    if argument.startswith("@"):
        return read_file(Path(argument[1:])).strip(), argument[1:]
    # What the shell gave us and is no UTF-8 becomes what it was, for the judge to refuse.
    return argument.strip().encode(errors="surrogateescape"), ""


def read_file(path: Path) -> bytes:
    """Return what a file of the user's holds.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc


def check_readable(path: Path) -> Path:
    """Return the path of a file to attach; UsageError if it cannot be read."""
    try:
        path.open("rb").close()
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    return path


def print_value(value: object, *, raw: bool = False) -> None:
    """Print a value: compact on one line, for people if they read it; with `raw` texts and bytes as they are.

    Raises:
        NobodyReads: the other end of the pipe is closed.
    """
    try:
        _print_value(value, raw=raw)
    except BrokenPipeError as exc:
        raise OutputClosed from exc


def _print_value(value: object, *, raw: bool) -> None:
    out = sys.stdout
    if raw and isinstance(value, bytes):
        out.flush()
        out.buffer.write(value)
        out.buffer.flush()
    elif raw and isinstance(value, str):
        print(value, flush=True)  # noqa: T201
    elif raw or not out.isatty():
        print(Value(value).json().decode(), flush=True)  # noqa: T201
    else:
        from rich.console import Console  # noqa: PLC0415  programs that read the output do without it
        from rich.highlighter import JSONHighlighter  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        text = Text(msgspec.json.format(Value(value).json(), indent=2).decode())
        JSONHighlighter().highlight(text)
        Console().print(text, soft_wrap=True)
