"""Paused sessions, and links that are closed while they are idle."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest

from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.client.sync import connect_sync
from fiveways.errors import CallTimeout, ConnectionLost, LocalProtocolError, NotExecuted
from fiveways.settings.sections import ZmqSettings
from tests.support.raw_nq_hub import RawHub, hasten, resumable_session
from tests.support.raw_peers import PATIENCE, Place, hub, settings
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, URLS, wait_for_state

TRANSPORTS = ("ws", "http", "zmq")
every_transport = pytest.mark.parametrize("transport", TRANSPORTS)
SOON = 0.05


@asynccontextmanager
async def a_hub() -> AsyncIterator[Place]:
    async with hub(replace(settings(), zmq=ZmqSettings(listen=True, port=0))) as place:
        yield place


def url(place: Place, transport: str) -> str:
    if transport == "zmq":
        return place.server.urls[-1][1]
    return f"nq+{transport}://127.0.0.1:{place.port}"


def at(place: Place, transport: str, **options: object) -> Connector:
    return connect(url(place, transport), backoff=(0.001, 0.05), **options)  # type: ignore[arg-type]


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Service:
    """A method that ends when the test allows it."""

    def __init__(self) -> None:
        self.runs = 0
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    async def work(self, n: int) -> int:
        self.runs += 1
        self.began.set()
        await self.go_on.wait()
        return n * 2


@every_transport
@async_test
async def test_call_continues_during_a_pause_and_its_response_waits(transport: str) -> None:
    service = Service()
    async with a_hub() as place, at(place, transport) as caller, at(place, "ws") as callee:
        await callee.register("work", service.work)
        async with caller.subscribe("news") as events:
            call = caller.begin("work", [21])
            await service.began.wait()
            caller.pause()
            await wait_for_state(caller, ConnectionState.PAUSED)
            service.go_on.set()
            await callee.publish("news", 1)
            late = caller.begin("work", [4])
            await asyncio.sleep(SOON)
            assert (call.is_over, late.is_over, service.runs) == (False, False, 1)
            caller.resume()
            assert [await call, await late, service.runs] == [42, 8, 2]
            assert (await anext(events)).data == 1
        assert caller.state is ConnectionState.RECONNECTED


@async_test
async def test_nothing_is_sent_during_a_pause() -> None:
    hub = RawHub()
    async with hub.client() as (peer, session):
        hasten(peer)
        call = asyncio.create_task(peer.call("math.add"))
        request = await session.request()
        peer.pause()
        peer.pause()
        await session.is_over.wait()
        late = asyncio.create_task(peer.call("math.sub"))
        await asyncio.sleep(SOON)
        assert (hub.links, hub.sessions.empty()) == (1, True)
        peer.resume()
        following = await hub.next()
        assert await following.next_packet() == [request]
        following.say({"a": "b1", "i": request["r"], "d": 5})
        assert await call == 5
        while (request := (await following.next_packet())[-1]).get("t") != "math.sub":
            pass
        following.say({"a": "b2", "i": request["r"], "d": 6})
        assert await late == 6


@async_test
async def test_timeouts_apply_during_a_pause() -> None:
    hub = RawHub()
    async with hub.client() as (peer, session):
        call = asyncio.create_task(peer.call("math.add", timeout=10 * SOON))
        request = await session.request()
        peer.pause()
        with pytest.raises(CallTimeout):
            await call
        with pytest.raises(NotExecuted, match="paused"):
            await peer.call("math.add", timeout=0.01)
        peer.resume()
        following = await hub.next()
        (response,) = await following.next_packet()
        assert (response["i"], response["e"]["err"]) == (request["r"], "cancelled")


@async_test
async def test_pause_without_a_link() -> None:
    hub = RawHub()
    async with hub.client(first_wait=0.05, longest_wait=0.05) as (peer, session):
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTING)
        peer.pause()
        await asyncio.sleep(SOON)
        assert hub.links == 1
        peer.resume()
        await hub.next()


@async_test
async def test_pause_while_a_link_is_opened() -> None:
    hub = RawHub()
    gate, dialled = asyncio.Event(), asyncio.Event()

    async def slow(*args: object, **kwargs: object) -> object:
        dialled.set()
        await gate.wait()
        return await hub.open_link(*args, **kwargs)  # type: ignore[arg-type]

    async with hub.client() as (peer, session):
        peer._reconnector._open_link = slow
        session.drop()
        await dialled.wait()
        peer.pause()
        gate.set()
        silent = await hub.sessions.get()
        await silent.is_over.wait()
        assert silent.packets.empty()
        peer.resume()
        await hub.next()


@pytest.mark.parametrize("reconnect", [True, False])
@async_test
async def test_paused_client_can_be_closed(reconnect: bool) -> None:
    hub = RawHub()
    async with hub.client(reconnect=reconnect) as (peer, _):
        peer.pause()
        call = peer.begin("math.add")
        await loop_iterations()
        await peer.close()
        with pytest.raises(ConnectionLost):
            await call
        with pytest.raises(ConnectionLost):
            peer.pause()
        peer.resume()
    assert (hub.links, peer.state) == (1, ConnectionState.CLOSED)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@async_test
async def test_pause_in_other_protocols_names_the_supported_ones(protocol: str) -> None:
    async with hub() as place, connect(URLS[protocol].replace("hub", f"127.0.0.1:{place.port}")) as peer:
        with pytest.raises(LocalProtocolError, match=r"ends with its link; use nq\+ws, .*nq\+http, .*nq\+zmq"):
            peer.pause()
        assert await peer.call("hub.ping") == "pong"
        peer.resume()
        assert peer.state is ConnectionState.CONNECTED


@async_test
async def test_blocking_client_can_pause() -> None:
    async with a_hub() as place:

        def script() -> None:
            with connect_sync(url(place, "ws"), idle_close=60.0) as peer:
                peer.pause()
                call = peer.begin("hub.echo", 1)
                assert (peer.state, call.is_over) == (ConnectionState.PAUSED, False)
                peer.resume()
                assert call.result() == 1

        await asyncio.to_thread(script)


# Links that nobody needs.


@pytest.mark.parametrize("transport", ["ws", "zmq"])
@async_test
async def test_idle_link_is_closed_and_reopened_for_the_next_call(transport: str) -> None:
    service = Service()
    async with a_hub() as place, at(place, "ws") as callee, at(place, transport, idle_close=SOON) as peer:
        await callee.register("work", service.work)
        name = peer.session
        await wait_for_state(peer, ConnectionState.RESTING)
        assert resumable_session(peer)._is_connected is False
        assert await peer.call("hub.echo", 1) == 1
        await wait_for_state(peer, ConnectionState.RESTING)
        call = peer.begin("work", [2])
        await service.began.wait()
        await asyncio.sleep(3 * SOON)
        assert is_linked(peer)  # a response is pending
        service.go_on.set()
        assert await call == 4
        await wait_for_state(peer, ConnectionState.RESTING)
        async with peer.subscribe("news") as events:
            await asyncio.sleep(3 * SOON)
            await callee.publish("news", 1)
            assert (await anext(events)).data == 1
        await wait_for_state(peer, ConnectionState.RESTING)
        await peer.publish("news", 2, confirm=False)
        assert peer.session == name


def is_linked(peer: Peer) -> bool:
    return resumable_session(peer)._is_connected


@async_test
async def test_response_of_a_long_job_is_sent_over_another_link() -> None:
    async with a_hub() as place, at(place, "ws") as boss, at(place, "ws", idle_close=SOON) as worker:
        await boss.push("jobs", 1)
        async with worker.pull("jobs") as job:
            assert job.data == 1
            worker.pause()
        worker.resume()
        await boss.push("jobs", 2)
        async with worker.pull("jobs", timeout=PATIENCE) as job:
            assert job.data == 2


@async_test
async def test_message_during_idle_close_opens_a_link() -> None:
    hub = RawHub()
    async with hub.client(idle_close=60.0) as (peer, _):
        resumable_session(peer)._suspend("now")
        call = asyncio.create_task(peer.call("math.add"))  # the session has not noticed the loss of the link
        request = await (await hub.next()).request()
        assert request["t"] == "math.add"
        call.cancel()


@async_test
async def test_without_reconnect_a_failed_reopening_is_final() -> None:
    hub = RawHub()
    async with hub.client(idle_close=0.01, reconnect=False) as (peer, _):
        await wait_for_state(peer, ConnectionState.RESTING)

        async def nobody(*_: object, **__: object) -> object:
            raise ConnectionRefusedError("nobody listens")

        peer._reconnector._open_link = nobody
        with pytest.raises(ConnectionLost, match="nobody listens"):
            await peer.call("math.add")


@async_test
async def test_idle_close_closes_http_connections() -> None:
    async with a_hub() as place, at(place, "http", idle_close=0.01) as peer:
        assert await peer.call("hub.echo", 1) == 1
        port = place.server._port
        for number in count():
            await eventually(lambda: port.connections() == 0)
            assert await peer.call("hub.echo", number) == number
            if number:
                break
        assert peer.state is ConnectionState.CONNECTED


@pytest.mark.parametrize(
    ("url", "idle", "sentence"),
    [
        ("lrpm+ws://h", 1.0, r"`idle_close` needs nq\+ws"),
        ("nq+ws://h", 0.0, "`idle_close` must be a positive number"),
    ],
)
def test_invalid_idle_close_is_refused(url: str, idle: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        connect(url, idle_close=idle)
