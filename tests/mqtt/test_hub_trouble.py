"""Brokers that go away and return, hubs that are killed, and requests that make no sense."""

# ruff: noqa: ANN401, SIM117  generated messages have no types of their own; brokers stand outside of what uses them
import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

import fiveways
from fiveways.app import App
from fiveways.client.connect import connect
from fiveways.protocols.mqtt_rpc.rpc_pb2 import Request
from fiveways.settings.sections import Secret
from tests.brokers.running import BROKERS, RunningBroker, Wanted, certificate, running
from tests.mqtt.hubs import at, bounded, given, is_linked, linked_to, until
from tests.runtime.wire import PATIENCE, Place, hub
from tests.unit.schemas.kit import greeter

pb: Any = greeter().module


class Slow:
    """A service that answers when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def SayHello(self, request: Any) -> Any:  # noqa: N802
        if request.name == "slow":
            self.begun.set()
            await asyncio.sleep(3600)
        return pb.HelloReply(text=request.name)


def to(place: Place, scheme: str = "lrpm+ws") -> Any:
    return connect(f"{scheme}://127.0.0.1:{place.port}", timeout=PATIENCE)


@pytest.mark.parametrize("name", BROKERS)
@bounded
async def test_a_broker_that_goes_away_and_returns(name: str) -> None:
    with running(name) as broker:
        service = Slow()
        services = {"/Greeter": "demo.Greeter"}
        async with linked_to(broker) as device, device.serve(pb, service), at(broker, services=services) as place:
            async with to(place) as peer:
                call = asyncio.ensure_future(peer.call("greeter.say_hello", {"name": "slow"}))
                await service.begun.wait()
                broker.kill()
                with pytest.raises(fiveways.CallLost):
                    await call
                with pytest.raises(fiveways.NotExecuted) as refused:
                    await peer.call("greeter.say_hello", {"name": "now"})
                assert refused.value.reason is fiveways.Reason.UNAVAILABLE
                broker.start()
                await until(lambda: is_linked(place))
                assert (await answered(peer, "again"))["text"] == "again"


async def answered(peer: Any, name: str) -> Any:
    """Ask until the service is back too: the hub may be there before it."""
    while True:
        try:
            return await peer.call("greeter.say_hello", {"name": name}, timeout=0.5)
        except (fiveways.CallTimeout, fiveways.NotExecuted):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", BROKERS)
@bounded
async def test_a_hub_starts_before_its_broker(name: str) -> None:
    with running(name) as broker:
        broker.kill()
        place_at = at(broker)
        waiting = asyncio.ensure_future(place_at.__aenter__())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        broker.start()
        await waiting
        async with linked_to(broker) as device:
            assert await device.call("hub.echo", 1) == 1
        await place_at.__aexit__(None, None, None)


def counting() -> tuple[App, list[bytes]]:
    app, seen = App(), []

    @app.method("count.me")
    async def me(data: bytes = b"") -> bytes:
        seen.append(data)
        return data

    return app, seen


def request(number: int, value: bytes) -> bytes:
    return Request(correlation_id=number, body=AnyMessage(type_url="me", value=value), eos=True).SerializeToString()


@bounded
async def test_what_makes_no_sense_costs_nobody_anything(broker: RunningBroker) -> None:
    app, seen = counting()
    async with at(broker, app) as place, linked_to(broker) as device:
        await device.publish("/count", request(7, b"first"), retain=True)
        await until(lambda: len(seen) == 1)
    async with at(broker, app) as place, linked_to(broker) as device:
        # The same request is retained: it is yesterday's, and not run again.
        for bad in (b"", b"\xff" * 50, b"\x08\x07", b"\x08\x08\x12\x7fshort", b"\x08\x09\x18\x01", b"x" * 100_000):
            await device.publish("/count", bad)
        # A broker may deliver twice: one run, one answer.
        for _ in range(3):
            await device.publish("/count", request(99, b"second"))
        assert await device.call("count.me", b"third") == b"third"
        await device.publish("/count", b"", retain=True)
        assert place.server.exchange.hub.open_calls() == 0
    assert seen == [b"first", b"second", b"third"]


@pytest.mark.parametrize("name", BROKERS)
@bounded
async def test_a_broker_with_tls_that_wants_to_know_who_comes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with certificate() as made, running(name, Wanted("hub", "s3cret", made)) as broker:
        async with at(broker), linked_to(broker) as device:
            assert await device.call("hub.echo", 1) == 1
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("name", BROKERS)
@bounded
async def test_a_broker_that_does_not_let_the_hub_in(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with running(name, Wanted("hub", "s3cret")) as broker:
        wrong = replace(given(broker).mqtt, password=Secret("wr0ng"))
        async with hub(replace(given(broker), mqtt=wrong)):
            await until(lambda: "tried again" in caplog.text)
    assert "does not let us in" in caplog.text
    assert "wr0ng" not in caplog.text
