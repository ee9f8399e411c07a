"""Markup that is safe by its type."""

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


def test_attributes_are_escaped_and_nothing_leaves_them_out() -> None:
    drawn = tag("td", class_='a" onclick="x', data_v=3, title=None, hidden=False, open=True)
    assert drawn == '<td class="a&quot; onclick=&quot;x" data-v="3" open="open"></td>'


def test_parts_are_joined_each_by_its_own_rule() -> None:
    assert join(["<", tag("br"), 5, None]) == "&lt;<br/>5"


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\x00", "a\\nb\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u200b", "\\u200b"),
        ("naïve – ключ 鍵", "naïve – ключ 鍵"),
        ("5\N{NO-BREAK SPACE}ms", "5\N{NO-BREAK SPACE}ms"),
    ],
)
def test_every_character_can_be_seen(raw: str, seen: str) -> None:
    assert escape_invisible(raw) == seen
    assert seen in to_markup(raw)


def test_a_long_name_loses_its_middle_and_has_a_bounded_title() -> None:
    drawn = name_markup("x" * 5000 + "end")
    assert drawn.count("x") <= MAX_NAME_LENGTH + MAX_TITLE_LENGTH
    assert "end</span>" in drawn
    assert 'title="' in drawn
    assert len(shorten("abc" * 100, 30)) == 30


def test_names_that_are_missing_or_empty_are_told_apart() -> None:
    assert "nobody" in name_markup(None, none="nobody")
    assert "(empty)" in name_markup("")
