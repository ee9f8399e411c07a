"""A broker that goes away and returns, and what is known of the calls then."""

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
from tests.support.rpc_service import HANG, Greeter, at, bare, becomes, message, new_topic, pair, quick, until, waiting

BOB = message("HelloRequest", name="bob")
HANGING = message("HelloRequest", name="hang")


@pytest.fixture(params=BROKERS)
def mortal(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker of one test's own, which it may end."""
    with running(request.param) as each:
        yield each


async def ended(broker: RunningBroker) -> None:
    await asyncio.to_thread(broker.kill)


async def started(broker: RunningBroker) -> None:
    await asyncio.to_thread(broker.start)


@waiting
async def test_calls_fail_by_what_is_known_and_services_are_back(mortal: RunningBroker) -> None:
    async with pair(mortal) as it:
        stub = it.stub()
        assert (await stub.SayHello(BOB)).text == "hello bob"
        left = asyncio.ensure_future(stub.SayHello(HANGING))
        parts = stub.Count(message("CountRequest", up_to=HANG))
        assert (await anext(parts)).number == 1
        await it.service.hangs.wait()
        await ended(mortal)
        with pytest.raises(CallLost, match="it may have run"):
            await left
        with pytest.raises(CallLost):
            await anext(parts)
        await until(it.caller, ConnectionState.RECONNECTING)
        with pytest.raises(NotExecuted, match="no link") as caught:
            await stub.SayHello(BOB, timeout=0.2)
        assert caught.value.reason is Reason.UNAVAILABLE
        assert it.service.runs == 3
        # Who waits long enough gets through as soon as the broker, and the service, are back.
        await started(mortal)
        await until(it.callee, ConnectionState.RECONNECTED)
        assert (await stub.SayHello(BOB)).text == "hello bob"
        assert (await stub.SayHello(BOB)).text == "hello bob"
        # The stream had a hole then, and was ended; the call in one piece was not.
        assert it.service.ended == ["cancelled"]
        assert it.caller.strays == 0


@waiting
async def test_a_link_comes_back_within_a_second_however_long_the_broker_was_away(mortal: RunningBroker) -> None:
    async with at(mortal) as peer:
        keeper = peer._session.reconnector
        await ended(mortal)
        # The waits double up to their bound, which is a second.
        await becomes(lambda: keeper._backoff == 1.0)
        await started(mortal)
        await until(peer, ConnectionState.RECONNECTED)
        assert keeper._backoff == 1.0


async def cut_off(peer: MqttPeer, call: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Begin a call, and lose the link after it was said and before it was written."""
    task = asyncio.create_task(call)
    keeper = peer._session.reconnector
    link, ear = keeper.link, keeper._receiver
    assert link is not None
    assert ear is not None
    asyncio.get_running_loop().call_soon(ear.lost, "gone")  # its turn is after the task's and before the writing
    await asyncio.sleep(0)
    assert keeper.link is None
    link.abort()
    return task


@waiting
async def test_what_was_not_written_was_not_executed(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        stub = it.stub()
        await stub.SayHello(BOB)
        with pytest.raises(NotExecuted, match="gone; it was not sent"):
            await (await cut_off(it.caller, stub.SayHello(BOB)))
        await until(it.caller, ConnectionState.RECONNECTED)
        # Nor is it said by the next link.
        await stub.SayHello(BOB)
        assert it.service.runs == 2
        # A policy may have it tried again.
        task = await cut_off(it.caller, stub.SayHello(BOB, retry=Retry()))
        assert (await task).text == "hello bob"
        assert it.service.runs == 3


@waiting
async def test_an_answer_may_leave_by_the_next_link(broker: RunningBroker) -> None:
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
        await until(callee, ConnectionState.RECONNECTING)
        service.go_on.set()
        answer = await link.answer()
        assert isinstance(answer, Response)
        assert answer.correlation_id == 7
        # And a repeat of the request is known by the next link too.
        link.say(Request(topic, 7, "SayHello", HANGING.SerializeToString(), True))
        link.say(Request(topic, 8, "SayHello", BOB.SerializeToString(), True))
        assert (await link.answer()).correlation_id == 8
        assert service.runs == 2


@waiting
async def test_streams_of_which_a_part_is_lost_are_ended(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with (
        at(broker) as callee,
        callee.serve(greeter().module, service, topic=topic),
        bare(broker, topic) as link,
    ):
        link.say(Request(topic, 7, "Sum", b"\x08\x01"))  # more of it may come while nobody listens
        await becomes(lambda: service.runs)
        lost = callee._session.reconnector.link
        assert lost is not None
        lost.abort()
        answer: Any = await link.answer()
        assert (answer.code, answer.tag) == (502, "hub.lost")


@waiting
async def test_requests_that_stream_end_with_their_link(mortal: RunningBroker) -> None:
    async def lines() -> AsyncIterator[Any]:
        yield message("ChatLine", text="one")
        yield message("ChatLine", text="two")
        await asyncio.Event().wait()

    async with pair(mortal) as it:
        chat = it.stub().Chat(lines())
        assert [(await anext(chat)).text, (await anext(chat)).text] == ["you said one", "you said two"]
        await ended(mortal)
        with pytest.raises(CallLost):
            await anext(chat)


@waiting
async def test_without_reconnect_it_is_over(mortal: RunningBroker) -> None:
    async with connect_mqtt(mortal.url, reconnect=False) as peer:
        stub = peer.stub(greeter().module, topic=new_topic())
        call = asyncio.ensure_future(stub.SayHello(BOB))
        await becomes(lambda: peer._session._last_sent)
        await ended(mortal)
        with pytest.raises(CallLost):
            await call
        assert (await peer.wait_closed()).state is ConnectionState.CLOSED
        with pytest.raises(ConnectionLost):
            await stub.SayHello(BOB)


@waiting
async def test_closing_fails_what_is_open(broker: RunningBroker) -> None:
    peer = await connect_mqtt(broker.url)
    stub = peer.stub(greeter().module, topic=new_topic())
    call = asyncio.ensure_future(stub.SayHello(BOB))
    await becomes(lambda: peer._session._last_sent)
    await peer.close()
    with pytest.raises(CallLost):
        await call
    with pytest.raises(ConnectionLost):
        await stub.SayHello(BOB)


@pytest.mark.parametrize("name", BROKERS)
@waiting
async def test_a_wrong_password_is_refused_and_never_shown(name: str) -> None:
    with running(name, Wanted("bob", "secret1")) as broker:
        url = broker.url.replace("secret1", "secret2")
        with pytest.raises(Refused) as caught:
            await connect_mqtt(url)
        assert "secret" not in str(caught.value)
        async with connect_mqtt(broker.url) as peer:
            assert "secret" not in f"{peer} {peer.url} {peer._settings}"
            assert peer.state is ConnectionState.CONNECTED


@waiting
async def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        async with MqttPeer(Broker.parse("mqtt://127.0.0.1:9"), quick()):
            pass
