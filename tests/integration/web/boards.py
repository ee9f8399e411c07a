"""The dashboard in a real browser: an open page of a hub, and the errors that the browser reports."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import ConsoleMessage, Error, Page, Request, expect

from tests.integration.web.browsers import PATIENCE, Chromium
from tests.support.hubs import Hub

T = TypeVar("T")
QUICK = ("--set", "server.drain_timeout=0.1")
APP = ("--app", "tests.support.hub_app:app")
WIDE = (1280, 900)
NARROW = (390, 844)

TOKENS = """
[auth]
anonymous = "{anonymous}"
call = {call}
publish = {publish}
subscribe = {publish}

[[auth.identity]]
name = "operator"
token = "sesame"

[[auth.identity]]
name = "viewer"
token = "looking"
call = ["hub.stats", "hub.traffic", "hub.peers", "hub.results"]
offer = []
publish = []
subscribe = []
"""


def tokens(folder: Path, anonymous: str = "never", call: str = '["*"]', publish: str = '["*"]') -> Path:
    """Write a configuration with an operator (token sesame), a viewer (token looking), and anonymous permissions."""
    path = folder / "fiveways.toml"
    path.write_text(TOKENS.format(anonymous=anonymous, call=call, publish=publish))
    path.chmod(0o600)
    return path


class Board:
    """One open page. All access to it runs in the browser's thread, by `do`."""

    def __init__(self, chromium: Chromium, url: str, page: Page) -> None:
        self.url = url
        self.page = page
        self.errors: list[str] = []
        self._chromium = chromium

    def do(self, act: Callable[[Page], T]) -> T:
        """Run a function with the page."""
        return self._chromium.do(lambda: act(self.page))

    def listen(self) -> None:
        """Collect the errors of the page."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_page_error)
        self.page.on("requestfailed", self._on_request_failed)

    def ignore(self) -> None:
        """Stop collecting errors."""
        self.page.remove_listener("console", self._on_console)
        self.page.remove_listener("pageerror", self._on_page_error)
        self.page.remove_listener("requestfailed", self._on_request_failed)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.type}: {message.text}")

    def _on_page_error(self, error: Error) -> None:
        self.errors.append(f"error: {error}")

    def _on_request_failed(self, request: Request) -> None:
        self.errors.append(f"failed: {request.url}")

    def has(self, place: str, text: str) -> None:
        """Wait until an element contains this text."""
        self.do(lambda page: expect(page.locator(place)).to_contain_text(text))

    def lacks(self, place: str) -> None:
        """Wait until an element is hidden."""
        self.do(lambda page: expect(page.locator(place)).to_be_hidden(timeout=PATIENCE * 1000))

    def choose(self, method: str) -> None:
        """Choose a method from the list by typing its name."""

        def act(page: Page) -> None:
            page.fill("#method-search", method)
            expect(page.locator("#method-options li").first).to_contain_text(method)
            page.press("#method-search", "Enter")

        self.do(act)
        self.has("#method-one h3", method)

    def call(self, method: str, body: str = "", *, is_stream: bool = False) -> None:
        """Call a method by the form."""
        self.choose(method)

        def act(page: Page) -> None:
            page.fill("#call-body", body)
            page.set_checked("#call-stream", is_stream)
            page.click("#method-one button[type=submit]")

        self.do(act)


def address(hub: Hub) -> str:
    """Return the URL of the dashboard of a hub."""
    return str(hub.urls["page"])


@contextmanager
def watching(
    chromium: Chromium, url: str, size: tuple[int, int] = WIDE, scheme: str = "light", script: str = ""
) -> Iterator[Board]:
    """Open the dashboard at a URL until the block ends; an error of the page fails the test.

    Loading the chart library into a new page takes seconds. So a page without a script is emptied at the end and kept
    for the next test with the same hub, unless the test failed.
    """
    width, height = size
    page = chromium.open() if script else chromium.take(url)
    board = Board(chromium, url, page)

    def begin(page: Page) -> None:
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        if script:
            page.add_init_script(script)
        board.listen()
        page.goto(url)

    try:
        board.do(begin)
        yield board
        assert board.errors == []
        board.do(lambda _: board.ignore())
        if script:
            chromium.do(page.context.close)
        else:
            chromium.keep(url, page)
    except BaseException:
        chromium.do(page.context.close)
        raise


def evaluate(board: Board, module: str, expression: str, argument: Any) -> Any:  # noqa: ANN401  JSON
    """Evaluate an expression with a module of the dashboard, `at`, and a value, `given`."""
    text = f"async (given) => {{ const at = await import('/dashboard/{module}'); return {expression}; }}"
    return board.do(lambda page: page.evaluate(text, argument))
