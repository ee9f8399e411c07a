"""NQ over ZeroMQ: the same conversation, with a routing id of the client's choice."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import zmq

from fiveways.app.context import Context
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.handshake import BadCredentials
from fiveways.errors import ConnectionLost
from fiveways.settings.sections import ServerSettings, ZmqSettings
from fiveways.transports.zmq_client import open_nq_zmq
from fiveways.transports.zmq_link import ZmqLink
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.raw_nq_hub import resumable_session
from tests.support.raw_peers import PATIENCE, Place, hub, settings
from tests.support.running import TEST_TIMEOUT, async_test, loop_iterations


@asynccontextmanager
async def a_hub(place: Place | None = None) -> AsyncIterator[Place]:
    """Run a hub with a ZeroMQ port, at the address of another one if there is one."""
    port, zmq_port = (0, 0) if place is None else (place.port, port_of(place))
    hub_settings = settings(server=ServerSettings(port=port, drain_timeout=0.1))
    async with hub(replace(hub_settings, zmq=ZmqSettings(listen=True, port=zmq_port))) as place_of_hub:
        yield place_of_hub


def port_of(place: Place) -> int:
    return int(place.server.urls[-1][1].rpartition(":")[2])


def at(place: Place, **options: object) -> Connector:
    return connect(f"nq+zmq://127.0.0.1:{port_of(place)}", backoff=(0.001, 0.05), **options)  # type: ignore[arg-type]


async def twice(n: int) -> int:
    return 2 * n


@async_test
async def test_all_methods_of_the_client_work_over_zeromq() -> None:
    async def photo(context: Context) -> int:
        context.progress("looking")
        return len((await context.attachments())[0])

    async with a_hub() as place, at(place) as one, at(place) as other:
        await one.register("twice", twice)
        await one.register("photo", photo)
        assert await other.call("twice", [21]) == 42
        call = other.begin("photo", attachments=[b"abc"])
        assert await call == 3
        assert [note.value async for note in call.progress()] == ["looking"]
        async with other.subscribe("sensors.*") as events:
            await one.publish("sensors.roof", 21.5)
            assert (await anext(events)).data == 21.5
        token = await one.callback(twice)
        assert await other.call(f"callback.{token}", [1]) == 2
        await one.vars.set("language", "cs")
        assert await other.vars.get("language", peer=one.session) == "cs"
        assert len({one.session, other.session}) == 2
        assert (one.protocol, one.state) == ("nq", ConnectionState.CONNECTED)


@async_test
async def test_lost_connection_neither_loses_nor_repeats_calls() -> None:
    runs, began, go_on = [], asyncio.Event(), asyncio.Event()

    async def work(n: int) -> int:
        runs.append(n)
        began.set()
        await go_on.wait()
        return n * 2

    async with a_hub() as place, at(place) as caller, at(place) as callee:
        await callee.register("work", work)
        async with callee.subscribe("news") as events:
            call = asyncio.create_task(caller.call("work", [21]))
            await began.wait()
            name = caller.session
            for peer in (caller, callee):
                # The hub does not notice: it considers the next link the same as the previous one.
                resumable_session(peer)._link.abort()
            go_on.set()
            assert await call == 42
            assert (runs, caller.session) == ([21], name)
            await caller.publish("news", 1)
            assert (await anext(events)).data == 1
            assert events.restored == 0


@async_test
async def test_new_hub_at_the_same_address_gets_all_registrations_again() -> None:
    async with a_hub() as place, at(place) as caller, at(place) as callee:
        await callee.register("twice", twice)
        async with callee.subscribe("news") as events:
            assert await caller.call("twice", [1]) == 2
            await place.server.stop()
            async with a_hub(place):
                async with asyncio.timeout(PATIENCE):
                    while "twice" not in (await caller.discover()).methods or not events.restored:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                assert await caller.call("twice", [2]) == 4
                await caller.publish("news", 1)
                assert (await anext(events)).data == 1


@async_test
async def test_silent_client_sends_heartbeats() -> None:
    async with a_hub() as place, at(place, keepalive=0.1) as peer:
        (link,) = place.server._zmq._port._links.values()  # type: ignore[union-attr]
        before = link.received_at
        async with asyncio.timeout(PATIENCE):
            while link.received_at <= before + 0.05:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert peer.state is ConnectionState.CONNECTED
        assert isinstance(resumable_session(peer)._link, ZmqLink)


@async_test
async def test_silent_hub_is_pinged_and_then_lost() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    heard: list[bytes] = []

    def answer(times: int) -> None:
        """Answer so many greetings, and nothing else."""
        while len(heard) < times and router.poll(round(1000 * TEST_TIMEOUT)):
            routing_id, text = router.recv_multipart()
            if b"hello" in text:
                heard.append(text)
                router.send_multipart([routing_id, b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["me"]}}'])

    try:
        answering = asyncio.create_task(asyncio.to_thread(answer, 3))
        async with connect(f"nq+zmq://127.0.0.1:{port}", keepalive=0.1) as peer:
            await answering  # after the first, these are pings of an idle link
            async for status in peer.states():
                if status.state is ConnectionState.RECONNECTING:
                    break
            assert "no keepalive response" in status.text
    finally:
        context.destroy(linger=0)


@async_test
async def test_each_client_has_a_random_routing_id() -> None:
    async with a_hub() as place, at(place) as one, at(place) as other:
        ids = {resumable_session(peer).endpoint()[1]["NQ-Peer"] for peer in (one, other)}
        assert len(ids) == 2
        assert all(len(each.removeprefix("fiveways-")) == 32 for each in ids)
        links = place.server._zmq._port._links  # type: ignore[union-attr]
        assert {each.decode() for each in links} == ids


@async_test
async def test_port_without_a_listener_fails_immediately() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"nq+zmq://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match="no server is listening"):
            await connect(url)


@async_test
async def test_cancelled_connect_closes_the_link_immediately() -> None:
    links: list[ZmqLink] = []

    class Nobody:
        def received(self, packet: Packet) -> None: ...

        def progressed(self, size: int) -> bool:
            return True

        def writable(self) -> None: ...

        def lost(self, reason: str) -> None: ...

    def receive(link: ZmqLink) -> Nobody:
        links.append(link)
        return Nobody()

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"zmq://127.0.0.1:{silent.getsockname()[1]}"
        opening = asyncio.create_task(open_nq_zmq(url, receive, limits=Limits(), timeout=2 * TEST_TIMEOUT))
        await loop_iterations()
        links[0].abort()
        with pytest.raises(ConnectionError, match="the link was closed"):
            await opening


@async_test
async def test_error_of_a_server_without_zeromq_says_so() -> None:
    async with a_hub() as place:
        with pytest.raises(ConnectionLost, match=r"(does not speak ZeroMQ|the connection is lost)$"):
            await connect(f"nq+zmq://127.0.0.1:{place.port}")


@async_test
async def test_foreign_router_times_out_in_the_handshake() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    try:
        connecting = connect(f"nq+zmq://127.0.0.1:{port}")
        connecting._settings = replace(connecting._settings, open_timeout=0.2)
        with pytest.raises(ConnectionLost, match="did not complete the handshake"):
            await connecting
    finally:
        context.destroy(linger=0)


def test_token_is_refused_before_connecting() -> None:
    with pytest.raises(BadCredentials, match=r"use nq\+ws or nq\+http"):
        connect("nq+zmq://h", token="secret")  # noqa: S106
