"""Every block of docs/javascript.md runs: the page in Chromium, the others in Node."""

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


def at(hub: Hub, text: str) -> str:
    """The text, for the hub that runs here."""
    return text.replace("localhost:7500", hub.urls["lrpm"].removeprefix("lrpm+ws://").removesuffix("/lrpm"))


def test_the_page(chromium: Chromium, hub: Hub) -> None:
    (text,) = PAGES
    files = {"/": (at(hub, text).encode(), "text/html"), "/fiveways.js": (MODULE.read_bytes(), "text/javascript")}

    def look(page: Page) -> list[str]:
        page.goto(place)
        page.wait_for_function("() => document.querySelector('#sum').textContent === '5'")
        with fiveways.connect_sync(hub.urls["lrpm"]) as peer:
            # The page may not have subscribed yet: what it shows is what comes from then on.
            while not page.locator("#ticks li").count():
                peer.call("demo.tick", {"times": 1, "pause": 0.0})
        return page.locator("#ticks li").all_text_contents()

    with site(files) as place:
        assert set(chromium.visit(look)) == {"1"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block(hub: Hub, tmp_path: Path, number: int) -> None:
    block = at(hub, BLOCKS[number])
    command, environment = node_command()
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    shutil.copy(MODULE, tmp_path / "fiveways.js")
    (tmp_path / "block.js").write_text(block, encoding="utf-8")
    done = subprocess.run(  # noqa: S603  our own docs
        [*command, "block.js"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"// prints (.*)", block)


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert set(re.findall(r"^```(\w*)$", TEXT, re.MULTILINE)) - {""} == {"html", "js"}
    assert len(BLOCKS) > 4
