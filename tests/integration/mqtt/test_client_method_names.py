"""Calls by name: with JSON if a schema is known, else with bytes."""

import asyncio
from typing import Any

import pytest

from fiveways.errors import NotExecuted
from fiveways.protocols.mqtt_rpc.messages import Request, Response
from fiveways.schemas import load_services
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.rpc_service import Greeter, at, bare, message, pair, quick
from tests.support.running import async_test

BOB = message("HelloRequest", name="bob")


def settings_with_schema(**settings: Any) -> Any:  # noqa: ANN401
    """Settings with the schema of the tests."""
    return quick(schemas=load_services([greeter().path]), **settings)


@async_test
async def test_calls_by_name_take_and_give_json(broker: RunningBroker) -> None:
    service = Greeter()
    async with (
        at(broker, settings_with_schema(service="Greeter")) as caller,
        at(broker) as callee,
        callee.serve(greeter().module, service),
    ):
        for name in ("Greeter/SayHello", "SayHello", "say_hello", "greeter.say_hello", "/Greeter/SayHello"):
            reply: Any = await caller.call(name, {"name": "bob"}, timeout=5.0)
            assert reply["text"] == "hello bob"
        assert await caller.call("Count", {"up_to": 3}) == [{"number": "1"}, {"number": "2"}, {"number": "3"}]
        assert [part async for part in caller.stream("Count", {"up_to": 2})] == [{"number": "1"}, {"number": "2"}]
        summed: Any = await caller.call("Sum", [{"number": 1}, {"number": "2"}])
        assert summed["total"] == "3"
        chat = [line async for line in caller.stream("Chat", [{"text": "one"}, {"text": "two"}])]
        assert [line["text"] for line in chat if isinstance(line, dict)] == ["you said one", "you said two"]
        hello = [part async for part in caller.stream("SayHello", {"name": "bob"})]
        assert len(hello) == 1
        with pytest.raises(NotExecuted, match="bad arguments"):
            await caller.call("SayHello", {"nom": "bob"})
        with pytest.raises(NotExecuted, match="has no method Say"):
            await caller.call("Greeter/Say", {})
        with pytest.raises(NotExecuted):
            await caller.call("a//b", {})


@async_test
async def test_calls_without_a_schema_take_and_give_bytes(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        answer: Any = await it.caller.call("SayHello", BOB.SerializeToString(), topic=it.topic)
        assert greeter().module.HelloReply.FromString(answer).text == "hello bob"
        request = message("CountRequest", up_to=2).SerializeToString()
        parts = [part async for part in it.caller.stream(f"{it.topic}/Count", request)]
        assert parts == [b"\x08\x01", b"\x08\x02"]
        with pytest.raises(NotExecuted, match="without a schema"):
            await it.caller.call("SayHello", {"name": "bob"}, topic=it.topic)
        reply: Any = await it.caller.call("SayHello", {"name": "bob"}, topic=it.topic, schema=greeter().module)
        assert reply["text"] == "hello bob"


@async_test
async def test_builtin_methods_of_the_hub_take_any_json(broker: RunningBroker) -> None:
    async with at(broker) as caller, bare(broker, "/hub") as link:
        call = asyncio.ensure_future(caller.call("hub.echo", {"a": 1}))
        request: Request = await link.request()
        assert (request.type_url, request.value) == ("echo", b'{"a":1}')
        link.say(Response("/hub", request.correlation_id, "", b"[2]", True))
        assert await call == [2]
