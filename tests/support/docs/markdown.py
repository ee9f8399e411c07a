"""The pages of the docs as data: blocks, headings, links and inline code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.paths import ROOT

INDENTED = "indented"
"""The kind of an unfenced block, until `following` has determined it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code, fenced or indented."""

    page: str
    line: int
    kind: str
    details: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Page:
    """One page, with its parsed content."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[Block]:
        return [self._block(token) for token in self._tokens() if token.type in {"fence", "code_block"}]

    def _block(self, token: Token) -> Block:
        assert token.map is not None
        kind, _, details = token.info.strip().partition(" ")
        if token.type == "code_block":
            kind = INDENTED
        return Block(self.name, token.map[0] + 1, kind, details, token.content)

    def links(self) -> list[str]:
        """Return the targets of links and pictures."""
        inline = [child for token in self._tokens() for child in token.children or []]
        named = [(child.type, child.attrGet("href") or child.attrGet("src")) for child in inline]
        return [str(target) for kind, target in named if kind in {"link_open", "image"} and target]

    def code(self) -> list[str]:
        """Return the texts of inline code."""
        return [
            child.content for token in self._tokens() for child in token.children or [] if child.type == "code_inline"
        ]

    def anchors(self) -> set[str]:
        """Return the anchors that GitHub generates from the headings."""
        tokens = self._tokens()
        heads = [tokens[index + 1].content for index, token in enumerate(tokens) if token.type == "heading_open"]
        return set(_numbered(slug(head) for head in heads))

    def _tokens(self) -> list[Token]:
        return _parsed(self.text)


@cache
def _parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")


def _numbered(slugs: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for anchor in slugs:
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def pages() -> list[Page]:
    """Return README, the docs, and the READMEs of the protocols."""
    protocols = sorted((ROOT / "src/fiveways/protocols").glob("*/README.md"))
    return [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *protocols)]
