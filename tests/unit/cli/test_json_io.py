"""JSON arguments and JSON output."""

import io
import sys
from pathlib import Path

import pytest

from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import parse_json_argument, print_value, read_file


class Output(io.TextIOWrapper):
    """Standard output that can be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.written = io.BytesIO()
        self.is_terminal = is_terminal
        super().__init__(self.written, encoding="utf-8")

    def isatty(self) -> bool:
        return self.is_terminal


def printed(monkeypatch: pytest.MonkeyPatch, value: object, *, raw: bool = False, is_terminal: bool = False) -> bytes:
    output = Output(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    print_value(value, raw=raw)
    output.flush()
    return output.written.getvalue()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        (None, None),
        ("null", None),
        ('"hello"', "hello"),
        (" [2, 3]\n", [2, 3]),
        ('{"$base64": "AP8="}', b"\x00\xff"),
        ('{"a": {"b": 1e3}}', {"a": {"b": 1000.0}}),
    ],
)
def test_argument_is_parsed_as_json(argument: str | None, value: object) -> None:
    assert parse_json_argument(argument) == value


def test_json_comes_from_standard_input_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1]\n")))
    assert parse_json_argument("-") == [1]
    (tmp_path / "two.json").write_bytes(b"[2]\n")
    assert parse_json_argument(f"@{tmp_path / 'two.json'}") == [2]


@pytest.mark.parametrize("argument", ["hello", "", "[1", "nan", "'a'", '{"$number": 1}', '"\udcff"'])
def test_argument_that_is_not_json_is_usage_error(argument: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_json_argument(argument)
    assert str(caught.value).startswith(f"{argument!r} is not JSON: ")
    assert """'"hello"'""" in str(caught.value)


def test_error_in_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("hello", encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad\.json is not JSON"):
        parse_json_argument(f"@{path}")
    with pytest.raises(UsageError, match=r"missing\.json cannot be read: No such file"):
        read_file(tmp_path / "missing.json")


VALUES: list[tuple[object, bytes, bytes]] = [
    ({"a": [1, None]}, b'{"a":[1,null]}\n', b'{"a":[1,null]}\n'),
    ("hé", '"hé"\n'.encode(), "hé\n".encode()),
    (b"\x00\xff", b'{"$base64":"AP8="}\n', b"\x00\xff"),
    (None, b"null\n", b"null\n"),
]


@pytest.mark.parametrize(("value", "line", "raw"), VALUES)
def test_output_without_terminal_is_one_compact_line(
    monkeypatch: pytest.MonkeyPatch, value: object, line: bytes, raw: bytes
) -> None:
    assert printed(monkeypatch, value) == line
    assert printed(monkeypatch, value, raw=True) == raw
    assert printed(monkeypatch, value, raw=True, is_terminal=True) == raw


def test_output_on_terminal_is_coloured_and_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed(monkeypatch, {"a": [1, "x\x1b[31m"]}, is_terminal=True).decode()
    assert text.count("\n") > 3
    assert "\x1b[" in text
    # Escape sequences from a peer must not reach the terminal.
    assert "\\u001b[31m" in text
