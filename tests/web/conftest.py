"""Where fiveways.js runs, and the hub that it talks to."""

from collections.abc import Iterator

import pytest

from tests.cli import hubs
from tests.web.browsers import Chromium, chromium
from tests.web.engines import Browser, Engine, Node, browser_engine

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """One Node for all tests."""
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
    """Node, then Chromium."""
    started: Engine = request.getfixturevalue(request.param)
    return started


@pytest.fixture(scope="session")
def hub() -> Iterator[hubs.Hub]:
    """A hub with the example application."""
    with hubs.serving("--app", "examples.app:app", "--set", "server.drain_timeout=0.1") as running:
        yield running
