"""Error objects: placeholders, and what becomes of an error on its way."""

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
def test_placeholders_are_filled_and_odd_braces_stay(text: str, said: str) -> None:
    assert BUSY.format(text) == said


def test_the_first_code_there_is_stands_for_zero() -> None:
    assert ErrorObject("warn", False, "", "hot", "half", "{0} {err}").format() == "hot "
    assert ErrorObject("note", False, note="half", text="{0}").format() == "half"


def test_a_translation_may_bring_its_own_arguments() -> None:
    assert BUSY.format("příliš {1}", ("horko",)) == "příliš horko"


@given(st.text(), st.lists(st.text(max_size=5), max_size=3).map(tuple))
def test_any_text_can_be_said_plainly(text: str, before: tuple[str, ...]) -> None:
    written, args = escape_braces(text, before)
    assert args[: len(before)] == before
    assert ErrorObject("app", True, "code", text=written, args=args).format() == text


@given(st.text(alphabet="{}0129errwanot ", max_size=30))
def test_no_text_makes_it_fail(text: str) -> None:
    BUSY.format(text)


def test_what_the_senders_library_made_is_remote_for_the_receiver() -> None:
    assert BUSY.as_received().type == "remote"
    assert BUSY.as_received().code == "busy"
    assert ErrorObject("app", True).as_received() == ErrorObject("app", True)


def test_type_and_fatal_are_always_said() -> None:
    assert write(ErrorObject("sys", False, note="pending")) == b'{"type":"sys","fatal":false,"note":"pending"}'
    assert read(b"{}") == ErrorObject("", False)
