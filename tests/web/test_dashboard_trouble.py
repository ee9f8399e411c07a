"""The dashboard when things are not as they should be: a hub that goes, names that mislead, answers that do not come."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.cli.hubs import Hub, serving
from tests.web.boards import NARROW, WIDE, Board, address, watching
from tests.web.browsers import PATIENCE, Chromium

QUICK = ("--set", "server.drain_timeout=0.1")
APP = ("--app", "tests.cli.served:app")
SOON = PATIENCE * 1000


@pytest.fixture(scope="module")
def busy() -> Iterator[Hub]:
    """A hub with an application; tests that share it leave each other in peace."""
    with serving(*APP, *QUICK) as running:
        yield running


@pytest.fixture
def board(chromium: Chromium, busy: Hub) -> Iterator[Board]:
    with watching(chromium, address(busy)) as opened:
        opened.has("#state", "Connected")
        opened.has("#method-options", "math.add")
        yield opened


def evaluated(board: Board, text: str, given: Any = None) -> Any:  # noqa: ANN401  JSON
    return board.do(lambda page: page.evaluate(text, given))


def forgive(board: Board) -> None:
    """The browser itself tells of connections that could not be made."""
    board.complaints[:] = [each for each in board.complaints if "WebSocket connection to" not in each]


# A hub that goes.


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_a_lost_hub_is_seen_wherever_one_is_on_the_page(chromium: Chromium, size: tuple[int, int]) -> None:
    with serving(*APP, *QUICK) as hub, watching(chromium, address(hub), size) as board:
        board.has("#method-options", "math.add")
        evaluated(board, "scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })")
        number = "getComputedStyle(document.querySelector('#tiles dd')).color"
        fresh = evaluated(board, number)
        hub.signal(signal.SIGKILL)
        board.has("#alert", "The hub cannot be reached.")
        board.do(lambda page: expect(page.locator("#alert")).to_be_in_viewport(timeout=SOON))
        top, below = evaluated(board, "['#alert', '#parts'].map((each) => document.querySelector(each).offsetTop)")
        assert below > top
        assert evaluated(board, number) != fresh
        forgive(board)


def test_a_hub_that_ends_its_last_calls_is_told_of(chromium: Chromium) -> None:
    with (
        serving(*APP, "--set", "server.drain_timeout=600") as hub,
        watching(chromium, address(hub)) as board,
    ):
        board.call("demo.sleep")
        board.has("#call-answer", "Waiting")
        hub.signal(signal.SIGTERM)
        board.has("#alert", "The hub is closing")
        board.has("#state", "Closing")
        board.do(lambda page: page.get_by_role("button", name="Cancel").click())
        board.has("#alert", "The hub cannot be reached.")
        forgive(board)
