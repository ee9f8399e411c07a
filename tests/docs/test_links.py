"""Every link leads to a page or anchor, and the map of the docs has every page."""

from operator import attrgetter
from pathlib import Path

import pytest

from tests.support.docs import markdown
from tests.support.docs.markdown import Page
from tests.support.paths import ROOT

PAGES = markdown.pages()
MAP = Page(ROOT / "docs" / "README.md")
EXTERNAL = ("https://", "http://", "mailto:")


def broken_links(page: Page) -> list[str]:
    return [target for target in page.links() if not target.startswith(EXTERNAL) and not has_target(page, target)]


def has_target(page: Page, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.path.parent / name).resolve() if name else page.path
    if not path.exists() or not path.is_relative_to(ROOT):
        return False
    return not anchor or (path.suffix == ".md" and anchor in Page(path).anchors())


@pytest.mark.parametrize("page", PAGES, ids=attrgetter("name"))
def test_every_link_has_a_target(page: Page) -> None:
    assert broken_links(page) == []


def test_broken_link_is_detected(tmp_path: Path) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text(
        "# One [two]\n\n[a](#one-two) [b](#three) [c](none.md) [d](https://example.com) ![e](none.svg)\n"
    )
    assert page.anchors() == {"one-two"}
    assert page.links() == ["#one-two", "#three", "none.md", "https://example.com", "none.svg"]
    assert not has_target(Page(ROOT / "README.md"), "docs/guide.md#no-such-heading")
    assert not has_target(Page(ROOT / "README.md"), "docs/none.md")
    assert has_target(Page(ROOT / "README.md"), "docs/guide.md#calls")


def test_headings_of_the_same_name_get_numbers(tmp_path: Path) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text("# A\n\n## When it `fails`\n\n## When it fails\n")
    assert page.anchors() == {"a", "when-it-fails", "when-it-fails-1"}


MAPPED = [page for page in PAGES if page.path not in {MAP.path, ROOT / "README.md"}]


@pytest.mark.parametrize("page", MAPPED, ids=attrgetter("name"))
def test_every_page_is_on_the_map(page: Page) -> None:
    assert page.path in {(MAP.path.parent / target.partition("#")[0]).resolve() for target in MAP.links()}
