"""What a method tells while it runs, in words and numbers for people."""

import math
from dataclasses import dataclass
from typing import Final, Protocol, Self

from fiveways.cli.errors import print_stderr, printable
from fiveways.client.pending_call import Note
from fiveways.wire.payload import Value

NOTE_KINDS: Final = {"warn": "warning", "note": "note", "transient": "transient", "debug": "debug"}
"""How each kind of note is called on a line of its own."""
_MAX_VALUE: Final = 200
"""Characters of a value that nobody has put into words."""


@dataclass(frozen=True, slots=True)
class NoteFraction:
    """How much is done, and of how much."""

    done: float
    total: float


def parse_fraction(value: object) -> NoteFraction | None:
    """Read 0.5, {"done": 5, "total": 10} or [5, 10]; None for all else."""
    match value:
        case {"done": done, "total": total} | [done, total]:
            return _fraction(done, total)
        case int() | float():
            return _fraction(value, 1)
        case _:
            return None


def _fraction(done: object, total: object) -> NoteFraction | None:
    if not (_is_amount(done) and _is_amount(total)):
        return None
    share = NoteFraction(float(str(done)), float(str(total)))
    return share if share.done <= share.total and share.total else None


def _is_amount(value: object) -> bool:
    """Say whether it is a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1 << 63 and math.isfinite(value)


def note_text(note: Note) -> str:
    """Return what a note says, in one line: its text, else its value if that is more than a share."""
    if note.text:
        return printable(note.text)
    if note.value is None or parse_fraction(note.value) is not None:
        return ""
    text = note.value if isinstance(note.value, str) else Value(note.value).json().decode()
    return printable(text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}...")


def note_line(note: Note) -> str:
    """Return a note as a line of its own."""
    code = f" [{printable(note.code)}]" if note.code else ""
    words = note_text(note) or ("" if note.value is None else Value(note.value).json().decode())
    return f"{NOTE_KINDS.get(note.kind, note.kind)}{code}{f': {words}' if words else ''}"


class NoteDisplay(Protocol):
    """Who tells the user what a method says."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End, and leave nothing behind that is not worth to be read later."""

    def show_note(self, note: Note) -> None:
        """Tell one."""


class NoteLines:
    """Tells a file or a program: warnings, and all there is to those who want to hear more. Fulfils `Teller`."""

    def __init__(self, command: str, *, verbose: bool) -> None:
        self._command = command
        self._verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_note(self, note: Note) -> None:
        """Tell it, if it is worth a line."""
        if self._verbose or note.kind == "warn":
            print_stderr(f"{self._command}: {note_line(note)}")
