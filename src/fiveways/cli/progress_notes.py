"""Notes and progress of a pending call, as text for people."""

import math
from dataclasses import dataclass
from typing import Final, Protocol, Self

from fiveways.cli.errors import print_stderr, printable
from fiveways.client.pending_call import Note
from fiveways.wire.payload import Value

NOTE_KINDS: Final = {"warn": "warning", "note": "note", "transient": "transient", "debug": "debug"}
"""Label of each kind of note on a line of its own."""
_MAX_VALUE: Final = 200
"""Maximum characters of a note's value without text."""


@dataclass(frozen=True, slots=True)
class NoteFraction:
    """The completed amount and the total."""

    done: float
    total: float


def parse_fraction(value: object) -> NoteFraction | None:
    """Parse 0.5, {"done": 5, "total": 10} or [5, 10]; return None for any other value."""
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
    fraction = NoteFraction(float(str(done)), float(str(total)))
    return fraction if fraction.done <= fraction.total and fraction.total else None


def _is_amount(value: object) -> bool:
    """Return whether a value is a number that a bar can show."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1 << 63 and math.isfinite(value)


def note_text(note: Note) -> str:
    """Return the text of a note on one line, or its value unless that is a fraction."""
    if note.text:
        return printable(note.text)
    if note.value is None or parse_fraction(note.value) is not None:
        return ""
    text = note.value if isinstance(note.value, str) else Value(note.value).json().decode()
    return printable(text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}...")


def note_line(note: Note) -> str:
    """Return a note as a line of its own."""
    code = f" [{printable(note.code)}]" if note.code else ""
    text = note_text(note) or ("" if note.value is None else Value(note.value).json().decode())
    return f"{NOTE_KINDS.get(note.kind, note.kind)}{code}{f': {text}' if text else ''}"


class NoteDisplay(Protocol):
    """A display for the notes of a pending call."""

    def __enter__(self) -> Self:
        """Start the display."""

    def __exit__(self, *_: object) -> None:
        """Stop the display, and remove temporary output."""

    def show_note(self, note: Note) -> None:
        """Show a note."""


class NoteLines:
    """Notes as lines on stderr: warnings, or with `verbose` all notes. Implements `NoteDisplay`."""

    def __init__(self, command: str, *, verbose: bool) -> None:
        self._command = command
        self._verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_note(self, note: Note) -> None:
        """Print the note if it is a warning or `verbose` is set."""
        if self._verbose or note.kind == "warn":
            print_stderr(f"{self._command}: {note_line(note)}")
