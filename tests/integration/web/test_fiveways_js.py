"""fiveways.js has the features of the Python client, in each of its protocols, in Node.js and in Chromium."""

import pytest

from tests.integration.web.engines import Engine, run
from tests.support.hubs import Hub

SCHEMES = ["umq+ws", "lrpm+ws", "nq+ws", "nq+http"]
VERBS = [
    "addresses",
    "attachments",
    "callbacks",
    "calls",
    "cancelling",
    "closing",
    "failures",
    "generators",
    "large",
    "notes",
    "serving",
    "slow",
    "streams",
    "timeouts",
    "topics",
    "values",
    "variables",
    "work",
]


@pytest.mark.parametrize("case", VERBS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_feature(engine: Engine, hub: Hub, scheme: str, case: str) -> None:
    run(engine, case, url=hub.url(scheme))
