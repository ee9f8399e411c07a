"""Errors in a page are detected: the tools that follow pages are tried on bad ones."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.docs import desk, following, frames, markdown, matching
from tests.support.docs.markdown import Block, Page

FollowPage: TypeAlias = Callable[[str], None]


@pytest.fixture
def follow_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FollowPage:
    """Returns a function that follows a page given as text."""
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
ERROR = "fiveways config: none.toml: cannot be read: No such file or directory"
GOOD_BLOCKS = [
    "'''console\n$ echo one; echo two >&2\none\ntwo\n'''",
    "'''console\n$ echo number $((6 * 7))\nnumber ...\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n'''",
    "'''console\n$ echo <A>-<A>\n<B>\n$ echo <B>\n<B>\n'''".replace("<A>", "7"),
    "'''console\n$ echo one \\\n    two\none two\n'''",
    "'''python\n# words.py\nWORD = 'tea'\n'''\n\n'''python\nimport words\n\nprint(words.WORD)  # prints tea\n'''",
    "'''toml\n# mine.toml\n[server]\nport = 7600\n'''\n\n    test -s mine.toml  it is there",
    "'''console\n$ echo begun; sleep 60 &\nbegun\n'''\n\n'''console sleep\nbegun\n'''",
    f"'''console\n$ {INTERRUPTED} &\nbegun\n^C\nover\n'''",
    f"'''console\n$ fiveways config check none.toml\n{ERROR}\n'''",
    "'''json\n{\"a\": [1]}\n'''",
    "'''text\nnobody runs this\n'''",
]

BAD_BLOCKS = [
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
    ("'''rust\nfn main() {}\n'''", "unknown kind of block 'rust'"),
    ("    fiveways pipeline run --journal j --out t", "needs Spark"),
    ("    kill -9 PID", "no hub is running"),
    ("    fiveways tail none -f", "should show"),
    ("'''console\n$ exit 1 &\nnever shown\n'''", "should show"),
]


@pytest.mark.parametrize("text", GOOD_BLOCKS)
def test_correct_block_passes(text: str, follow_page: FollowPage) -> None:
    follow_page(text)


@pytest.mark.parametrize(("text", "sentence"), BAD_BLOCKS)
def test_wrong_block_fails(text: str, sentence: str, follow_page: FollowPage) -> None:
    with pytest.raises(AssertionError, match=re.escape(sentence)):
        follow_page(text)


def test_bad_settings_are_detected(follow_page: FollowPage) -> None:
    with pytest.raises(Exception, match=r"limits\.max_nonsense"):
        follow_page("'''toml\n[limits]\nmax_nonsense = 1\n'''\n")


def test_bad_json_is_detected(follow_page: FollowPage) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:\d+ is not JSON: Expecting"):
        follow_page("'''json\n{\"a\": [1}\n'''\n")


def test_page_with_a_missing_program_is_skipped_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text("    curl -s localhost:7500\n", encoding="utf-8")
    monkeypatch.setattr(markdown, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"page\.md needs curl"):
        following.require_programs(page)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md needs curl"):
        following.require_programs(page)


def test_kind_of_indented_blocks_follows_from_their_text() -> None:
    def kind(text: str) -> str:
        return following.kind_of(Block("docs/x.md", 1, markdown.INDENTED, "", text))

    assert (kind("[server]\nport = 1\n"), kind("scrape_configs:\n  - a\n"), kind("fiveways serve\n")) == (
        "toml",
        "yaml",
        "sh",
    )


@pytest.mark.parametrize(
    ("shown", "actual", "fits"),
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
def test_output_matches_the_pattern_of_the_page(shown: str, actual: str, *, fits: bool) -> None:
    assert matching.matches(shown, actual, {"KNOWN": "this"}) is fits


def test_frames_are_parsed() -> None:
    text = "meter  > M1\n         a:b\n         \nmeter << 01 02  # null\ncaller < R1\ncaller [closed 1009]\n"
    assert [(line.peer, line.direction, line.text) for line in frames.lines(Block("p", 1, "frames", "", text))] == [
        ("meter", ">", "M1\na:b\n"),
        ("meter", "<<", "01 02  # null"),
        ("caller", "<", "R1"),
        ("caller", "closed", "1009"),
    ]
    with pytest.raises(AssertionError, match="'what is this' is not a frame"):
        list(frames.lines(Block("p", 1, "frames", "", "what is this\n")))


def test_wrong_meaning_of_bytes_is_detected() -> None:
    frames.check_meaning("82 02 f6  # [2, null]", "p")
    with pytest.raises(AssertionError, match="is not"):
        frames.check_meaning("82 02 f6  # [3, null]", "p")


def test_wrong_frame_of_the_hub_is_detected(follow_page: FollowPage) -> None:
    with pytest.raises(AssertionError, match=r"but received\nW1\.0\.0"):
        follow_page("    fiveways serve\n\n'''frames /umq\n> H1.0.0\n< W2.0.0\n'''\n")
