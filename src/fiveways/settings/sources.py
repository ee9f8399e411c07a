"""Sources of settings: TOML file, environment variables and flags, without knowledge of the sections."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fiveways.errors import FivewaysError

KeyPath: TypeAlias = tuple[str | int, ...]
"""Path to a value: names of tables and keys, and indexes of arrays."""

_ERROR_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")


class SettingsError(FivewaysError):
    """Invalid settings; the message is a sentence with location and reason."""

    def __init__(self, text: str, *, source: str = "", line: int | None = None, key: str = "") -> None:
        location = f"{source}, line {line}" if line else source
        super().__init__(f"{location}: {text}" if location else text)
        self.source = source
        """File, variable or flag."""
        self.line = line
        self.key = key


@dataclass(frozen=True, slots=True)
class SettingLocation:
    """Location of a value. Its line is computed on demand."""

    source: str
    text: str = ""
    """Content of the file; empty for other sources."""
    key: KeyPath = ()

    def line(self) -> int | None:
        """Return the first line of the value, if it is in a file."""
        return line_of(self.text, self.key) if self.text else None

    def child(self, *key: str | int) -> "SettingLocation":
        """Return the location of a part of the value."""
        return SettingLocation(self.source, self.text, (*self.key, *key))

    def error(self, text: str, key: str) -> SettingsError:
        """Return an error for this location."""
        return SettingsError(text, source=self.source, line=self.line(), key=key)

    def __str__(self) -> str:
        line = self.line()
        return f"{self.source}, line {line}" if line else self.source


def read_toml(path: Path) -> tuple[dict[str, object], SettingLocation]:
    """Return the values of a file and their location.

    Raises:
        SettingsError: The file is not readable or not valid TOML.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SettingsError(f"cannot be read: {exc.strerror or exc}", source=str(path)) from exc
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise SettingsError("not valid UTF-8", source=str(path), line=line) from exc
    # Like tomllib, which normalizes line ends before it counts lines.
    text = text.replace("\r\n", "\n")
    try:
        return tomllib.loads(text), SettingLocation(str(path), text)
    except tomllib.TOMLDecodeError as exc:
        reason, line = _parse_error(exc, text)
        raise SettingsError(f"not valid TOML: {reason}", source=str(path), line=line) from exc


def _parse_error(exc: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    message = str(exc)
    if at := _ERROR_POSITION.search(message):
        return f"{message[: at.start()]} (column {at[2]})", int(at[1])
    return message.removesuffix(" (at end of document)"), text.rstrip("\n").count("\n") + 1


def line_of(text: str, key: KeyPath) -> int:
    """Return the first line of the statement that sets `key`, in a text that tomllib can parse.

    tomllib reports no lines. But the first lines of a file are valid TOML if no statement is cut. Bisection therefore
    finds the shortest prefix that contains the key.
    """
    lines = text.split("\n")
    lower, upper = 0, len(lines)
    while lower + 1 < upper:
        middle = (lower + upper) // 2
        count, tree = _valid_prefix(lines, middle)
        if _has_key(tree, key):
            upper = count
        else:
            lower = middle
    return _valid_prefix(lines, upper - 1)[0] + 1


def _valid_prefix(lines: list[str], max_lines: int) -> tuple[int, object]:
    """Return the number of lines in the longest valid prefix of `max_lines` lines, and its values."""
    for count in range(max_lines, 0, -1):
        try:
            return count, tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
    return 0, {}


def _has_key(tree: object, key: KeyPath) -> bool:
    for step in key:
        match tree:
            case dict() if step in tree:
                tree = tree[step]
            case list() if isinstance(step, int) and step < len(tree):
                tree = tree[step]
            case _:
                return False
    return True


def read_value(text: str) -> object:
    """Parse a single TOML value, as in a variable.

    Raises:
        ValueError: The text is not a TOML value.
    """
    tree = tomllib.loads(f"value = {text.strip()}")
    if list(tree) != ["value"]:
        raise ValueError("more than one value")
    return tree["value"]


def environment_variables(env: Mapping[str, str], section: str) -> dict[str, str]:
    """Return the variables of one section by key.

    Variables with other prefixes are ignored: a cluster may set FIVEWAYS_SERVICE_HOST and similar ones itself.
    """
    prefix = f"FIVEWAYS_{section.upper()}_"
    return {name.removeprefix(prefix).lower(): value for name, value in env.items() if name.startswith(prefix)}
