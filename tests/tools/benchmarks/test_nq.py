"""The NQ benchmark: every request gets its own response and is acknowledged, and the targets are compared."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from benchmarks.hub import routers
from benchmarks.hub.codecs import BODY, UnexpectedFrame
from benchmarks.hub.links import Link
from benchmarks.hub.results import Sample, Table
from benchmarks.hub.routers import Router
from benchmarks.nq import calls
from benchmarks.nq.__main__ import LRPM, PLAIN, STORED, report
from tests.support.running import async_test

CALLS = 300


@pytest.fixture(params=["stored", "plain"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Router]:
    settings = [f"store.path={tmp_path / 'store.db'}"] if request.param == "stored" else []
    router = routers.hub("hub", *settings)
    uvloop.run(router.start())
    yield router
    router.stop()


def test_every_request_gets_its_own_response(hub: Router) -> None:
    # With 0 seconds, only the requests that start at once are made.
    sample = uvloop.run(calls.measure(hub, CALLS, 0.0))
    assert sample.rate > 0
    assert 0 < sample.p50 <= sample.p99


@async_test
async def test_every_response_is_acknowledged_once_with_the_next_request() -> None:
    link, packets = Link(), list[bytes]()
    link.send = packets.append
    caller = calls.NqCaller(link, calls.NqCallCodec())
    running = asyncio.ensure_future(caller.run(2, 0.0))
    await asyncio.sleep(0)
    caller._stop_at = float("inf")
    first, second = (json.loads(packet)["r"] for packet in packets)
    link.on_frame(b'[{"a":"b-1","i":"%b"},{"a":"b-2","i":"%b"}]' % (first.encode(), second.encode()))
    assert len(packets) == 2
    link.on_frame(b"[%b]" % answer("b-2", second))
    acknowledgement, request = json.loads(packets.pop())
    assert acknowledgement == {"i": "b-2"}
    assert request["r"] not in (first, second)
    caller._stop_at = 0.0
    link.on_frame(b"[%b,%b]" % (answer("b-1", first), answer("b-3", request["r"])))
    assert [json.loads(packet) for packet in packets[2:]] == [{"i": "b-1"}, {"i": "b-3"}]
    assert await running > 0
    assert len(caller.latencies) == 3


def answer(backchannel: str, request: str, number: str = "") -> bytes:
    body = BODY.replace(b"NUMBER", (number or request).encode())
    return b'{"a":"%b","i":"%b","d":%b}' % (backchannel.encode(), request.encode(), body)


def test_response_to_another_request_is_refused() -> None:
    codec = calls.NqCallCodec()
    assert codec.answered(answer("b-1", "1000007")) == 1_000_007
    with pytest.raises(UnexpectedFrame):
        codec.answered(answer("b-1", "1000007", "1000008"))


def test_ratios_are_compared_with_the_targets() -> None:
    table = Table("64 in flight", "calls/s", LRPM)
    for name, rate in ((STORED, 30.0), (PLAIN, 50.0), (LRPM, 200.0)):
        table.add(name, 0, Sample(rate, 1.0))
    lines = [line.split() for line in report({64: table}).splitlines()]
    assert [fields[0] for fields in lines if "target:" in fields] == ["pass", "FAILED"]
