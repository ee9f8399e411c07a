"""Hostile and broken peers over real sockets: they must not affect other peers."""

import asyncio
import hmac
import json
import logging
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import cbor2
import pytest
from picows import WSMsgType

from fiveways.app import App
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, ServerSettings, Settings, TopicSettings
from fiveways.transports.websocket import WebSocketLink
from tests.support.hub_process import served
from tests.support.raw_peers import PATIENCE, Place, WirePeer, connected, hub, settings

T = TypeVar("T")
MIB = 1 << 20
SOON = 1.0
"""Seconds of patience for events that take a few milliseconds."""
SHORT = LimitSettings(max_unread_events=100_000)
BLOCKING = Settings(server=settings().server, limits=SHORT, topics=TopicSettings(when_full={"news": "block"}))
UPGRADE = (
    "GET {} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@asynccontextmanager
async def protected_hub(hub_settings: Settings | None = None, app: App | None = None) -> AsyncIterator[Place]:
    """A hub that aborts all its peers at the end of the test."""
    async with hub(hub_settings, app) as place:
        guests: list[WirePeer] = []
        connect = place.peer

        async def peer(path: str, **headers: str) -> WirePeer:
            guests.append(await connect(path, **headers))
            return guests[-1]

        place.peer = peer  # type: ignore[method-assign]
        try:
            yield place
        finally:
            for guest in guests:
                guest.leave()


async def cbor_peer(place: Place) -> WirePeer:
    peer = await place.peer("/lrpm")
    peer.binary(cbor2.dumps([2, None, {}]))
    await peer.data()
    return peer


async def umq_callee(place: Place, name: str = "store") -> WirePeer:
    callee = await place.umq()
    callee.text(f"M1\nhub:register\n{name}")
    assert await callee.heard() == "R1\nnull"
    return callee


async def umq_follower(place: Place, topic: str = "news") -> WirePeer:
    peer = await place.umq()
    peer.text(f"M1\nhub:subscribe\n{topic}\nt")
    assert (await peer.heard()).startswith("R1\n")
    return peer


def connection_of(place: Place, number: int) -> PeerConnection:
    """Return the hub's connection of the peer with this number."""
    connection = list(place.server.exchange.participants.values())[number]
    assert isinstance(connection, PeerConnection)
    return connection


def stop_reading(peer: WirePeer) -> None:
    peer.ws.underlying_transport.pause_reading()


def resume_reading(peer: WirePeer) -> None:
    peer.ws.underlying_transport.resume_reading()


def received_frames(peer: WirePeer) -> list[bytes | str | None]:
    frames = []
    while not peer.frames.empty():
        frames.append(peer.frames.get_nowait())
    return frames


async def gets_response(peer: WirePeer, number: int = 900) -> bool:
    """Return whether a UMQ peer gets a response; earlier messages do not matter."""
    peer.text(f"M{number}\nhub:ping\n")
    try:
        while await asyncio.wait_for(peer.frames.get(), PATIENCE) != f"R{number}\npong":
            pass
    except TimeoutError:
        return False
    return True


async def until(is_so: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Wait for a condition inside the hub; return whether it came true."""
    for _ in range(int(patience / 0.01)):
        if is_so():
            return True
        await asyncio.sleep(0.01)
    return is_so()


def send_fragmented(peer: WirePeer, pieces: int, *, end: bool = True) -> None:
    """Send a binary message of this many MiB."""
    for number in range(pieces):
        kind = WSMsgType.BINARY if number == 0 else WSMsgType.CONTINUATION
        peer.ws.send(kind, b"x" * MIB, end and number == pieces - 1)


def masked(opcode: int, payload: bytes, *, first: int = 0x80) -> bytes:
    """A client's frame with a mask of zeros."""
    assert len(payload) < 126
    return bytes((first | opcode, 0x80 | len(payload))) + bytes(4) + payload


@asynccontextmanager
async def raw_socket(place: Place, path: str) -> AsyncIterator[socket.socket]:
    """A socket after the WebSocket handshake, with the smallest receive buffer."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", place.port))
        await loop.sock_sendall(sock, UPGRADE.format(path).encode())
        assert b" 101 " in await loop.sock_recv(sock, 1000)
        yield sock


def run_in_time(steps: Coroutine[object, object, T], patience: float = PATIENCE) -> T:
    """Run a test with a time limit."""
    return asyncio.run(asyncio.wait_for(steps, patience))


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """Return the number of open files of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def cpu_time(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Frames of one peer must not reach another.


def test_event_spooled_for_one_peer_is_not_shared_as_a_frame() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=SHORT)) as place:
            slow, healthy, publisher = await cbor_peer(place), await cbor_peer(place), await place.umq()
            for peer in (slow, healthy):
                peer.binary(cbor2.dumps([63, 300, "news", {}]))
                await peer.data()
            stop_reading(slow)
            slow_pump = connection_of(place, 0)
            number = 0
            while not slow_pump.is_slow and number < 400:
                publisher.text(f"M{number}\nhub:publish\nnews\n{'x' * 50_000}")
                number += 1
                event = await asyncio.wait_for(healthy.frames.get(), PATIENCE)
                assert isinstance(event, bytes)
                assert len(event) > 50_000
            assert slow_pump.is_slow
            assert await gets_response(publisher)

    run_in_time(run())


def test_messages_reach_only_their_receivers_and_in_order() -> None:
    """Peers of four protocols subscribe, publish and call at random.

    Each event must match a subscription of its receiver.
    """

    async def run() -> None:
        chance = random.Random(7)
        async with protected_hub() as place:
            texts, binaries = [await place.lrpm() for _ in range(4)], [await cbor_peer(place) for _ in range(4)]
            peers = [*texts, *binaries]
            followed: dict[tuple[WirePeer, int], str] = {}
            requests: dict[tuple[WirePeer, int], str] = {}
            newest: dict[WirePeer, int] = {}
            ended: set[tuple[WirePeer, int]] = set()

            def send(peer: WirePeer, *message: object) -> None:
                if peer in texts:
                    peer.text(json.dumps(message))
                else:
                    peer.binary(cbor2.dumps(message))

            async def receive(peer: WirePeer, last: int) -> int:
                seen = 0
                while True:
                    frame = await asyncio.wait_for(peer.frames.get(), PATIENCE)
                    assert frame is not None
                    message = json.loads(frame) if isinstance(frame, str) else cbor2.loads(frame)
                    if message[0] == 64:
                        followed[peer, message[2]] = requests[peer, message[1]]
                    elif message[0] == 66:
                        ended.add((peer, int(requests[peer, message[1]])))
                    elif message[0] == 60:
                        seen += 1
                        assert (peer, message[2]) not in ended
                        assert message[3].partition("-")[0] == message[4]["topic"]
                        assert followed[peer, message[2]] in ("*", message[4]["topic"])
                        assert message[1] >= newest.get(peer, 0)
                        newest[peer] = message[1]
                    elif message[0] == 41 and message[1] == last:
                        return seen

            events = 0
            for request in range(1000, 61_000, 1000):
                for step in range(chance.choice((1, 4, 20))):
                    peer, number, topic = chance.choice(peers), request + step, chance.choice(("a", "b"))
                    mine = [
                        (subscriber, each)
                        for subscriber, each in followed
                        if subscriber is peer and (subscriber, each) not in ended
                    ]
                    kind = chance.random()
                    if kind < 0.6:
                        body = f"{topic}-{'z' * chance.choice((0, 10, 5000, 70_000))}"
                        send(peer, 61, number, topic, body, {"exclude_me": True} if chance.random() < 0.3 else {})
                    elif kind < 0.8 or not mine:
                        requests[peer, number] = chance.choice((topic, "*"))
                        send(peer, 63, number, requests[peer, number], {})
                    else:
                        requests[peer, number] = str(mine[0][1])
                        send(peer, 65, number, mine[0][1], {})
                for peer in peers:
                    send(peer, 40, request + 999, "hub.ping", None, {})
                events += sum([await receive(peer, request + 999) for peer in peers])
            assert events > 1000

    run_in_time(run())


def test_no_update_follows_the_end_of_its_topic() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            follower, publisher = await place.umq36(), await place.umq36()
            for turn in range(20):
                follower.text('C1:["hub.subscribe",{"topic":"n","id":"7"}]')
                assert (await follower.heard()).startswith("R1:")
                for _ in range(3):
                    publisher.text('C2:["hub.publish",{"topic":"n","data":1}]')
                follower.text("U7:" if turn % 2 else 'C3:["hub.unsubscribe",{"id":"7"}]')
                for _ in range(3):
                    publisher.text('C4:["hub.publish",{"topic":"n","data":2}]')
                publisher.text('C5:["hub.ping"]')
                while await publisher.heard() != "R5:pong":
                    pass
                follower.text('C6:["hub.ping"]')
                frames = []
                while (frame := await follower.heard()) != "R6:pong":
                    frames.append(frame)
                assert not any(frame.startswith("T") for frame in frames[frames.index("D7:") :])

    run_in_time(run())


def test_missed_events_are_counted_per_subscription() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=SHORT)) as place:
            slow, publisher = await place.umq(), await place.umq()
            slow.text('M1\nhub:subscribe\n{"topic":"news","id":"t","envelope":true}')
            await slow.heard()
            stop_reading(slow)
            connection = connection_of(place, 0)
            while not connection._missed_events:
                publisher.text(f"M1\nhub:publish\nnews\n{'x' * 50_000}")
                await publisher.heard()
            resume_reading(slow)
            slow.text('M2\nhub:unsubscribe\n{"id":"t"}')
            while not (await slow.heard()).startswith("R2\n"):
                pass
            slow.text('M3\nhub:subscribe\n{"topic":"other","id":"t","envelope":true}')
            await slow.heard()
            publisher.text("M2\nhub:publish\nother\n1")
            assert "missed" not in await slow.heard()

    run_in_time(run())


# A failure of one peer must not affect others.


def test_attachment_without_spool_space_fails_alone() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=LimitSettings(max_spool=2 * MIB))) as place:
            one, two, publisher = await umq_follower(place), await umq_follower(place), await place.umq()
            publisher.text("A1\nM1\nhub:publish\nnews\npicture")
            send_fragmented(publisher, 4)
            assert [await one.heard(), await two.heard()] == ["A1\nTt\npicture"] * 2
            await asyncio.wait_for(publisher.frames.get(), PATIENCE)
            assert [await gets_response(each) for each in (publisher, one, two)] == [True] * 3

    run_in_time(run())


def test_spool_file_errors_affect_only_their_receivers() -> None:
    """The folder is missing here; too many open files, which one stuck reader can cause, have the same effect."""

    async def run() -> None:
        server = ServerSettings(port=0, drain_timeout=1.0, spool_directory="/nonexistent")
        async with protected_hub(settings(server=server, limits=SHORT)) as place:
            slow = await umq_callee(place)
            caller, healthy = await place.umq(), await umq_follower(place)
            slow.text("M2\nhub:subscribe\nnews\nt")
            await slow.heard()
            stop_reading(slow)
            connection, number = connection_of(place, 0), 0
            while not connection.outbox.is_above_high_water:
                number += 1
                caller.text(f"M{number}\nstore\n{'x' * 50_000}")
                assert await gets_response(healthy)
            caller.text("A1\nM1\nhub:publish\nnews\npicture")
            caller.binary(b"x" * 50_000)
            assert await gets_response(caller)
            assert await gets_response(healthy)

    run_in_time(run())


def test_exception_inside_the_hub_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        async with protected_hub() as place:
            monkeypatch.setattr(place.server.exchange.hub, "handle", fail)
            peer = await place.peer("/umq")
            peer.text("H1.0.0\n")
            await peer.over()

    run_in_time(run())
    assert any(record.levelno >= logging.ERROR and record.exc_info for record in caplog.records)


def test_peer_that_violated_the_protocol_gets_no_more_calls() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            broken, good, caller = await umq_callee(place), await umq_callee(place), await place.umq()
            stop_reading(broken)  # it does not even answer the close frame
            broken.text("what is this")
            link = connection_of(place, 0).link
            assert await until(lambda: getattr(link, "_closing", True))
            for number in range(4):
                caller.text(f"M{number}\nstore\n")
            for _ in range(4):
                call = await asyncio.wait_for(good.frames.get(), PATIENCE)
                assert isinstance(call, str)
                good.text(f"R{call.partition(chr(10))[0][1:]}\nok")
            assert {await caller.heard() for _ in range(4)} == {f"R{number}\nok" for number in range(4)}

    run_in_time(run())


BROKEN = [
    masked(8, b"x"),
    masked(8, struct.pack(">H", 999)),
    masked(8, struct.pack(">H", 1000) + b"\xff\xfe"),
    masked(3, b"reserved"),
    masked(11, b"reserved"),
    masked(9, b"half a ping", first=0),
    masked(0, b"goes on with nothing"),
    masked(1, b"\xff\xfe"),
    masked(1, b""),
    masked(2, b""),
    b"\x81\x02no",
    b"\x82\xff" + b"\xff" * 8 + bytes(4),
]


@pytest.mark.parametrize("path", ["/umq", "/umq36", "/lrpm"])
def test_broken_frame_ends_only_its_own_connection(path: str) -> None:
    async def run() -> None:
        async def send_broken_frame(place: Place, frame: bytes) -> None:
            loop = asyncio.get_running_loop()
            async with raw_socket(place, path) as sock:
                await loop.sock_sendall(sock, frame)
                while await loop.sock_recv(sock, 4096):
                    pass

        async with protected_hub() as place:
            other = await place.umq()
            await asyncio.gather(*(send_broken_frame(place, frame) for frame in BROKEN))
            assert await gets_response(other)
            assert await until(lambda: len(place.server.connections) == 1)

    run_in_time(run())


def test_close_without_a_code_gets_a_valid_reply() -> None:
    """Browsers send this for `socket.close()`."""

    async def run() -> None:
        async with protected_hub() as place, raw_socket(place, "/umq") as sock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, masked(8, b""))
            assert await loop.sock_recv(sock, 100) in (b"\x88\x00", b"\x88\x02" + struct.pack(">H", 1000))

    run_in_time(run())


# Memory.


def test_pings_of_a_peer_that_reads_nothing_are_bounded() -> None:
    async def run() -> None:
        limits = LimitSettings(max_unread=MIB, max_unread_events=MIB)
        async with protected_hub(settings(limits=limits)) as place, raw_socket(place, "/umq") as sock:
            loop, pings = asyncio.get_running_loop(), masked(9, b"p" * 125) * 500
            (connection,) = place.server.connections
            try:
                for _ in range(200):
                    await asyncio.wait_for(loop.sock_sendall(sock, pings), SOON)
            except (TimeoutError, ConnectionError):
                pass  # the hub pauses reading, or disconnects: both are correct
            assert connection.unsent_bytes() < 2 * MIB

    run_in_time(run())


def test_empty_fragments_are_not_collected() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            peer = await place.peer("/umq")
            peer.ws.send(WSMsgType.TEXT, b"H1.0.0", fin=False)
            for _ in range(20_000):
                peer.ws.send(WSMsgType.CONTINUATION, b"", fin=False)
            (connection,) = place.server.connections
            link = connection.link
            assert isinstance(link, WebSocketLink)
            await until(lambda: link._fragments is not None and len(link._fragments._pieces) > 20_000, SOON)
            assert link._fragments is not None
            assert len(link._fragments._pieces) < 100

    run_in_time(run())


def test_attachments_behind_a_stalled_one_are_bounded_in_memory() -> None:
    async def run() -> int:
        async with served() as (process, port):
            peers = [await connected(f"ws://127.0.0.1:{port}/umq") for _ in range(3)]
            for peer in peers:
                peer.text("H1.0.0\n")
                await peer.heard()
            callee, stalled, other = peers
            callee.text("M1\nhub:register\nstore")
            await callee.heard()
            stalled.text("A1\nM1\nstore\n")
            await callee.heard()
            before = resident(process.pid)
            other.text("A100\nM1\nstore\n")
            for _ in range(100):
                other.binary(b"x" * MIB)
                while other.ws.underlying_transport.get_write_buffer_size() > MIB:  # noqa: ASYNC110  picows has no event for it
                    await asyncio.sleep(0.001)
            assert await gets_response(other)
            after = resident(process.pid)
            for peer in peers:
                peer.leave()
            return after - before

    assert run_in_time(run()) < 48 * MIB


def test_collected_streams_are_bounded_in_memory() -> None:
    async def run() -> int:
        async with served() as (process, port):
            callee, caller = [await connected(f"ws://127.0.0.1:{port}{path}") for path in ("/lrpm", "/umq")]
            callee.text("[2,null,{}]")
            caller.text("H1.0.0\n")
            await callee.heard()
            await caller.heard()
            callee.text('[40,300,"hub.register",{"name":"flow","kind":"server"},{}]')
            await callee.heard()
            before = resident(process.pid)
            part = ",".join(["[]"] * 300_000)
            for number in range(6):
                caller.text(f"M{number}\nflow\n")
                call = json.loads(await callee.heard())
                callee.text(f'[41,{call[1]},[{part}],{{"part":1}}]')
            callee.text('[40,301,"hub.ping",null,{}]')
            while not (await callee.heard()).startswith("[41,301,"):
                pass
            after = resident(process.pid)
            caller.leave()
            callee.leave()
            return after - before

    assert run_in_time(run()) < 64 * MIB


def test_fanout_group_cache_does_not_grow_with_publications() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            follower, publisher = await place.lrpm(), await place.lrpm()
            for number in range(100):
                follower.text(f'[63,{300 + number},"news",{{}}]')
                await follower.heard()
            for number in range(200):
                publisher.text(f'[61,{300 + number},"news",1,{{"exclude_me":true}}]')
                await publisher.heard()
            groups = [cached for _, cached in place.server.exchange._groups._cache.values()]
            assert sum(len(group.unbatched) + len(group.batched) for cached in groups for group in cached) < 5000

    run_in_time(run())


def test_unauthenticated_peer_cannot_fill_the_disk() -> None:
    async def run() -> None:
        async with protected_hub(settings(auth=AuthSettings(anonymous="never"))) as place:
            peer = await place.peer("/umq")
            send_fragmented(peer, 8, end=False)
            spools = place.server._spools
            assert not await until(lambda: spools.used > 2 * MIB, SOON)

    run_in_time(run())


def test_peer_lost_within_a_message_leaves_nothing_on_disk() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            callee, caller = await umq_callee(place), await place.umq()
            caller.text("A1\nM1\nstore\n")
            await callee.heard()
            send_fragmented(caller, 4, end=False)
            spools = place.server._spools
            assert await until(lambda: spools.used >= 3 * MIB)
            caller.leave()
            assert (await callee.heard()).startswith("-\n")
            assert await until(lambda: spools.used == 0)

    run_in_time(run())


def test_stuck_caller_with_large_responses_is_disconnected() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=LimitSettings(max_unread=2 * MIB))) as place:
            stuck, other = await place.lrpm(), await place.umq()
            stop_reading(stuck)
            connection, number = connection_of(place, 0), 300
            while connection in place.server.connections and number < 400:
                stuck.text(f'[40,{number},"hub.echo","{"x" * 500_000}",{{}}]')
                number += 1
                await asyncio.sleep(0.01)
                assert connection.unsent_bytes() < 8 * MIB
            assert connection not in place.server.connections
            assert await gets_response(other)

    run_in_time(run())


def test_many_ended_sessions_leave_no_memory() -> None:
    async def run() -> None:
        async with protected_hub() as place:
            exchange, files = place.server.exchange, open_files()
            hellos = {"/umq": "H1.0.0\n", "/umq36": "H1:", "/lrpm": "[2,null,{}]"}
            for turn in range(8):
                peers = await asyncio.gather(*(place.peer(path) for path in [*hellos] * 12))
                for number, peer in enumerate(peers):
                    if number % 4:
                        peer.text([*hellos.values()][number % 3])
                if turn % 2:
                    await asyncio.sleep(0.02)
                for peer in peers:
                    peer.leave()
            assert await until(lambda: not place.server.connections)
            assert not exchange.participants
            assert not exchange._to_flush
            assert exchange.hub.stats()["sessions"] == 0
            assert exchange.hub.deadline() is None
            assert await until(lambda: open_files() <= files)
            assert place.server._port.connections() == 0

    run_in_time(run())


# Readers without errors.


def test_subscriber_gets_the_number_of_missed_retained_values() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=LimitSettings(max_unread=2 * MIB))) as place:
            publisher, follower = await place.lrpm(), await place.lrpm()
            for number in range(40):
                text = f'[61,{300 + number},"kept.n{number}","{"x" * 500_000}",{{"retain":true}}]'
                publisher.text(text)
                await publisher.heard()
            follower.text('[63,300,"kept.*",{}]')
            assert (await follower.heard()).startswith("[64,300,")
            seen = missed = 0
            while seen + missed < 41:
                if follower.frames.empty():
                    publisher.text('[61,999,"kept.n0",1,{}]')
                event = json.loads(await follower.heard())
                seen += 1
                missed += event[4].get("missed", 0)
            assert seen > 2

    run_in_time(run())


def test_responses_in_transfer_survive_the_shutdown() -> None:
    async def run() -> None:
        async with hub() as place:
            caller = await place.lrpm()
            stop_reading(caller)
            for number in range(12):
                caller.text(f'[40,{300 + number},"hub.echo","{"x" * 900_000}",{{}}]')
            (connection,) = place.server.connections
            assert await until(lambda: connection.outbox.buffered_bytes > 2 * MIB)
            stopping = asyncio.create_task(place.server.stop())
            await asyncio.sleep(0.05)
            resume_reading(caller)
            heard = 0
            while isinstance(frame := await asyncio.wait_for(caller.frames.get(), PATIENCE), str):
                heard += frame.startswith("[41,")
            await stopping
            assert heard == 12

    run_in_time(run())


# Time.


def test_peer_without_hello_is_disconnected_by_timeout() -> None:
    async def run() -> None:
        server = ServerSettings(port=0, drain_timeout=1.0, ping_interval=0.2, ping_timeout=0.2)
        async with protected_hub(settings(server=server, auth=AuthSettings(login_timeout=0.3))) as place:
            peer = await place.peer("/umq")
            while place.server.connections:
                peer.ws.send_pong(b"")  # progress of the attachment, and nothing else
                await asyncio.sleep(0.1)

    run_in_time(run())


def test_attachment_times_out_while_its_source_receives_messages() -> None:
    async def run() -> None:
        async with protected_hub(settings(limits=LimitSettings(attachment_timeout=0.4))) as place:
            callee, source, publisher = await umq_callee(place), await umq_follower(place), await place.umq()
            source.text("A1\nM2\nstore\n")
            assert (await callee.heard()).startswith("A1\n")
            await asyncio.sleep(0.2)
            source.ws.send(WSMsgType.BINARY, b"x" * 20_000, fin=False)  # some progress, and then none
            assert await gets_response(publisher)
            publisher.text("M1\nhub:publish\nnews\n1")
            assert await source.heard() == "Tt\n1"
            assert await asyncio.wait_for(callee.frames.get(), PATIENCE) == "-\ntimed out"

    run_in_time(run())


def test_keepalive_disconnects_only_silent_peers() -> None:
    async def run() -> None:
        server = ServerSettings(port=0, drain_timeout=1.0, ping_interval=0.1, ping_timeout=2.0)
        async with protected_hub(settings(server=server)) as place:
            living = await place.umq()
            async with raw_socket(place, "/umq") as silent:
                await asyncio.get_running_loop().sock_sendall(silent, masked(1, b"H1.0.0\n"))
                assert await until(lambda: len(place.server.connections) == 2)
                assert await until(lambda: len(place.server.connections) == 1)
            assert await gets_response(living)

    run_in_time(run())


# Blocked publishers.


async def block_publishers(place: Place, slow: WirePeer, *publishers: WirePeer) -> None:
    """Publish to a subscriber that is alive but does not read, until all publishers are blocked."""
    connection = connection_of(place, 0)
    stop_reading(slow)
    for number in range(400):
        slow.text("M2\nhub:time\n")
        for publisher in publishers:
            publisher.text(f"M{number}\nhub:publish\nnews\n{'x' * 50_000}")
        await asyncio.sleep(0.01)
        if len(connection._blocked_publishers) == len(publishers):
            return
    raise AssertionError("nobody had to wait")


def test_blocked_publishers_resume_when_the_slow_consumer_is_lost() -> None:
    async def run() -> None:
        async with protected_hub(BLOCKING) as place:
            slow, one, two = await umq_follower(place), await place.umq(), await place.umq()
            third = await place.umq()
            await block_publishers(place, slow, one, two)
            assert await gets_response(third)
            slow.leave()
            assert [await gets_response(one), await gets_response(two)] == [True, True]

    run_in_time(run())


def test_blocked_publisher_is_not_disconnected_by_keepalive() -> None:
    async def run() -> None:
        server = ServerSettings(port=0, drain_timeout=1.0, ping_interval=0.2, ping_timeout=1.2)
        async with protected_hub(replace(BLOCKING, server=server)) as place:
            slow, publisher = await umq_follower(place), await place.umq()
            await block_publishers(place, slow, publisher)
            for _ in range(20):
                slow.text("M2\nhub:time\n")
                await asyncio.sleep(0.1)
            assert len(place.server.connections) == 2

    run_in_time(run())


def test_attachments_of_a_blocked_publisher_do_not_time_out() -> None:
    async def run() -> None:
        limits = replace(SHORT, attachment_timeout=1.0)
        async with protected_hub(replace(BLOCKING, limits=limits)) as place:
            slow, healthy, publisher = await umq_follower(place), await umq_follower(place), await place.umq()
            stop_reading(slow)
            connection, number = connection_of(place, 0), 0
            while not connection._blocked_publishers and number < 400:
                publisher.text(f"A1\nM{number}\nhub:publish\nnews\n{'x' * 50_000}")
                await asyncio.sleep(0.01)
                publisher.binary(b"picture")
                await asyncio.sleep(0.01)
                number += 1
            await asyncio.sleep(2.0)
            resume_reading(slow)
            assert await gets_response(publisher)
            heard = [frame for frame in received_frames(healthy) if not isinstance(frame, str) or frame.startswith("-")]
            assert heard == [b"picture"] * number

    run_in_time(run())


# Authentication.


ALICE = IdentitySettings("alice", token=Secret("alices-token"), secret=Secret("alices-secret"))
GUARDED = AuthSettings(anonymous="never", identity=(ALICE,))


def test_proof_is_valid_for_one_challenge() -> None:
    async def run() -> None:
        async with protected_hub(settings(auth=GUARDED)) as place:
            first, second = await place.peer("/lrpm"), await place.peer("/lrpm")
            first.text('[2,{"identity":"alice"},{}]')
            nonce = json.loads(await first.heard())[1]["nonce"]
            proof = json.dumps([4, {"mac": hmac.new(b"alices-secret", nonce.encode(), "sha256").hexdigest()}, {}])
            first.text(proof)
            assert (await first.heard()).startswith("[2,")
            second.text('[2,{"identity":"alice"},{}]')
            await second.heard()
            second.text(proof)
            assert (await second.heard()).startswith('[1,".err.auth"')
            await second.over()

    run_in_time(run())


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_proxied_client_is_not_loopback(header: str) -> None:
    async def run() -> None:
        async with protected_hub() as place:
            peer = await place.peer("/lrpm", **{header: "192.0.2.1"})
            peer.text("[2,null,{}]")
            assert (await peer.heard()).startswith('[1,".err.auth"')
            await peer.over()

    run_in_time(run())


def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with protected_hub(settings(auth=GUARDED)) as place:
            for token in ("alices-token", "guessed-token"):
                bearer = await place.peer("/umq", Authorization=f"Bearer {token}")
                bearer.text("H1.0.0\n")
                await bearer.heard()
                variable = await place.peer("/umq")
                variable.text("H1.0.0\n")
                await variable.heard()
                variable.text(f"Stoken\n{token}")
                lrpm = await place.peer("/lrpm")
                lrpm.text(f'[2,{{"token":"{token}"}},{{}}]')
                await lrpm.heard()

    caplog.set_level(logging.DEBUG)
    run_in_time(run())
    assert "-token" not in caplog.text


def test_withdrawn_permissions_end_registrations_and_subscriptions() -> None:
    async def run() -> None:
        hub_settings = settings(auth=GUARDED)
        async with protected_hub(hub_settings) as place:
            peer = await place.peer("/lrpm", Authorization="Bearer alices-token")
            for text in ("[2,null,{}]", '[63,300,"news",{}]', '[40,301,"hub.register",{"name":"m"},{}]'):
                peer.text(text)
                await peer.heard()
            poor = replace(ALICE, offer=(), publish=(), subscribe=())
            place.server.reload(replace(hub_settings, auth=replace(GUARDED, identity=(poor,))))
            assert '"closed":true' in await peer.heard()
            peer.text('[61,302,"news",1,{}]')
            assert '"hub.err.denied"' in await peer.heard()
            peer.text('[40,303,"m",null,{}]')
            assert '"hub.err.unavailable"' in await peer.heard()

    run_in_time(run())


def test_session_of_a_removed_token_loses_its_permissions() -> None:
    async def run() -> None:
        hub_settings = settings(auth=GUARDED)
        async with protected_hub(hub_settings) as place:
            peer = await place.peer("/lrpm", Authorization="Bearer alices-token")
            peer.text("[2,null,{}]")
            await peer.heard()
            other = replace(ALICE, token=Secret("another-token"))
            place.server.reload(replace(hub_settings, auth=replace(GUARDED, identity=(other,))))
            peer.text('[61,302,"news",1,{}]')
            assert '"hub.err.denied"' in await peer.heard()

    run_in_time(run())


# A separate process.


def test_hub_with_full_links_uses_no_cpu() -> None:
    async def run() -> float:
        async with served("--set", "limits.max_unread_events=100000") as (process, port):
            follower, publisher = [await connected(f"ws://127.0.0.1:{port}/umq") for _ in range(2)]
            for peer in (follower, publisher):
                peer.text("H1.0.0\n")
                await peer.heard()
            follower.text("M1\nhub:subscribe\nnews\nt")
            await follower.heard()
            stop_reading(follower)
            for _ in range(150):
                publisher.text(f"M1\nhub:publish\nnews\n{'x' * 50_000}")
                await publisher.heard()
            before = cpu_time(process.pid)
            await asyncio.sleep(1.0)
            spent = cpu_time(process.pid) - before
            follower.leave()
            publisher.leave()
            return spent

    assert run_in_time(run()) < 0.3


def test_draining_hub_finishes_open_calls_and_refuses_new_ones() -> None:
    async def run() -> None:
        async with served() as (process, port):
            peer = await connected(f"ws://127.0.0.1:{port}/lrpm")
            peer.text("[2,null,{}]")
            await peer.heard()
            peer.text('[40,300,"hub.register",{"name":"m"},{}]')
            await peer.heard()
            peer.text('[40,301,"m",null,{}]')
            call = json.loads(await peer.heard())
            process.terminate()
            refused, number = "", 400
            while "hub.err.unavailable" not in refused:  # until it has begun to stop
                peer.text(f'[40,{number},"nothing",null,{{}}]')
                refused = await peer.heard()
                number += 1
                await asyncio.sleep(0.02)
            assert "the hub is closing" in refused
            peer.text(f'[41,{call[1]},"late, but there",{{}}]')
            assert await peer.heard() == '[41,301,"late, but there",{}]'
            assert (await peer.heard()).startswith("[1,")
            await peer.over()
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0

    run_in_time(run())
