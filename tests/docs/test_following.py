"""A page that says something untrue is found: the tools that follow pages are tried on bad ones."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.docs import desk, following, frames, markdown, matching
from tests.support.docs.markdown import Block, Page

Followed: TypeAlias = Callable[[str], None]


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    """Follows a page that is given as a text."""
    monkeypatch.setattr(markdown, "ROOT", tmp_path)

    def follow(text: str) -> None:
        path = tmp_path / "page.md"
        path.write_text(text.replace("'''", "```"), encoding="utf-8")
        folder = tmp_path / "desk"
        folder.mkdir()
        with desk.desk(folder, desk.free_ports(["7500", "7555", "1883"])) as mine:
            following.Reader(Page(path), mine).follow()

    return follow


INTERRUPTED = "trap 'echo over; exit' INT; echo begun; while :; do sleep 0.05; done"
COMPLAINT = "fiveways config: none.toml: cannot be read: No such file or directory"
GOOD = [
    "'''console\n$ echo one; echo two >&2\none\ntwo\n'''",
    "'''console\n$ echo number $((6 * 7))\nnumber ...\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n'''",
    "'''console\n$ echo <A>-<A>\n<B>\n$ echo <B>\n<B>\n'''".replace("<A>", "7"),
    "'''console\n$ echo one \\\n    two\none two\n'''",
    "'''python\n# words.py\nWORD = 'tea'\n'''\n\n'''python\nimport words\n\nprint(words.WORD)  # prints tea\n'''",
    "'''toml\n# mine.toml\n[server]\nport = 7600\n'''\n\n    test -s mine.toml  it is there",
    "'''console\n$ echo begun; sleep 60 &\nbegun\n'''\n\n'''console sleep\nbegun\n'''",
    f"'''console\n$ {INTERRUPTED} &\nbegun\n^C\nover\n'''",
    f"'''console\n$ fiveways config check none.toml\n{COMPLAINT}\n'''",
    "'''json\n{\"a\": [1]}\n'''",
    "'''text\nnobody runs this\n'''",
]

BAD = [
    ("'''console\n$ echo one\ntwo\n'''", "should show"),
    ("'''console\n$ echo one\n'''", "should show"),
    ("'''console\n$ false\n'''", "ends with 1"),
    ("'''console\n$ echo fiveways call: it failed\nfiveways call: it failed\n'''", "ends with 0"),
    ("'''console\nno command\n'''", "does not begin with a command"),
    ("    no-such-program --flag", "ends with 127"),
    ("    false | true", "ends with 1"),
    ("'''python\nprint(1)  # prints 2\n'''", "should show"),
    ("'''python\nraise SystemExit(3)\n'''", "ends with 3"),
    ("'''proto\nsyntax = \"proto3\";\n'''", "without a file's name"),
    ("'''rust\nfn main() {}\n'''", "nobody knows what to do with 'rust'"),
    ("    fiveways pipeline run --journal j --out t", "needs Spark"),
    ("    kill -9 PID", "there is no hub"),
    ("    fiveways tail none -f", "should show"),
    ("'''console\n$ exit 1 &\nnever shown\n'''", "should show"),
]


@pytest.mark.parametrize("text", GOOD)
def test_what_is_true_is_left_in_peace(text: str, followed: Followed) -> None:
    followed(text)


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_what_is_untrue_is_found(text: str, sentence: str, followed: Followed) -> None:
    with pytest.raises(AssertionError, match=re.escape(sentence)):
        followed(text)


def test_bad_settings_are_found(followed: Followed) -> None:
    with pytest.raises(Exception, match=r"limits\.max_nonsense"):
        followed("'''toml\n[limits]\nmax_nonsense = 1\n'''\n")


def test_bad_json_is_found(followed: Followed) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:\d+ is no JSON: Expecting"):
        followed("'''json\n{\"a\": [1}\n'''\n")


def test_a_page_is_skipped_where_its_program_is_missing_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text("    curl -s localhost:7500\n", encoding="utf-8")
    monkeypatch.setattr(markdown, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"page\.md is followed with curl"):
        following.require_programs(page)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md is followed with curl"):
        following.require_programs(page)


def test_indented_blocks_are_what_they_look_like() -> None:
    def kind(text: str) -> str:
        return following.kind_of(Block("docs/x.md", 1, markdown.INDENTED, "", text))

    assert (kind("[server]\nport = 1\n"), kind("scrape_configs:\n  - a\n"), kind("fiveways serve\n")) == (
        "toml",
        "yaml",
        "sh",
    )


@pytest.mark.parametrize(
    ("shown", "came", "fits"),
    [
        ("a...c", "abc", True),
        ("a...c", "ab\nc", False),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a\n...\nc", "a\nc", True),
        ("a\n...", "a\nb\nc\n", True),
        ("a\n...", "a\n", True),
        ("a\n...", "ab\n", False),
        ("<A> <A>", "x x", True),
        ("<A> <A>", "x y", False),
        ("<KNOWN>", "this", True),
        ("<KNOWN>", "that", False),
        ("a+", "aa", False),
        ("a  \n\n", "a\n", True),
    ],
)
def test_what_is_shown_fits_what_came(shown: str, came: str, *, fits: bool) -> None:
    assert matching.matched(shown, came, {"KNOWN": "this"}) is fits


def test_frames_are_taken_apart() -> None:
    text = "meter  > M1\n         a:b\n         \nmeter << 01 02  # null\ncaller < R1\ncaller [closed 1009]\n"
    assert [(line.who, line.way, line.text) for line in frames.lines(Block("p", 1, "frames", "", text))] == [
        ("meter", ">", "M1\na:b\n"),
        ("meter", "<<", "01 02  # null"),
        ("caller", "<", "R1"),
        ("caller", "closed", "1009"),
    ]
    with pytest.raises(AssertionError, match="'what is this' is no frame"):
        list(frames.lines(Block("p", 1, "frames", "", "what is this\n")))


def test_bytes_that_are_said_to_be_something_else_are_found() -> None:
    frames.said_to_be("82 02 f6  # [2, null]", "p")
    with pytest.raises(AssertionError, match="is not"):
        frames.said_to_be("82 02 f6  # [3, null]", "p")


def test_frames_that_the_hub_does_not_say_are_found(followed: Followed) -> None:
    with pytest.raises(AssertionError, match=r"and this came:\nW1\.0\.0"):
        followed("    fiveways serve\n\n'''frames /umq\n> H1.0.0\n< W2.0.0\n'''\n")
