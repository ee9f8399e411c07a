"""Where settings are written: a TOML file, variables of the environment, flags. Nothing here knows what they mean."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fiveways.errors import FivewaysError

KeyPath: TypeAlias = tuple[str | int, ...]
"""The way to a value: names of tables and keys, and numbers in an array."""

_ERROR_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")


class SettingsError(FivewaysError):
    """Settings that cannot be used; the message is a sentence that says where they are written, and why."""

    def __init__(self, text: str, *, place: str = "", line: int | None = None, key: str = "") -> None:
        where = f"{place}, line {line}" if line else place
        super().__init__(f"{where}: {text}" if where else text)
        self.source = place
        """The file, the variable or the flag."""
        self.line = line
        self.key = key


@dataclass(frozen=True, slots=True)
class SettingLocation:
    """Where a value is written. Its line is looked for only when somebody asks."""

    source: str
    text: str = ""
    """The whole file, if it is one."""
    key: KeyPath = ()

    def line(self) -> int | None:
        """Return the line on which it begins, if it is in a file."""
        return line_of(self.text, self.key) if self.text else None

    def child(self, *key: str | int) -> "SettingLocation":
        """Return the place of a part of the value."""
        return SettingLocation(self.source, self.text, (*self.key, *key))

    def error(self, text: str, key: str) -> SettingsError:
        """Return what is wrong with the value that is here."""
        return SettingsError(text, place=self.source, line=self.line(), key=key)

    def __str__(self) -> str:
        line = self.line()
        return f"{self.source}, line {line}" if line else self.source


def read_toml(path: Path) -> tuple[dict[str, object], SettingLocation]:
    """Return what a file says, and the place of its values.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SettingsError(f"cannot be read: {exc.strerror or exc}", place=str(path)) from exc
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise SettingsError("this is not UTF-8", place=str(path), line=line) from exc
    # As TOML has it; tomllib does the same before it counts lines.
    text = text.replace("\r\n", "\n")
    try:
        return tomllib.loads(text), SettingLocation(str(path), text)
    except tomllib.TOMLDecodeError as exc:
        reason, line = _parse_error(exc, text)
        raise SettingsError(f"this is no TOML: {reason}", place=str(path), line=line) from exc


def _parse_error(exc: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    message = str(exc)
    if at := _ERROR_POSITION.search(message):
        return f"{message[: at.start()]} (column {at[2]})", int(at[1])
    return message.removesuffix(" (at end of document)"), text.rstrip("\n").count("\n") + 1


def line_of(text: str, key: KeyPath) -> int:
    """Return the line on which the statement begins that sets `key`, in a text that tomllib reads.

    tomllib tells no lines. But the first so many lines of a file are TOML by themselves exactly if no statement is cut,
    so halving finds the shortest beginning that holds the key.
    """
    lines = text.split("\n")
    without, holding = 0, len(lines)
    while without + 1 < holding:
        middle = (without + holding) // 2
        count, tree = _valid_prefix(lines, middle)
        if _has_key(tree, key):
            holding = count
        else:
            without = middle
    return _valid_prefix(lines, holding - 1)[0] + 1


def _valid_prefix(lines: list[str], most: int) -> tuple[int, object]:
    """Return how many of the first `most` lines are whole statements, and what they say."""
    for count in range(most, 0, -1):
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
    """Return what one TOML value says that stands by itself, as in a variable.

    Raises:
        ValueError: it is none.
    """
    tree = tomllib.loads(f"value = {text.strip()}")
    if list(tree) != ["value"]:
        raise ValueError("more than one value")
    return tree["value"]


def environment_variables(env: Mapping[str, str], section: str) -> dict[str, str]:
    """Return the variables of one section, by the name of the key.

    What starts otherwise is somebody else's: a cluster may set FIVEWAYS_SERVICE_HOST and its like by itself.
    """
    prefix = f"FIVEWAYS_{section.upper()}_"
    return {name.removeprefix(prefix).lower(): text for name, text in env.items() if name.startswith(prefix)}
