"""A broker that stops and restarts: reconnection, and the outcome of calls in flight."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from fiveways.client.connection_state import ConnectionState
from fiveways.client.mqtt import MqttPeer, Retry, connect_mqtt
from fiveways.errors import CallLost, ConnectionLost, NotExecuted, Reason, Refused
from fiveways.protocols.mqtt_rpc.messages import Request, Response
from fiveways.transports.mqtt_link import Broker
from tests.support.broker_processes import BROKERS, RunningBroker, Wanted, running
from tests.support.compiled_schema import greeter
from tests.support.rpc_service import HANG, Greeter, at, bare, message, new_topic, pair, quick, wait_for_state
from tests.support.running import async_test
from tests.support.waiting import until

BOB = message("HelloRequest", name="bob")
HANGING = message("HelloRequest", name="hang")


@pytest.fixture(params=BROKERS)
def stoppable_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker for one test, which may stop it."""
    with running(request.param) as each:
        yield each


async def stop_broker(broker: RunningBroker) -> None:
    await asyncio.to_thread(broker.kill)


async def start_broker(broker: RunningBroker) -> None:
    await asyncio.to_thread(broker.start)


@async_test
async def test_calls_fail_with_the_right_error_and_services_return(stoppable_broker: RunningBroker) -> None:
    async with pair(stoppable_broker) as it:
        stub = it.stub()
        assert (await stub.SayHello(BOB)).text == "hello bob"
        left = asyncio.ensure_future(stub.SayHello(HANGING))
        parts = stub.Count(message("CountRequest", up_to=HANG))
        assert (await anext(parts)).number == 1
        await it.service.hangs.wait()
        await stop_broker(stoppable_broker)
        with pytest.raises(CallLost, match="it may have run"):
            await left
        with pytest.raises(CallLost):
            await anext(parts)
        await wait_for_state(it.caller, ConnectionState.RECONNECTING)
        with pytest.raises(NotExecuted, match="no link") as caught:
            await stub.SayHello(BOB, timeout=0.2)
        assert caught.value.reason is Reason.UNAVAILABLE
        assert it.service.runs == 3
        # A call with enough time succeeds when the broker and the service are back.
        await start_broker(stoppable_broker)
        await wait_for_state(it.callee, ConnectionState.RECONNECTED)
        assert (await stub.SayHello(BOB)).text == "hello bob"
        assert (await stub.SayHello(BOB)).text == "hello bob"
        # The stream lost a part and failed; the call without a stream succeeded.
        assert it.service.ended == ["cancelled"]
        assert it.caller.strays == 0


@async_test
async def test_client_reconnects_within_a_second_of_the_brokers_return(stoppable_broker: RunningBroker) -> None:
    async with at(stoppable_broker) as peer:
        keeper = peer._session.reconnector
        await stop_broker(stoppable_broker)
        # The backoff doubles up to its maximum, one second.
        await until(lambda: keeper._backoff == 1.0)
        await start_broker(stoppable_broker)
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert keeper._backoff == 1.0


async def lose_connection_before_write(peer: MqttPeer, call: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Begin a call, and lose the connection after it was sent to the link and before it was written."""
    task = asyncio.create_task(call)
    keeper = peer._session.reconnector
    link, ear = keeper.link, keeper._receiver
    assert link is not None
    assert ear is not None
    asyncio.get_running_loop().call_soon(ear.lost, "gone")  # this runs after the task's step and before the write
    await asyncio.sleep(0)
    assert keeper.link is None
    link.abort()
    return task


@async_test
async def test_unwritten_call_fails_as_not_executed(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        stub = it.stub()
        await stub.SayHello(BOB)
        with pytest.raises(NotExecuted, match="gone; it was not sent"):
            await (await lose_connection_before_write(it.caller, stub.SayHello(BOB)))
        await wait_for_state(it.caller, ConnectionState.RECONNECTED)
        # The next connection does not send it either.
        await stub.SayHello(BOB)
        assert it.service.runs == 2
        # A retry policy may repeat it.
        task = await lose_connection_before_write(it.caller, stub.SayHello(BOB, retry=Retry()))
        assert (await task).text == "hello bob"
        assert it.service.runs == 3


@async_test
async def test_response_is_sent_over_the_next_connection(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with (
        at(broker) as callee,
        callee.serve(greeter().module, service, topic=topic),
        bare(broker, topic) as link,
    ):
        link.say(Request(topic, 7, "SayHello", HANGING.SerializeToString(), True))
        await service.hangs.wait()
        lost = callee._session.reconnector.link
        assert lost is not None
        lost.abort()
        await wait_for_state(callee, ConnectionState.RECONNECTING)
        service.go_on.set()
        answer = await link.answer()
        assert isinstance(answer, Response)
        assert answer.correlation_id == 7
        # The next connection also recognizes a repeated request.
        link.say(Request(topic, 7, "SayHello", HANGING.SerializeToString(), True))
        link.say(Request(topic, 8, "SayHello", BOB.SerializeToString(), True))
        assert (await link.answer()).correlation_id == 8
        assert service.runs == 2


@async_test
async def test_stream_with_a_lost_part_fails(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with (
        at(broker) as callee,
        callee.serve(greeter().module, service, topic=topic),
        bare(broker, topic) as link,
    ):
        link.say(Request(topic, 7, "Sum", b"\x08\x01"))  # a part may arrive while the client is not subscribed
        await until(lambda: service.runs)
        lost = callee._session.reconnector.link
        assert lost is not None
        lost.abort()
        answer: Any = await link.answer()
        assert (answer.code, answer.tag) == (502, "hub.lost")


@async_test
async def test_streamed_request_fails_with_its_connection(stoppable_broker: RunningBroker) -> None:
    async def lines() -> AsyncIterator[Any]:
        yield message("ChatLine", text="one")
        yield message("ChatLine", text="two")
        await asyncio.Event().wait()

    async with pair(stoppable_broker) as it:
        chat = it.stub().Chat(lines())
        assert [(await anext(chat)).text, (await anext(chat)).text] == ["you said one", "you said two"]
        await stop_broker(stoppable_broker)
        with pytest.raises(CallLost):
            await anext(chat)


@async_test
async def test_client_without_reconnect_ends_with_its_connection(stoppable_broker: RunningBroker) -> None:
    async with connect_mqtt(stoppable_broker.url, reconnect=False) as peer:
        stub = peer.stub(greeter().module, topic=new_topic())
        call = asyncio.ensure_future(stub.SayHello(BOB))
        await until(lambda: peer._session._last_sent)
        await stop_broker(stoppable_broker)
        with pytest.raises(CallLost):
            await call
        assert (await peer.wait_closed()).state is ConnectionState.CLOSED
        with pytest.raises(ConnectionLost):
            await stub.SayHello(BOB)


@async_test
async def test_close_fails_pending_calls(broker: RunningBroker) -> None:
    peer = await connect_mqtt(broker.url)
    stub = peer.stub(greeter().module, topic=new_topic())
    call = asyncio.ensure_future(stub.SayHello(BOB))
    await until(lambda: peer._session._last_sent)
    await peer.close()
    with pytest.raises(CallLost):
        await call
    with pytest.raises(ConnectionLost):
        await stub.SayHello(BOB)


@pytest.mark.parametrize("name", BROKERS)
@async_test
async def test_wrong_password_is_refused_and_not_shown(name: str) -> None:
    with running(name, Wanted("bob", "secret1")) as broker:
        url = broker.url.replace("secret1", "secret2")
        with pytest.raises(Refused) as caught:
            await connect_mqtt(url)
        assert "secret" not in str(caught.value)
        async with connect_mqtt(broker.url) as peer:
            assert "secret" not in f"{peer} {peer.url} {peer._settings}"
            assert peer.state is ConnectionState.CONNECTED


@async_test
async def test_unreachable_broker_is_an_error() -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        async with MqttPeer(Broker.parse("mqtt://127.0.0.1:9"), quick()):
            pass
