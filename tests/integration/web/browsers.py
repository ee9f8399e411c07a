"""A real Chromium for tests, in its own thread.

Playwright's blocking API runs an event loop in its thread while a browser is open, so no other test of that thread
could call `asyncio.run`. All access to a page is therefore a function that runs in the browser's thread:

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
"""Timeout in seconds; no test depends on it otherwise."""
MAX_KEPT_PAGES = 3
"""Limit of pages kept for later tests."""
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one uses a third less CPU time, because it has no windows."""
DRIVER = Path(playwright.__file__).with_name("driver") / "node"
"""The Node.js of Playwright."""
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def missing(sentence: str) -> NoReturn:
    """Skip a test that needs a missing program; fail it if CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def require_driver(node: Path = DRIVER) -> None:
    """Skip a test if Playwright's Node.js does not start because of a missing system library."""
    result = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        missing(f"Playwright's Node does not start; on Debian it needs `libatomic1`: {result.stderr.strip()}")


class Chromium:
    """A running browser and its thread."""

    def __init__(self, *options: str) -> None:
        """Start the browser with additional options; skip the test if there is none."""
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            missing("Chromium is not installed; its Debian package is `chromium-headless-shell`")
        require_driver()
        expect.set_options(timeout=PATIENCE * 1000)
        self._kept: dict[str, Page] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._playwright: Playwright = self._thread.submit(lambda: sync_playwright().start()).result(PATIENCE)
        self._browser: Browser = self.do(lambda: self._launch(program, options))

    def _launch(self, program: str, options: tuple[str, ...]) -> Browser:
        return self._playwright.chromium.launch(executable_path=program, args=[*OPTIONS, *options])

    def do(self, act: Callable[[], T]) -> T:
        """Run a function in the browser's thread, and return its result."""
        return self._thread.submit(act).result(2 * PATIENCE)

    def open(self) -> Page:
        """Open an isolated page. Use it, and close its context, only in `do`."""
        return self.do(self._open)

    def _open(self) -> Page:
        page = self._browser.new_context().new_page()
        page.set_default_timeout(PATIENCE * 1000)
        return page

    def take(self, url: str) -> Page:
        """Return a kept page for this URL, whose scripts are compiled already, or open one."""
        return self._kept.pop(url, None) or self.open()

    def keep(self, url: str, page: Page) -> None:
        """Empty a page, and keep it for the next test with this URL; the oldest pages are closed.

        A page that has no access to its storage, such as the report, is closed.
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
        if len(self._kept) > MAX_KEPT_PAGES:
            self.do(self._kept.pop(next(iter(self._kept))).context.close)

    def visit(self, steps: Callable[[Page], T]) -> T:
        """Run a function with its own page, and close the page."""

        def run() -> T:
            page = self._open()
            try:
                return steps(page)
            finally:
                page.context.close()

        return self.do(run)

    def close(self) -> None:
        """Close the browser and its thread."""
        self.do(self._browser.close)
        self.do(self._playwright.stop)
        self._thread.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser of the test run."""
    browser = Chromium()
    yield browser
    browser.close()
