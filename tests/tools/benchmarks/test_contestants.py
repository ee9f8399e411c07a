"""Every contestant that is at hand answers some hundred calls, each with its own answer; and the same for fan-out."""

from collections.abc import Callable, Iterator

import pytest
import uvloop

from benchmarks.hub import calls, clients, codecs, fanout, idle, routers
from benchmarks.hub.calls import Contestant
from benchmarks.hub.clients import Client
from benchmarks.hub.routers import Router

CALLS = 300
SUBSCRIBERS = 5
CONTESTANTS = {
    "relay": (routers.relay, codecs.RELAY, codecs.RELAY),
    "nats-server": (routers.nats, codecs.NATS, codecs.NATS),
    "lrpm": (routers.hub, codecs.LRPM_JSON, codecs.LRPM_JSON),
    "lrpm-cbor": (routers.hub, codecs.LRPM_CBOR, codecs.LRPM_CBOR),
    "umq": (routers.hub, codecs.UMQ, codecs.UMQ),
    "umq36": (routers.hub, codecs.UMQ36, codecs.UMQ36),
    "umq-to-lrpm": (routers.hub, codecs.UMQ, codecs.LRPM_JSON),
}
Find = Callable[[str], Contestant]


@pytest.fixture(scope="module")
def find() -> Iterator[Find]:
    """Return a contestant whose router runs, until all tests here are over."""
    running: dict[str, Router] = {}

    def contestant(name: str) -> Contestant:
        make, caller, callee = CONTESTANTS[name]
        router = make()
        if router.name not in running:
            uvloop.run(router.start())
            running[router.name] = router
        return Contestant(name, running[router.name], caller, callee)

    yield contestant
    for router in running.values():
        router.stop()


@pytest.mark.parametrize("batches", [False, True], ids=["one by one", "batching"])
@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_call_gets_its_own_answer(find: Find, name: str, batches: bool) -> None:
    # No time at all is enough for those that are in flight from the beginning.
    sample = uvloop.run(calls.measure(find(name), CALLS, 0.0, batches=batches))
    assert sample.rate > 0
    assert 0 < sample.p50 <= sample.p99


@pytest.mark.parametrize("name", ["relay", "nats-server", "lrpm", "umq"])
def test_every_subscriber_gets_every_publication(find: Find, name: str) -> None:
    assert uvloop.run(fanout.measure(find(name), 0.0, subscribers=SUBSCRIBERS)).rate > 0


@pytest.mark.parametrize("library", ["fiveways", "nats"])
def test_python_programs_call_each_other(find: Find, library: str) -> None:
    name, url = {
        "fiveways": ("lrpm", "lrpm+ws://127.0.0.1:{port}"),
        "nats": ("nats-server", "nats://127.0.0.1:{port}"),
    }[library]
    sample = uvloop.run(clients.measure(Client(library, find(name).router, library, url), 8, 0.1))
    assert sample.rate > 0
    assert sample.ends > 0


def test_idle_sessions_take_memory(find: Find) -> None:
    who = find("lrpm")
    assert uvloop.run(idle.measure(who.router, who.caller, 50)).sessions == 50
