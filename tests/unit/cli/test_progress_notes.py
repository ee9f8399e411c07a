"""Notes and progress of pending calls as text."""

import pytest

from fiveways.app.context import NOTE_KINDS
from fiveways.cli.progress_notes import NoteFraction, NoteLines, note_line, note_text, parse_fraction
from fiveways.client.pending_call import Note


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (0, NoteFraction(0, 1)),
        (0.25, NoteFraction(0.25, 1)),
        (1, NoteFraction(1, 1)),
        ([3, 10], NoteFraction(3, 10)),
        ({"done": 0.5, "total": 2}, NoteFraction(0.5, 2)),
        ({"done": 3, "total": 10, "unit": "pages"}, NoteFraction(3, 10)),
        (1.5, None),
        (-0.5, None),
        (True, None),
        (None, None),
        (float("nan"), None),
        ([1, float("inf")], None),
        ([0, 0], None),
        ([11, 10], None),
        ([1, 2, 3], None),
        (["1", "2"], None),
        ([True, True], None),
        ({"done": 3}, None),
        (1 << 80, None),
        ([1, 10**400], None),
        ("half", None),
    ],
)
def test_fraction_is_a_number_or_a_pair(value: object, fraction: NoteFraction | None) -> None:
    assert parse_fraction(value) == fraction


@pytest.mark.parametrize(
    ("note", "text"),
    [
        (Note("note", 0.5, "page 5"), "page 5"),
        (Note("note", 0.5), ""),
        (Note("note"), ""),
        (Note("note", "linking"), "linking"),
        (Note("note", {"page": 5}), '{"page":5}'),
        (Note("note", None, "red\x1b[31m\nline"), "red\\x1b[31m\\nline"),
        (Note("note", "x" * 300), "x" * 200 + "..."),
    ],
)
def test_note_text_is_one_line(note: Note, text: str) -> None:
    assert note_text(note) == text


@pytest.mark.parametrize(
    ("note", "line"),
    [
        (Note("warn", None, "no picture"), "warning: no picture"),
        (Note("warn", None, "no picture", "nopic"), "warning [nopic]: no picture"),
        (Note("debug", 0.5), "debug: 0.5"),
        (Note("transient", None, "", "waiting"), "transient [waiting]"),
        (Note("note"), "note"),
    ],
)
def test_note_line_begins_with_the_kind(note: Note, line: str) -> None:
    assert note_line(note) == line


@pytest.mark.parametrize(("verbose", "lines"), [(False, ["warning: x"]), (True, [*map("{}: x".format, NOTE_KINDS)])])
def test_note_lines_show_warnings_and_all_notes_if_verbose(
    verbose: bool, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with NoteLines("fiveways call", verbose=verbose) as display:
        for kind in NOTE_KINDS:
            display.show_note(Note(kind, None, "x"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"fiveways call: {line}".replace(" warn:", " warning:") for line in lines]
