"""Reconnects: states, waiting requests, backoff and the final end."""

import asyncio
import logging

import pytest

from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.errors import CallLost, ConnectionLost, NotExecuted, Reason, Refused
from fiveways.model.messages import (
    Call,
    Goodbye,
    Hello,
    HubMessage,
    Publish,
    Result,
)
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import (
    PROTOCOLS,
    ScriptedHub,
    ScriptedSession,
    echoing,
    granting,
    next_messages,
    wait_for_state,
)

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@async_test
async def test_states_report_loss_reconnect_and_close(caplog: pytest.LogCaptureFixture) -> None:
    hub = ScriptedHub()
    hub.answer = echoing

    async def follow(peer: Peer) -> list[ConnectionState]:
        return [status.state async for status in peer.states()]

    with caplog.at_level(logging.WARNING, "fiveways.client"):
        async with hub.client() as (peer, session):
            follower = asyncio.create_task(follow(peer))
            assert peer.state is ConnectionState.CONNECTED
            session.drop()
            await wait_for_state(peer, ConnectionState.RECONNECTED)
            assert await peer.call("hub.echo", 1) == 1
        assert await follower == [
            ConnectionState.CONNECTED,
            ConnectionState.RECONNECTING,
            ConnectionState.RECONNECTED,
            ConnectionState.CLOSED,
        ]
    assert (await peer.wait_closed()).text == "the connection is closed"
    assert "reconnecting: the other end is gone" in caplog.text
    assert "reconnected: lrpm+ws://hub" in caplog.text


@every_protocol
@async_test
async def test_calls_and_publications_wait_for_a_reconnect(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        hub.is_up = False
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTING)
        call = asyncio.create_task(peer.call("hub.echo", 7))
        publication = asyncio.create_task(peer.publish("news", 8))
        await loop_iterations()
        hub.is_up = True
        again = await hub.sessions.get()
        first, second = sorted(await next_messages(again, 2), key=lambda message: type(message).__name__)
        assert isinstance(first, Call)
        again.say(Result(first.id, first.body))
        assert isinstance(second, Publish)
        assert await call == 7
        await publication


@async_test
async def test_call_that_times_out_without_a_connection_raises_not_executed() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, session):
        hub.is_up = False
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTING)
        for request in (peer.call("math.add", timeout=0.01), peer.publish("news", timeout=0.01)):
            with pytest.raises(NotExecuted, match="no connection") as caught:
                await request
            assert caught.value.reason is Reason.UNAVAILABLE
    assert hub.attempts > 1


@async_test
async def test_requests_that_wait_for_a_connection_are_bounded() -> None:
    hub = ScriptedHub()
    async with hub.client(limits=hub.limits.__class__(max_pending=3)) as (peer, session):
        hub.is_up = False
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTING)
        tasks = [asyncio.create_task(peer.call("math.add")) for _ in range(4)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(NotExecuted) as caught:
            await done.pop()
        assert caught.value.reason is Reason.OVERLOADED
        await peer.close()
        for task in tasks[:3]:
            with pytest.raises(ConnectionLost):
                await task


@async_test
async def test_call_in_flight_is_lost_unless_idempotent() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, session):
        once = asyncio.create_task(peer.call("math.add"))
        twice = asyncio.create_task(peer.call("math.add", idempotent=True))
        await next_messages(session, 2)
        session.drop()
        with pytest.raises(CallLost):
            await once
        again = await hub.sessions.get()
        again.say(Result((await again.next(Call)).id, Value(5)))
        assert await twice == 5


@async_test
async def test_client_reconnects_after_a_goodbye() -> None:
    hub = ScriptedHub("umq")
    hub.answer = echoing
    async with hub.client() as (peer, session):
        session.say(Goodbye("the hub is closing"))
        assert "the hub is closing" in await wait_for_state(peer, ConnectionState.RECONNECTING)
        assert await peer.call("hub.echo", 1) == 1


@async_test
async def test_protocol_error_of_the_hub_ends_the_connection() -> None:
    hub = ScriptedHub("umq")
    hub.answer = echoing
    async with hub.client() as (peer, session):
        session.link.write(session.link.frame(Packet(b"nonsense")))
        assert "broke the protocol" in await wait_for_state(peer, ConnectionState.RECONNECTING)
        await session.next(Goodbye)
        assert await peer.call("hub.echo", 1) == 1


@every_protocol
@async_test
async def test_refusal_ends_reconnecting(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        events = await peer.subscribe("news")
        waits = asyncio.ensure_future(anext(events))

        def deny(again: ScriptedSession, message: HubMessage) -> bool:
            if isinstance(message, Hello):
                again.say(Goodbye("you are gone", denied=True))
            return True

        hub.answer = deny
        session.drop()
        assert "you are gone" in await wait_for_state(peer, ConnectionState.CLOSED)
        with pytest.raises(Refused):
            await peer.call("math.add")
        with pytest.raises(Refused):
            await waits


@async_test
async def test_without_reconnect_a_lost_connection_is_final() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client(reconnect=False) as (peer, session):
        events = await peer.subscribe("news")
        session.drop()
        await wait_for_state(peer, ConnectionState.CLOSED)
        with pytest.raises(ConnectionLost):
            await anext(events)
        with pytest.raises(ConnectionLost):
            await peer.publish("news", confirm=False)
    assert hub.attempts == 1


@async_test
async def test_silent_hub_is_pinged_and_then_lost() -> None:
    hub = ScriptedHub()
    async with hub.client(keepalive=0.01) as (peer, session):
        session.link.pause_reading()  # no response to pings
        assert "no keepalive response" in await wait_for_state(peer, ConnectionState.RECONNECTING)


@async_test
async def test_quiet_hub_that_responds_to_pings_stays_connected() -> None:
    hub = ScriptedHub()
    hub.answer = echoing
    async with hub.client(keepalive=0.005) as (peer, _):
        ours = peer._core.reconnector.session
        assert ours is not None
        pings = asyncio.Semaphore(0)
        link, ping = ours._link, ours._link.ping

        def count() -> None:
            ping()
            pings.release()

        link.ping = count  # type: ignore[method-assign]
        for _ in range(5):
            await pings.acquire()
        assert peer.state is ConnectionState.CONNECTED
        assert await peer.call("hub.echo", 1) == 1


@async_test
async def test_close_ends_reconnecting_if_a_transport_swallows_the_cancellation() -> None:
    hub = ScriptedHub()
    dialling = asyncio.Event()

    async def stubborn(*_: object, **__: object) -> object:
        dialling.set()
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionRefusedError("nobody listens") from None

    async with hub.client() as (peer, session):
        peer._reconnector._open_link = stubborn
        session.drop()
        await dialling.wait()
        await peer.close()
    assert peer.state is ConnectionState.CLOSED
