"""A real Chromium for tests, in a thread of its own.

Playwright's blocking interface keeps an event loop running in its thread for as long as a browser is open; no other
test of that thread could call `asyncio.run`. So all that a test does with a page is a function, run over there:

    def test_the_title(chromium: Chromium) -> None:
        assert chromium.visit(lambda page: page.goto(url) and page.title()) == "Fiveways"
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, TypeVar

import playwright
import pytest
from playwright.sync_api import Browser, Error, Page, Playwright, expect, sync_playwright

T = TypeVar("T")
PATIENCE = 180.0
"""Seconds after which something hangs. No test depends on them otherwise."""
KEPT = 3
"""The most pages that are kept for later tests."""
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one takes a third less CPU time, because it cannot open windows."""
DRIVER = Path(playwright.__file__).with_name("driver") / "node"
"""The Node inside Playwright."""
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def missing(sentence: str) -> NoReturn:
    """Skip a test that needs a program which is not there; where CI=true it has to be."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def require_driver(node: Path = DRIVER) -> None:
    """Skip a test if Playwright's own Node does not start, for lack of a library that no Python package brings."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        missing(f"Playwright's Node does not start; on Debian it needs `libatomic1`: {done.stderr.strip()}")


class Chromium:
    """A browser that runs, and the thread that it belongs to."""

    def __init__(self, *more: str) -> None:
        """Start it, with more options than those that all tests need; skip the test if there is none."""
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            missing("Chromium is not installed; its Debian package is `chromium-headless-shell`")
        require_driver()
        expect.set_options(timeout=PATIENCE * 1000)
        self._kept: dict[str, Page] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._playwright: Playwright = self._thread.submit(lambda: sync_playwright().start()).result(PATIENCE)
        self._browser: Browser = self.do(lambda: self._launch(program, more))

    def _launch(self, program: str, more: tuple[str, ...]) -> Browser:
        return self._playwright.chromium.launch(executable_path=program, args=[*OPTIONS, *more])

    def do(self, act: Callable[[], T]) -> T:
        """Run a function in the browser's thread; what it returns or raises comes back."""
        return self._thread.submit(act).result(2 * PATIENCE)

    def open(self) -> Page:
        """Open a page that shares nothing with others. Use it, and close its context, in `do` only."""
        return self.do(self._open)

    def _open(self) -> Page:
        page = self._browser.new_context().new_page()
        page.set_default_timeout(PATIENCE * 1000)
        return page

    def take(self, url: str) -> Page:
        """Open a page for this address, or return one that was kept for it: its scripts are compiled already."""
        return self._kept.pop(url, None) or self.open()

    def keep(self, url: str, page: Page) -> None:
        """Empty a page, and keep it for the next test with this address; the oldest ones are closed.

        A page that may not reach its storage, as the report may not, is closed.
        """

        def empty() -> None:
            page.unroute_all()
            page.evaluate("() => { sessionStorage.clear(); localStorage.clear(); }")
            page.context.clear_cookies()
            page.goto("about:blank")

        try:
            self.do(empty)
        except Error:
            self.do(page.context.close)
            return
        self._kept[url] = page
        if len(self._kept) > KEPT:
            self.do(self._kept.pop(next(iter(self._kept))).context.close)

    def visit(self, story: Callable[[Page], T]) -> T:
        """Run a function with a page of its own, and close the page."""

        def run() -> T:
            page = self._open()
            try:
                return story(page)
            finally:
                page.context.close()

        return self.do(run)

    def close(self) -> None:
        """End the browser and its thread."""
        self.do(self._browser.close)
        self.do(self._playwright.stop)
        self._thread.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The one browser of the run."""
    browser = Chromium()
    yield browser
    browser.close()
