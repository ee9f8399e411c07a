"""JSON arguments and JSON output."""

import sys
from pathlib import Path

import msgspec

from fiveways.cli.errors import OutputClosed, UsageError
from fiveways.errors import FivewaysError
from fiveways.wire import strict_json
from fiveways.wire.payload import Json, Value


def parse_json_argument(argument: str | None) -> object:
    """Return the value of a JSON argument; None without an argument.

    `-` reads JSON from standard input, `@file` from a file.

    Raises:
        UsageError: the text is not JSON.
    """
    if argument is None:
        return None
    raw, source = _read_argument(argument)
    hint = "" if source else """ (a string needs quotes inside the argument: '"hello"')"""
    return parse_json(raw, source or repr(argument), hint)


def parse_json(raw: bytes, source: str, hint: str = "") -> object:
    """Return the value of JSON text; `source` names its origin in an error message.

    Raises:
        UsageError: the text is not JSON.
    """
    try:
        strict_json.check(raw)
        return Json(raw).value()
    except FivewaysError as exc:
        reason = str(exc).removeprefix("not JSON: ")
        raise UsageError(f"{source} is not JSON: {reason}{hint}") from exc


def _read_argument(argument: str) -> tuple[bytes, str]:
    """Return the bytes of a JSON argument, and their source unless that is the command line."""
    if argument == "-":
        return sys.stdin.buffer.read().strip(), "standard input"
    if argument.startswith("@"):
        return read_file(Path(argument[1:])).strip(), argument[1:]
    # Restore bytes that are not UTF-8, for strict_json to reject them.
    return argument.strip().encode(errors="surrogateescape"), ""


def read_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        UsageError: the file cannot be read.
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
    """Print a value as JSON: formatted on a terminal, else on one line. `raw` prints strings and bytes unencoded.

    Raises:
        OutputClosed: the reader closed stdout.
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
        from rich.console import Console  # noqa: PLC0415  slow import, needed on terminals only
        from rich.highlighter import JSONHighlighter  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        text = Text(msgspec.json.format(Value(value).json(), indent=2).decode())
        JSONHighlighter().highlight(text)
        Console().print(text, soft_wrap=True)
