"""Brokers that stop and restart, hubs that are killed, and invalid requests."""

# ruff: noqa: ANN401, SIM117 generated messages have no types of their own; brokers outlive their users
import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

import fiveways
from fiveways.app import App
from fiveways.client.connect import connect
from fiveways.protocols.mqtt_rpc.rpc_pb2 import Request
from fiveways.runtime.mqtt import topic_ownership
from fiveways.settings.sections import Secret
from tests.support.broker_hubs import broker_settings, client_of, hub_at, is_ready
from tests.support.broker_processes import BROKERS, RunningBroker, Wanted, certificate, running
from tests.support.compiled_schema import greeter
from tests.support.raw_peers import PATIENCE, Place, http, hub
from tests.support.running import async_test
from tests.support.waiting import until

pb: Any = greeter().module
CALM = 0.5
"""Seconds after which every message has been received."""


class Slow:
    """A service that answers on demand."""

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
@async_test
async def test_hub_and_service_recover_from_a_broker_restart(name: str) -> None:
    with running(name) as broker:
        service = Slow()
        services = {"/Greeter": "demo.Greeter"}
        async with client_of(broker) as device, device.serve(pb, service), hub_at(broker, services=services) as place:
            async with to(place) as peer:
                call = asyncio.ensure_future(peer.call("greeter.say_hello", {"name": "slow"}))
                await service.begun.wait()
                broker.kill()
                with pytest.raises(fiveways.CallLost):
                    await call
                with pytest.raises(fiveways.NotExecuted) as refused:
                    await peer.call("greeter.say_hello", {"name": "now"})
                assert refused.value.reason is fiveways.Reason.UNAVAILABLE
                away = await http(place.port, "/readyz")
                assert away.startswith("HTTP/1.1 200 ")
                assert away.endswith("\r\n\r\nok, but the connection to the broker is lost\n")
                broker.start()
                await until(lambda: is_ready(place))
                assert (await http(place.port, "/readyz")).endswith("\r\n\r\nok\n")
                assert (await call_until_answered(peer, "again"))["text"] == "again"


async def call_until_answered(peer: Any, name: str) -> Any:
    """Repeat a call until the service is back: the hub may reconnect earlier."""
    while True:
        try:
            return await peer.call("greeter.say_hello", {"name": name}, timeout=2.0)
        except (fiveways.CallTimeout, fiveways.NotExecuted):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", BROKERS)
@async_test
async def test_hub_can_start_before_its_broker(name: str) -> None:
    with running(name) as broker:
        broker.kill()
        place_at = hub_at(broker)
        waiting = asyncio.ensure_future(place_at.__aenter__())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        broker.start()
        await waiting
        async with client_of(broker) as device:
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


@async_test
async def test_invalid_messages_do_not_affect_others(broker: RunningBroker) -> None:
    app, seen = counting()
    async with hub_at(broker, app) as place, client_of(broker) as device:
        await device.publish("/count", request(7, b"first"), retain=True)
        await until(lambda: len(seen) == 1)
    async with hub_at(broker, app) as place, client_of(broker) as device:
        # The same request, retained: it is old, and not run.
        for bad in (b"", b"\xff" * 50, b"\x08\x07", b"\x08\x08\x12\x7fshort", b"\x08\x09\x18\x01", b"x" * 100_000):
            await device.publish("/count", bad)
        # A broker may deliver twice: one run, one response.
        for _ in range(3):
            await device.publish("/count", request(99, b"second"))
        assert await device.call("count.me", b"third") == b"third"
        await device.publish("/count", b"", retain=True)
        assert place.server.exchange.hub.open_calls() == 0
    assert seen == [b"first", b"second", b"third"]


@pytest.mark.parametrize("name", BROKERS)
@async_test
async def test_hub_connects_by_tls_with_credentials(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with certificate() as tls_files, running(name, Wanted("hub", "s3cret", tls_files)) as broker:
        async with hub_at(broker), client_of(broker) as device:
            assert await device.call("hub.echo", 1) == 1
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("name", BROKERS)
@async_test
async def test_hub_keeps_trying_a_broker_that_refuses_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with running(name, Wanted("hub", "s3cret")) as broker:
        wrong = replace(broker_settings(broker).mqtt, password=Secret("wr0ng"))
        async with hub(replace(broker_settings(broker), mqtt=wrong)):
            await until(lambda: "trying again" in caplog.text)
    assert "refused the connection" in caplog.text
    assert "wr0ng" not in caplog.text


@async_test
async def test_durable_request_waits_for_a_service(broker: RunningBroker) -> None:
    settings = broker_settings(broker, services={"/Greeter": "demo.Greeter"})
    async with (
        hub(replace(settings, mqtt=replace(settings.mqtt, retry_after=0.3))) as place,
        to(place, "nq+ws") as peer,
    ):
        calls = [asyncio.ensure_future(peer.call("greeter.say_hello", {"name": str(number)})) for number in range(20)]
        await asyncio.sleep(0.5)
        assert not any(call.done() for call in calls)
        async with client_of(broker) as device, device.serve(pb, Slow()):
            assert [reply["text"] for reply in await asyncio.gather(*calls)] == [str(number) for number in range(20)]


@async_test
async def test_stream_with_an_unrepresentable_element_is_not_sent(broker: RunningBroker) -> None:
    numbers: list[int] = []

    class Adder:
        async def Sum(self, requests: Any) -> Any:  # noqa: N802
            async for request in requests:
                numbers.append(request.number)  # noqa: PERF401  elements before a failure count
            return pb.SumReply(total=sum(numbers))

    async with client_of(broker) as device, device.serve(pb, Adder()):
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            with pytest.raises(fiveways.NotExecuted, match="nope"):
                await peer.call("greeter.sum", [{"number": 1}, {"nope": 2}])
            assert (await peer.call("greeter.sum", [{"number": 3}, {"number": 4}]))["total"] == "7"
    assert numbers == [3, 4]


@async_test
async def test_clients_can_neither_take_methods_nor_silence_the_hub(broker: RunningBroker) -> None:
    app, _ = counting()
    async with client_of(broker) as device, device.serve(pb, Slow()):
        async with hub_at(broker, app, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            for verb in ("hub.register", "hub.unregister"):
                with pytest.raises(fiveways.NotExecuted):
                    await device.call(verb, {"name": "/Greeter/SayHello"})
            assert (await peer.call("greeter.say_hello", {"name": "x"}))["text"] == "x"
            stranger = "fiveways/hubs/stranger"
            mine = place.server._mqtt._peer._ownership.election.own_topic  # type: ignore[union-attr]
            for where, payload in (
                (stranger, b'{"\xff": 1}'),
                (stranger, b'{"/count": %s}' % (b"9" * 4300)),
                (stranger, b"{"),
                (mine, b""),
                (mine, b"nonsense"),
            ):
                await device.publish(where, payload, retain=True)
                await device.publish(where, b"", retain=True)
            await asyncio.sleep(CALM)  # removed claims are published again, and their topics not answered meanwhile
            await until(lambda: is_ready(place))
            assert await device.call("count.me", b"still") == b"still"


@async_test
async def lose_claims(broker: RunningBroker, number: int) -> None:
    """Let a hub claim its topics again while the broker drops its messages."""
    async with hub_at(broker) as place, client_of(broker) as device:
        peer = place.server._mqtt._peer  # type: ignore[union-attr]
        link, claims = peer._link, peer._ownership.election  # type: ignore[union-attr]
        lost: list[bytes] = []
        publish = link.publish  # type: ignore[union-attr]

        def lossy(topic: str, payload: bytes, **options: Any) -> None:
            if topic == claims.own_topic and len(lost) < number:
                lost.append(payload)
            else:
                publish(topic, payload, **options)

        link.publish = lossy  # type: ignore[union-attr,method-assign]
        await device.publish(claims.own_topic, b"")
        await until(lambda: len(lost) == number)
        await until(lambda: is_ready(place))
        assert await device.call("hub.echo", 1) == 1


def test_lost_claims_are_published_again(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    lose_claims(broker, 1)
    assert "does not echo" not in caplog.text


def test_hub_warns_once_of_a_broker_without_echoes(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_ownership, "_ECHO_TIMEOUT", 0.05)
    lose_claims(broker, 12)
    assert caplog.text.count("does not echo messages on fiveways/hubs/") == 1


@async_test
async def test_unsafe_topic_does_not_cost_the_connection(broker: RunningBroker) -> None:
    async with (
        hub_at(broker, topics={"out/#": "out"}) as place,
        client_of(broker) as device,
        to(place, "umq+ws") as peer,
    ):
        link = place.server._mqtt._peer._link  # type: ignore[union-attr]
        for name in ("evil\ufffe.m", "roof top.m"):
            await peer.register(name, len)
        await peer.publish("out.large", "x" * 1_020_000)
        assert await device.call("hub.echo", 1) == 1
        assert place.server._mqtt._peer._link is link  # type: ignore[union-attr]
        assert place.server.exchange.hub.stats()["undelivered"] == 1


@async_test
async def test_changed_permissions_apply_at_once(broker: RunningBroker) -> None:
    settings = broker_settings(broker, services={"/Greeter": "demo.Greeter"})
    closed = replace(settings, auth=replace(settings.auth, offer=()))
    async with client_of(broker) as device, device.serve(pb, Slow()):
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            place.server.reload(closed)
            with pytest.raises(fiveways.NotExecuted):
                await peer.call("greeter.say_hello", {"name": "x"})
            place.server.reload(settings)
            assert (await peer.call("greeter.say_hello", {"name": "x"}))["text"] == "x"
