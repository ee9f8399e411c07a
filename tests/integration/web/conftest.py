"""Fixtures: the JavaScript engines, hubs, and the dashboard."""

from collections.abc import Iterator

import pytest

from tests.integration.web.boards import APP, QUICK, Board, address, watching
from tests.integration.web.browsers import Chromium, chromium
from tests.integration.web.engines import Browser, Engine, Node, browser_engine
from tests.support import hubs

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """One Node.js process for all tests."""
    started = Node()
    yield started
    started.close()


@pytest.fixture(scope="session")
def browser(chromium: Chromium) -> Iterator[Browser]:
    """One page for all tests."""
    with browser_engine(chromium) as engine:
        yield engine


@pytest.fixture(scope="session", params=["node", "browser"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Node.js, then Chromium."""
    started: Engine = request.getfixturevalue(request.param)
    return started


@pytest.fixture(scope="session")
def hub() -> Iterator[hubs.Hub]:
    """A hub with the example application."""
    with hubs.serving("--app", "examples.app:app", "--set", "server.drain_timeout=0.1") as running:
        yield running


@pytest.fixture(scope="module")
def busy() -> Iterator[hubs.Hub]:
    """A hub with an application; the tests that share it do not affect each other."""
    with hubs.serving(*APP, *QUICK) as running:
        yield running


@pytest.fixture
def board(chromium: Chromium, busy: hubs.Hub) -> Iterator[Board]:
    """The dashboard of that hub, connected."""
    with watching(chromium, address(busy)) as opened:
        opened.has("#state", "Connected")
        opened.has("#method-options", "math.add")
        yield opened
