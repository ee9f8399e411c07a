"""Calls of an application's method to its caller behind a broker."""

# ruff: noqa: SIM117 brokers outlive their users
from fiveways.app import App, Context
from fiveways.errors import NotExecuted
from fiveways.protocols.mqtt_rpc import rpc_pb2
from tests.support.broker_hubs import hub_at
from tests.support.broker_processes import RunningBroker
from tests.support.rpc_service import Bare, bare
from tests.support.running import async_test

app = App()


@app.method("desk.back")
async def back(context: Context) -> bytes:
    return str(await context.caller.callback("c0", {"n": 1})).encode()


@app.method("desk.missing")
async def missing(context: Context) -> bytes:
    refused = []
    for attempt in (context.caller.call("counter.add", b""), context.caller.vars.set("x", 1), context.caller.close()):
        try:
            await attempt
        except NotExecuted as exc:
            refused.append(str(exc))
    try:
        context.caller.updates("feed")
    except NotExecuted as exc:
        refused.append(str(exc))
    return "\n".join(refused).encode()


def encoded(kind: str, number: int) -> bytes:
    request = rpc_pb2.Request(correlation_id=number, eos=True)
    request.body.type_url = kind
    return bytes(request.SerializeToString())


def answered(number: int, value: bytes) -> bytes:
    response = rpc_pb2.Response(correlation_id=number, eos=True)
    response.body.value = value
    return bytes(response.SerializeToString())


async def value_of(desk: Bare, number: int) -> bytes:
    answer = await desk.answer_for(number)
    found = getattr(answer, "value", None)
    assert isinstance(found, bytes), answer
    return found


@async_test
async def test_callback_of_a_caller_behind_the_broker_is_called(broker: RunningBroker) -> None:
    async with hub_at(broker, app) as _, bare(broker, "/desk") as desk:
        async with bare(broker, "/callback") as callbacks:
            desk.say(encoded("back", 7))
            asked = await callbacks.request()
            assert (asked.type_url, asked.value) == ("c0", b'{"n":1}')
            callbacks.say(answered(asked.correlation_id, b'"done"'))
            assert await value_of(desk, 7) == b"done"


@async_test
async def test_caller_behind_the_broker_supports_only_callbacks(broker: RunningBroker) -> None:
    async with hub_at(broker, app) as _, bare(broker, "/desk") as desk:
        desk.say(encoded("missing", 9))
        refused = (await value_of(desk, 9)).decode().split("\n")
        texts = ["call registered methods", "has no variables", "cannot be closed", "publish on a topic of the hub"]
        assert [text in encoded for text, encoded in zip(texts, refused, strict=True)] == [True] * 4, refused
