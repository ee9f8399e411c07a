"""The dashboard in a real browser: a page on a hub, and all that the browser complains of."""

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
    """Write settings with an operator (token sesame) and a viewer (token looking), and rights for the anonymous."""
    path = folder / "fiveways.toml"
    path.write_text(TOKENS.format(anonymous=anonymous, call=call, publish=publish))
    path.chmod(0o600)
    return path


class Board:
    """One open page. What is done with it is done in the browser's thread, by `do`."""

    def __init__(self, chromium: Chromium, url: str, page: Page) -> None:
        self.url = url
        self.page = page
        self.complaints: list[str] = []
        self._chromium = chromium

    def do(self, act: Callable[[Page], T]) -> T:
        """Do something with the page."""
        return self._chromium.do(lambda: act(self.page))

    def listen(self) -> None:
        """Note down whatever goes wrong in the page."""
        self.page.on("console", self._said)
        self.page.on("pageerror", self._raised)
        self.page.on("requestfailed", self._failed)

    def ignore(self) -> None:
        """Note down nothing more."""
        self.page.remove_listener("console", self._said)
        self.page.remove_listener("pageerror", self._raised)
        self.page.remove_listener("requestfailed", self._failed)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def _raised(self, error: Error) -> None:
        self.complaints.append(f"error: {error}")

    def _failed(self, request: Request) -> None:
        self.complaints.append(f"failed: {request.url}")

    def has(self, place: str, text: str) -> None:
        """Wait until an element has this among its text."""
        self.do(lambda page: expect(page.locator(place)).to_contain_text(text))

    def lacks(self, place: str) -> None:
        """Wait until an element is not seen."""
        self.do(lambda page: expect(page.locator(place)).to_be_hidden(timeout=PATIENCE * 1000))

    def choose(self, method: str) -> None:
        """Choose a method from the list, as somebody who types does."""

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
    """Where the dashboard of a hub is."""
    return str(hub.urls["page"])


@contextmanager
def watching(
    chromium: Chromium, url: str, size: tuple[int, int] = WIDE, scheme: str = "light", script: str = ""
) -> Iterator[Board]:
    """The dashboard at an address, until the block ends. A page that complained of anything fails the test.

    Loading the chart library into a new page takes seconds. So a page without a script of its own is emptied at the
    end and kept for the next test with the same hub; one that failed is not.
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
        assert board.complaints == []
        board.do(lambda _: board.ignore())
        if script:
            chromium.do(page.context.close)
        else:
            chromium.keep(url, page)
    except BaseException:
        chromium.do(page.context.close)
        raise


def evaluated(board: Board, module: str, expression: str, given: Any) -> Any:  # noqa: ANN401  JSON
    """Work out an expression with a module of the dashboard, `at`, and a value, `given`."""
    text = f"async (given) => {{ const at = await import('/dashboard/{module}'); return {expression}; }}"
    return board.do(lambda page: page.evaluate(text, given))
