"""Calls through a broker to methods of the hub, and through the hub to services behind a broker."""

# ruff: noqa: ANN401, SIM117 generated messages have no types of their own; brokers outlive their users
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import fiveways
from fiveways.app import App, Fail
from fiveways.client.connect import connect
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.messages import Response
from fiveways.runtime.mqtt.broker_config import BadBrokerConfig, BrokerConfig
from fiveways.settings.sections import MqttSettings
from tests.support.broker_hubs import client_of, hub_at
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.raw_peers import PATIENCE, Place, http
from tests.support.rpc_service import bare
from tests.support.running import async_test
from tests.support.waiting import until

CALLERS = ("lrpm+ws", "umq+ws", "umq36+ws", "nq+ws")
pb: Any = greeter().module


class Greeter:
    """The service of the tests, behind a broker."""

    def __init__(self) -> None:
        self.waits = 0

    async def SayHello(self, request: Any) -> Any:  # noqa: N802
        if request.name == "nobody":
            raise Fail("there is nobody", code=404, name="nobody", retry_after=1.5)
        if request.name == "slow":
            self.waits += 1
            await asyncio.sleep(3600)
        return pb.HelloReply(text=f"Hello {request.name}")

    async def Count(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802
        for number in range(request.up_to):
            yield pb.CountReply(number=number)

    async def Sum(self, requests: AsyncIterator[Any]) -> Any:  # noqa: N802
        return pb.SumReply(total=sum([request.number async for request in requests]))


def to(place: Place, scheme: str = "lrpm+ws") -> Any:
    return connect(f"{scheme}://127.0.0.1:{place.port}", timeout=PATIENCE)


@pytest.mark.parametrize("scheme", CALLERS)
@async_test
async def test_service_behind_the_broker_is_called_with_json(broker: RunningBroker, scheme: str) -> None:
    async with client_of(broker) as device, device.serve(pb, Greeter()):
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place, scheme) as peer:
            reply = await peer.call("greeter.say_hello", {"name": "Žofie"})
            assert reply["text"] == "Hello Žofie"
            assert [part["number"] for part in await peer.call("greeter.count", {"up_to": 3})] == ["0", "1", "2"]
            assert (await peer.call("greeter.sum", [{"number": 40}, {"number": "2"}]))["total"] == "42"
            with pytest.raises(fiveways.CallFailed, match="there is nobody"):
                await peer.call("greeter.say_hello", {"name": "nobody"})
            with pytest.raises(fiveways.NotExecuted, match="nme"):
                await peer.call("greeter.say_hello", {"nme": "Bob"})


@async_test
async def test_calls_through_the_broker_are_counted(broker: RunningBroker) -> None:
    async with client_of(broker) as device, device.serve(pb, Greeter()):
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            await peer.call("greeter.say_hello", {"name": "Bob"})
            await device.call("hub.echo", "hello")
            traffic: Any = await peer.call("hub.traffic")
    mqtt = traffic["protocols"]["mqtt-rpc"]
    assert (mqtt["sessions"], mqtt["calls"], mqtt["frames_out"]) == (1, 1, 2)
    assert 2 <= mqtt["frames_in"] <= 2 + 2, "a broker sends the hub its own messages as well, when it comes to it"
    assert mqtt["bytes_in"] > 0 < mqtt["bytes_out"]
    calls = {(each["caller"], each["callee"]): each["calls"] for each in traffic["bridges"]}
    assert calls["lrpm-json", "mqtt-rpc"] == 1
    assert calls["mqtt-rpc", "hub"] == 1


@async_test
async def test_streams_failures_and_timeouts_cross_the_broker(broker: RunningBroker) -> None:
    service = Greeter()
    async with client_of(broker) as device, device.serve(pb, service):
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            parts = [part["number"] async for part in peer.stream("greeter.count", {"up_to": 4})]
            assert parts == ["0", "1", "2", "3"]
            with pytest.raises(fiveways.CallFailed) as failed:
                await peer.call("greeter.say_hello", {"name": "nobody"})
            assert failed.value.retry_after == 1.5
            with pytest.raises(fiveways.CallTimeout):
                await peer.call("greeter.say_hello", {"name": "slow"}, timeout=2.0)
            assert service.waits == 1
            listing = await peer.discover("greeter.say_hello")
            assert listing.doc is not None
            assert listing.doc.startswith("Says hello to somebody.")


def offered() -> App:
    app = App()

    @app.method("math.double")
    async def double(data: bytes) -> bytes:
        """Return the text twice."""
        return data * 2

    @app.method("greeter.say_hello")
    async def say_hello(name: str = "", times: int = 0, mood: str = "") -> dict[str, str]:
        if name == "nobody":
            raise Fail("there is nobody", code=404, name="nobody")
        return {"text": f"{times} {mood} {name}"}

    @app.method("greeter.count")
    async def count(up_to: str) -> AsyncIterator[dict[str, int]]:
        for number in range(int(up_to)):
            yield {"number": number}

    @app.method("alone")
    async def alone() -> None:
        """Return nothing."""

    return app


@async_test
async def test_methods_of_the_hub_are_called_through_the_broker(broker: RunningBroker) -> None:
    async with hub_at(broker, offered()), client_of(broker) as device:
        assert await device.call("math.double", b"ab") == b"abab"
        assert await device.call("hub.echo", {"a": [1]}) == {"a": [1]}
        assert await device.call("alone") is None
        stub = device.stub(pb, topic="/greeter")
        reply = await stub.SayHello(pb.HelloRequest(name="Bob", times=2, mood=pb.MOOD_SAD))
        assert reply.text == "2 MOOD_SAD Bob"
        assert [part.number async for part in stub.Count(pb.CountRequest(up_to=3))] == [0, 1, 2]
        with pytest.raises(fiveways.CallFailed) as failed:
            await stub.SayHello(pb.HelloRequest(name="nobody"))
        assert (failed.value.code, failed.value.name, failed.value.text) == (404, "nobody", "there is nobody")
        with pytest.raises(fiveways.NotExecuted) as refused:
            await device.call("math.half", b"ab")
        assert refused.value.reason is fiveways.Reason.NO_SUCH_METHOD


@async_test
async def test_registrations_at_the_hub_change_topics_at_the_broker(broker: RunningBroker) -> None:
    async def twice(data: bytes) -> bytes:
        return data * 2

    async with hub_at(broker) as place, client_of(broker) as device, to(place) as peer:
        await peer.register("later.twice", twice)
        await until(lambda: "/later" in listened(place))
        assert await device.call("later.twice", b"x") == b"xx"
        await peer.unregister("later.twice")
        await until(lambda: "/later" not in listened(place))


def listened(place: Place) -> frozenset[str]:
    side = place.server._mqtt
    assert side is not None
    assert side._peer is not None
    return side._peer._ownership.subscribed if side._peer._ownership is not None else frozenset()


@async_test
async def test_second_hub_at_one_broker_takes_over(broker: RunningBroker) -> None:
    def named(name: str) -> App:
        app = App()

        @app.method("who.are_you")
        async def name_of_hub() -> bytes:
            return name.encode()

        return app

    async with client_of(broker) as device, AsyncExitStack() as stack:
        first = await stack.enter_async_context(hub_at(broker, named("first")))
        async with hub_at(broker, named("second")) as second:
            assert [sorted(listened(each) & {"/who"}) for each in (first, second)] == [["/who"], []]
            answers = {await device.call("who.are_you") for _ in range(50)}
            assert answers == {b"first"}
            assert device.strays == 0
            await stack.aclose()
            await until(lambda: "/who" in listened(second))
            assert await device.call("who.are_you") == b"second"


@async_test
async def test_stray_response_is_logged_and_counted(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with hub_at(broker, offered()) as place, client_of(broker) as device:
        for number in range(20):
            await device.publish("/math", b"\x08%c\x12\x04\x12\x02hi\x20\x01" % (number + 1))
        await until(lambda: place.server.exchange.hub.stats()["stray"] == 20)
        assert "fiveways_stray_total 20" in await http(place.port, "/metrics")
    lines = [each.getMessage() for each in caplog.records if "without a request" in each.getMessage()]
    assert len(lines) == 10
    assert lines[0] == "stray message at the MQTT broker: 1@/math: a response without a request [MQRPC-06]"


@async_test
async def test_callers_that_share_a_topic_do_not_disturb_each_other(broker: RunningBroker) -> None:
    async with client_of(broker) as device, device.serve(pb, Greeter()), client_of(broker) as other:
        async with hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place, to(place) as peer:
            stub = other.stub(pb)
            for number in range(10):
                assert (await stub.SayHello(pb.HelloRequest(name=str(number)))).text == f"Hello {number}"
                assert (await peer.call("greeter.say_hello", {"name": "x"}))["text"] == "Hello x"
            assert place.server.exchange.hub.stats()["stray"] == 0
        assert (other.strays, device.strays) == (0, 0)


@pytest.mark.parametrize("scheme", ["lrpm+ws", "nq+ws"])
@async_test
async def test_response_without_a_stream_needs_no_end_mark(broker: RunningBroker, scheme: str) -> None:
    async with bare(broker, "/Greeter") as device, hub_at(broker, services={"/Greeter": "demo.Greeter"}) as place:
        async with to(place, scheme) as peer:
            parts = peer.stream("greeter.say_hello", {"name": "Bob"})
            call = asyncio.create_task(anext(aiter(parts)))
            asked = await device.request()
            reply = pb.HelloReply(text="Hello Bob").SerializeToString()
            # A request or a response; it does not mark an end: only a number, and a body without a type.
            body = b"\x12%c%s" % (len(reply), reply)
            content = rpc_pb2.Response(correlation_id=asked.correlation_id).SerializeToString()
            device.say(content + b"\x12%c%s" % (len(body), body))
            assert (await call)["text"] == "Hello Bob"
            assert [part async for part in parts] == []


@async_test
async def test_method_without_a_schema_behind_the_broker_takes_and_gives_bytes(broker: RunningBroker) -> None:
    services = {"/Meter/Read": "bytes", "/a/b/Do": "bytes"}
    async with (
        bare(broker, "/Meter") as meter,
        bare(broker, "/a/b") as other,
        hub_at(broker, services=services) as place,
    ):

        async def serve(device: Any, kind: str) -> None:
            while True:
                request = await device.request()
                if request.type_url == kind:
                    value = b"\xff" + (request.value or b"")
                    device.say(Response(device.topic, request.correlation_id, value=value, eos=True))

        serving = [asyncio.ensure_future(serve(device, kind)) for device, kind in ((meter, "Read"), (other, "Do"))]
        asks = {
            "/lrpm": ("[2,null,{}]", '[40,256,"meter.read",{"$base64":"AAE="},{}]', '[41,256,{"$base64":"/wAB"},{}]'),
            "/umq": ("H1.0.0\n", 'M1\nMeter:Read\n{"$base64":"AAE="}', 'R1\n{"$base64":"/wAB"}'),
            "/umq36": ("H1:", 'C1:["Meter.Read",{"$base64":"AAE="}]', 'R1:{"$base64":"/wAB"}'),
        }
        for path, (hello, call, answer) in asks.items():
            peer = await place.peer(path)
            peer.text(hello)
            await peer.heard()
            peer.text(call)
            assert await peer.heard() == answer
        for scheme, query in (*((each, "") for each in CALLERS), ("lrpm+ws", "?encoding=cbor")):
            async with connect(f"{scheme}://127.0.0.1:{place.port}{query}", timeout=PATIENCE) as caller:
                assert await caller.call("meter.read", b"\0") == b"\xff\0"
                assert await caller.call("meter.read") == b"\xff"
                assert await caller.call("a.b.do", b"1") == b"\xff1"
                with pytest.raises(fiveways.NotExecuted) as refused:
                    await caller.call("meter.read", {"a": 1})
                assert refused.value.reason is fiveways.Reason.BAD_ARGUMENTS
        for each in serving:
            each.cancel()


@pytest.mark.parametrize("written", ["Read", "/Read", "/Meter/", "/Meter/+", "/+/Read", "", "/Greeter/SayHello"])
def test_method_without_a_schema_needs_a_topic_of_its_own_and_a_type(written: str) -> None:
    with pytest.raises(BadBrokerConfig, match=r"^mqtt\.services"):
        BrokerConfig(MqttSettings(schemas=(str(greeter().path),), services={written: "bytes"}))
