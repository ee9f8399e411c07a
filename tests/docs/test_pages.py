"""Every page without Spark is followed from top to bottom.

`tests/integration/pipeline/test_docs_with_spark.py` follows those with Spark.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path

import pytest

from tests.support import hubs
from tests.support.docs import desk, following, markdown

PORTS = ("7500", "7555", "7600", "1883")
"""Ports in the docs; each page gets free ports in their place."""
PAGES = [page for page in markdown.pages() if page.blocks() and not following.needs_spark(page)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Mapping[str, str]]:
    """Ports of a hub with the example application, a broker and ZeroMQ, for pages that start no hub."""
    sets = ("mqtt.enabled=true", "mqtt.port=0", "zmq.listen=true", "zmq.port=0")
    flags = [flag for setting in sets for flag in ("--set", setting)]
    with hubs.serving("--app", "examples.app:app", *flags) as hub:
        named = {"7500": "lrpm", "7555": "nq+zmq", "1883": "mqtt-rpc"}
        yield {port: hub.urls[url].split("://")[1].split("/")[0].rpartition(":")[2] for port, url in named.items()}


@pytest.mark.parametrize("page", PAGES, ids=attrgetter("name"))
def test_page_can_be_followed(page: markdown.Page, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    following.require_programs(page)
    ports = desk.free_ports(PORTS)
    if not following.has_own_hub(page):
        ports |= request.getfixturevalue("shared")
    with desk.desk(tmp_path, ports) as page_desk:
        following.Reader(page, page_desk).follow()
