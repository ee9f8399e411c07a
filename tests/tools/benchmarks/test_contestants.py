"""Every available contestant answers a few hundred calls correctly, and delivers every publication."""

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
FindContestant = Callable[[str], Contestant]


@pytest.fixture(scope="module")
def contestants() -> Iterator[FindContestant]:
    """Return a function that finds a contestant and starts its router; routers stop after the module."""
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
def test_every_call_gets_its_own_response(contestants: FindContestant, name: str, batches: bool) -> None:
    # With 0 seconds, only the calls that start at once are made.
    sample = uvloop.run(calls.measure(contestants(name), CALLS, 0.0, batches=batches))
    assert sample.rate > 0
    assert 0 < sample.p50 <= sample.p99


@pytest.mark.parametrize("name", ["relay", "nats-server", "lrpm", "umq"])
def test_every_subscriber_gets_every_publication(contestants: FindContestant, name: str) -> None:
    assert uvloop.run(fanout.measure(contestants(name), 0.0, subscribers=SUBSCRIBERS)).rate > 0


@pytest.mark.parametrize("library", ["fiveways", "nats"])
def test_python_programs_call_each_other(contestants: FindContestant, library: str) -> None:
    name, url = {
        "fiveways": ("lrpm", "lrpm+ws://127.0.0.1:{port}"),
        "nats": ("nats-server", "nats://127.0.0.1:{port}"),
    }[library]
    sample = uvloop.run(clients.measure(Client(library, contestants(name).router, library, url), 8, 0.1))
    assert sample.rate > 0
    assert sample.ends > 0


def test_idle_sessions_are_counted(contestants: FindContestant) -> None:
    contestant = contestants("lrpm")
    assert uvloop.run(idle.measure(contestant.router, contestant.caller, 50)).sessions == 50
