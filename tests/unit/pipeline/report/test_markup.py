"""Markup is safe by its type."""

import pytest

from fiveways.pipeline.report.markup import (
    MAX_NAME_LENGTH,
    MAX_TITLE_LENGTH,
    Markup,
    escape_invisible,
    join,
    name_markup,
    shorten,
    tag,
    to_markup,
)


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "<b>&\"'", Markup("<br/>")) == "<p>&lt;b&gt;&amp;&quot;&#x27;<br/></p>"


def test_attributes_are_escaped_and_none_is_left_out() -> None:
    element = tag("td", class_='a" onclick="x', data_v=3, title=None, hidden=False, open=True)
    assert element == '<td class="a&quot; onclick=&quot;x" data-v="3" open="open"></td>'


def test_join_escapes_text_but_not_markup() -> None:
    assert join(["<", tag("br"), 5, None]) == "&lt;<br/>5"


@pytest.mark.parametrize(
    ("raw", "visible"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\x00", "a\\nb\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u200b", "\\u200b"),
        ("naïve – ключ 鍵", "naïve – ключ 鍵"),
        ("5\N{NO-BREAK SPACE}ms", "5\N{NO-BREAK SPACE}ms"),
    ],
)
def test_invisible_characters_are_escaped(raw: str, visible: str) -> None:
    assert escape_invisible(raw) == visible
    assert visible in to_markup(raw)


def test_long_name_is_shortened_with_bounded_tooltip() -> None:
    element = name_markup("x" * 5000 + "end")
    assert element.count("x") <= MAX_NAME_LENGTH + MAX_TITLE_LENGTH
    assert "end</span>" in element
    assert 'title="' in element
    assert len(shorten("abc" * 100, 30)) == 30


def test_missing_and_empty_names_differ() -> None:
    assert "nobody" in name_markup(None, none="nobody")
    assert "(empty)" in name_markup("")
