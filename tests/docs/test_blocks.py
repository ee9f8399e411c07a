"""Every block of the docs is run here, is run by a registered test, or has a registered reason not to be run."""

import re
import tomllib
from operator import attrgetter

import pytest

from tests.support.docs import following, markdown, registry
from tests.support.docs.markdown import Block, Page
from tests.support.paths import ROOT

PAGES = markdown.pages()
BLOCKS = [block for page in PAGES for block in page.blocks()]
COMMANDS = sorted({(page.name, command) for page in PAGES for command in following.commands(page)})
every_page = pytest.mark.parametrize("page", PAGES, ids=attrgetter("name"))


def is_known(block: Block) -> bool:
    kind = following.kind_of(block)
    return (
        kind in registry.KINDS or kind in registry.DRAWINGS or registry.tested_elsewhere(block.page, kind) is not None
    )


@every_page
def test_every_block_is_of_a_known_kind(page: Page) -> None:
    assert [f"{block.place}: {block.kind}" for block in page.blocks() if not is_known(block)] == []


def test_block_of_an_unknown_kind_is_detected() -> None:
    assert not is_known(Block("docs/guide.md", 1, "rust", "", ""))
    assert not is_known(Block("docs/guide.md", 1, "", "", ""))
    assert not is_known(Block("docs/guide.md", 1, "js", "", ""))


@every_page
def test_registered_test_of_a_block_names_its_page(page: Page) -> None:
    for block in page.blocks():
        other = registry.tested_elsewhere(page.name, following.kind_of(block))
        if other is not None:
            assert page.path.name in (ROOT / other.test).read_text(encoding="utf-8"), block.place


@pytest.mark.parametrize("reason", [command.reason for command in registry.NOT_RUN])
def test_tests_in_reasons_exist(reason: str) -> None:
    assert all((ROOT / name).exists() for name in re.findall(r"tests/[\w/]+\.py", reason))


@pytest.mark.parametrize("command", sorted({each for _, each in COMMANDS if each.startswith("make")}))
def test_make_target_exists(command: str) -> None:
    assert following.make_knows(command)


def test_unknown_make_target_is_detected() -> None:
    assert not following.make_knows("make coffee")


INSTALLS = sorted({each for _, each in COMMANDS if re.search(r"pip install", each)})


@pytest.mark.parametrize("command", INSTALLS)
def test_extras_in_pip_commands_exist(command: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"(?:fiveways|'\.|'fiveways)\[([\w,]+)\]", command)
    extras = [extra for each in listed for extra in each.split(",")]
    assert set(extras) <= project["optional-dependencies"].keys()
    assert extras or "paho-mqtt" in command


def test_docs_have_blocks_of_every_kind_that_is_run() -> None:
    assert {following.kind_of(block) for block in BLOCKS} >= registry.KINDS.keys() - {markdown.INDENTED, "json"}
