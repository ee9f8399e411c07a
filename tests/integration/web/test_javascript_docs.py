"""Every block of docs/javascript.md runs: the page in Chromium, the others in Node.js."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Page

import fiveways
from tests.integration.web.browsers import PATIENCE, Chromium
from tests.integration.web.engines import MODULE, node_command, site
from tests.support.hubs import Hub
from tests.support.paths import ROOT

TEXT = (ROOT / "docs/javascript.md").read_text(encoding="utf-8")
PAGES = re.findall(r"```html\n(.*?)```", TEXT, re.DOTALL)
BLOCKS = re.findall(r"```js\n(.*?)```", TEXT, re.DOTALL)


def with_address(hub: Hub, text: str) -> str:
    """Return the text with the address of the running hub."""
    return text.replace("localhost:7500", hub.urls["lrpm"].removeprefix("lrpm+ws://").removesuffix("/lrpm"))


def test_page_shows_sum_and_events(chromium: Chromium, hub: Hub) -> None:
    (text,) = PAGES
    files = {
        "/": (with_address(hub, text).encode(), "text/html"),
        "/fiveways.js": (MODULE.read_bytes(), "text/javascript"),
    }

    def check(page: Page) -> list[str]:
        page.goto(url)
        page.wait_for_function("() => document.querySelector('#sum').textContent === '5'")
        with fiveways.connect_sync(hub.urls["lrpm"]) as peer:
            # The page may not have subscribed yet, so publish until it shows an event.
            while not page.locator("#ticks li").count():
                peer.call("demo.tick", {"times": 1, "pause": 0.0})
        return page.locator("#ticks li").all_text_contents()

    with site(files) as url:
        assert set(chromium.visit(check)) == {"1"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_prints_the_expected_lines(hub: Hub, tmp_path: Path, number: int) -> None:
    block = with_address(hub, BLOCKS[number])
    command, environment = node_command()
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    shutil.copy(MODULE, tmp_path / "fiveways.js")
    (tmp_path / "block.js").write_text(block, encoding="utf-8")
    result = subprocess.run(  # noqa: S603  our own docs
        [*command, "block.js"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == re.findall(r"// prints (.*)", block)


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert set(re.findall(r"^```(\w*)$", TEXT, re.MULTILINE)) - {""} == {"html", "js"}
    assert len(BLOCKS) > 4
