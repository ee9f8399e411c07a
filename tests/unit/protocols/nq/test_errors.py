"""Error objects: placeholders, and the type as seen by the receiver."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.protocols.nq.errors import ErrorObject, escape_braces, read, write

BUSY = ErrorObject("local", True, "busy", "hot", "half", "", ("10", "x"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{0}: {1} of {2}", "busy: 10 of x"),
        ("{err} {warn} {note}", "busy hot half"),
        ("{3}{4}{999999999999999999999}", ""),
        ("{{1}} {} { } {odd} {01} {-1} {", "{10} {} { } {odd} {01} {-1} {"),
        ("", ""),
    ],
)
def test_placeholders_are_filled_and_unmatched_braces_stay(text: str, said: str) -> None:
    assert BUSY.format(text) == said


def test_placeholder_zero_is_the_first_code() -> None:
    assert ErrorObject("warn", False, "", "hot", "half", "{0} {err}").format() == "hot "
    assert ErrorObject("note", False, note="half", text="{0}").format() == "half"


def test_translation_can_have_its_own_arguments() -> None:
    assert BUSY.format("příliš {1}", ("horko",)) == "příliš horko"


@given(st.text(), st.lists(st.text(max_size=5), max_size=3).map(tuple))
def test_escaped_text_formats_to_itself(text: str, before: tuple[str, ...]) -> None:
    encoded, args = escape_braces(text, before)
    assert args[: len(before)] == before
    assert ErrorObject("app", True, "code", text=encoded, args=args).format() == text


@given(st.text(alphabet="{}0129errwanot ", max_size=30))
def test_format_accepts_any_text(text: str) -> None:
    BUSY.format(text)


def test_local_error_is_remote_for_the_receiver() -> None:
    assert BUSY.as_received().type == "remote"
    assert BUSY.as_received().code == "busy"
    assert ErrorObject("app", True).as_received() == ErrorObject("app", True)


def test_type_and_fatal_are_always_written() -> None:
    assert write(ErrorObject("sys", False, note="pending")) == b'{"type":"sys","fatal":false,"note":"pending"}'
    assert read(b"{}") == ErrorObject("", False)
