"""Tests of ZeroMQ links at the port and at the client, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import zmq

from fiveways.errors import Unrepresentable
from fiveways.transports.base import Link
from fiveways.transports.zmq_client import open_zmq
from fiveways.transports.zmq_link import ZmqLimits, ZmqLink, is_generated
from fiveways.transports.zmq_port import ZmqPort
from fiveways.transports.zmq_socket_watcher import Context, Socket
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from tests.support.running import on_both_loops
from tests.support.waiting import until

HOST = "127.0.0.1"
LIMITS = ZmqLimits(linger=0.1)
MESSAGE_COUNT = 10_000


class RecordingReceiver:
    """Receiver that records messages and events."""

    def __init__(self, link: ZmqLink, routing_id: bytes = b"", *, echo: bool = False) -> None:
        self.link = link
        self.routing_id = routing_id
        self.messages: list[bytes] = []
        self.events: list[str] = []
        self.echo = echo

    def received(self, packet: Packet) -> None:
        assert packet.is_text
        self.messages.append(packet.payload)
        if self.echo:
            send_texts(self.link, packet.payload)

    def progressed(self, size: int) -> bool:
        raise AssertionError

    def writable(self) -> None:
        self.events.append("writable")

    def lost(self, reason: str) -> None:
        self.events.append(f"lost: {reason}")


class Large(Blob):
    def __len__(self) -> int:
        return 1

    def read(self, start: int, size: int) -> bytes:
        raise AssertionError


class Hub:
    """Port with its receivers, and a factory for peers."""

    def __init__(self, context: Context, limits: ZmqLimits, refusal: bytes = b"") -> None:
        self.context = context
        self.receivers: list[RecordingReceiver] = []
        self.echo = True
        self.port = ZmqPort(self._accept, limits=limits, refusal=refusal, context=context)
        self.url = ""

    def _accept(self, link: ZmqLink, routing_id: bytes) -> RecordingReceiver:
        self.receivers.append(RecordingReceiver(link, routing_id, echo=self.echo))
        return self.receivers[-1]

    def peer(self, kind: int = zmq.DEALER, routing_id: bytes = b"", **options: int) -> Socket:
        socket = self.context.socket(kind)
        if routing_id:
            socket.setsockopt(zmq.ROUTING_ID, routing_id)
        for name, value in options.items():
            socket.setsockopt(getattr(zmq, name), value)
        socket.connect(self.url)
        return socket


@asynccontextmanager
async def running(limits: ZmqLimits = LIMITS, refusal: bytes = b"") -> AsyncIterator[Hub]:
    context: Context = zmq.Context()
    hub = Hub(context, limits, refusal)
    try:
        host, port = await hub.port.listen(HOST, 0)
        hub.url = f"tcp://{host}:{port}"
        yield hub
    finally:
        await hub.port.close()
        context.destroy(linger=0)


def send_texts(link: Link, *texts: bytes) -> None:
    link.write(link.frames([Packet(text) for text in texts]))


async def fill(link: Link, piece: bytes) -> int:
    """Write until ZeroMQ and the system accept no more; return the number of writes."""
    written = full_for = 0
    while full_for < 50:
        full_for = full_for + 1 if link.is_full else 0
        if not link.is_full:
            send_texts(link, piece)
            written += 1
        await asyncio.sleep(0.01 if link.is_full else 0)
    return written


async def listen_again(hub: Hub, previous: Hub) -> None:
    """Listen at the address of a closed port as soon as the system permits it."""
    port = int(previous.url.rpartition(":")[2])
    async with asyncio.timeout(60):
        while True:
            try:
                await hub.port.listen(HOST, port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


async def receive_parts(socket: Socket, seconds: float = 60.0) -> list[bytes]:
    """Return all parts of the next message."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                await asyncio.sleep(0.001)


@on_both_loops
async def test_dealer_and_req_get_responses_in_their_own_shape() -> None:
    async with running() as hub:
        dealer, req = hub.peer(), hub.peer(zmq.REQ)
        for text in (b"{}", b"", b"[1]"):
            dealer.send(text)
            req.send(text)
            assert await receive_parts(dealer) == [text]
            assert await receive_parts(req) == [text]
        like_req = hub.peer()
        like_req.send_multipart([b"", b"x"])
        assert await receive_parts(like_req) == [b"", b"x"]
        assert sorted(receiver.link.is_lockstep for receiver in hub.receivers) == [False, True, True]
        assert hub.port.connections() == 3


@on_both_loops
async def test_link_has_remote_and_routing_id() -> None:
    async with running() as hub:
        with_id, without_id = hub.peer(routing_id=b"printer"), hub.peer()
        with_id.send(b"a")
        await receive_parts(with_id)
        without_id.send(b"a")
        await receive_parts(without_id)
        first, second = (receiver.link for receiver in hub.receivers)
        assert (first.transport, first.remote, first.is_loopback) == ("zmq", "127.0.0.1 as printer", True)
        assert second.remote.startswith("127.0.0.1 as 0x00")
        assert [is_generated(receiver.routing_id) for receiver in hub.receivers] == [False, True]
        assert hub.receivers[0].routing_id == b"printer"


@on_both_loops
async def test_messages_keep_their_order_in_both_directions() -> None:
    texts = [b"%d" % number for number in range(MESSAGE_COUNT)]
    async with running() as hub:
        receivers: list[RecordingReceiver] = []

        def receive(link: ZmqLink) -> RecordingReceiver:
            receivers.append(RecordingReceiver(link))
            return receivers[0]

        link = await open_zmq(hub.url, receive, limits=LIMITS, context=hub.context)
        send_texts(link, *texts)
        await until(lambda: len(receivers[0].messages) == MESSAGE_COUNT)
        assert hub.receivers[0].messages == texts
        assert receivers[0].messages == texts
        assert link.unsent_bytes() == hub.receivers[0].link.unsent_bytes() == 0
        link.close()
        await until(lambda: receivers[0].events == ["lost: "])


@on_both_loops
async def test_flood_does_not_block_the_loop() -> None:
    async with running() as hub:
        hub.echo = False
        flood, iterations = hub.peer(SNDHWM=0), 0
        for _ in range(MESSAGE_COUNT):
            flood.send(b"x")
        await until(lambda: hub.receivers)
        while len(hub.receivers[0].messages) < MESSAGE_COUNT:
            await asyncio.sleep(0)
            iterations += 1
        assert iterations > 20


@on_both_loops
async def test_dead_peer_is_lost_at_the_next_write() -> None:
    async with running() as hub:
        peer, other = hub.peer(), hub.peer()
        for socket in (peer, other):
            socket.send(b"hello")
            await receive_parts(socket)
        peer.close(0)
        link = hub.receivers[0].link

        def is_lost() -> bool:
            send_texts(link, b"x" * 100)
            return bool(hub.receivers[0].events)

        await until(is_lost)
        assert hub.receivers[0].events == ["lost: the peer is not connected"]
        assert hub.port.connections() == 1
        send_texts(link, b"nothing comes of it")
        other.send(b"still there")
        assert await receive_parts(other) == [b"still there"]


@on_both_loops
async def test_stopped_reader_costs_bounded_memory_and_delays_no_other_peer() -> None:
    limits = replace(LIMITS, high_water=100_000, max_waiting=1_000_000, queue=8)
    async with running(limits) as hub:
        stopped, other = hub.peer(RCVHWM=4, RCVBUF=8192), hub.peer()
        stopped.send(b"hello")
        await receive_parts(stopped)
        other.send(b"hello")
        await receive_parts(other)
        receiver = hub.receivers[0]
        link, piece = receiver.link, b"x" * 20_000
        written = await fill(link, piece)
        waiting = link.unsent_bytes()
        assert 25_000 < waiting < 130_000
        receiver.events.clear()
        for number in range(100):
            other.send(b"%d" % number)
            assert await receive_parts(other) == [b"%d" % number]
        assert (receiver.events, link.is_full, link.unsent_bytes()) == ([], True, waiting)
        for _ in range(written):
            assert await receive_parts(stopped) == [piece]
        await until(lambda: receiver.events == ["writable"])
        assert not link.is_full
        await until(lambda: link.unsent_bytes() == 0)


@on_both_loops
async def test_writer_above_max_waiting_is_closed() -> None:
    limits = replace(LIMITS, high_water=10_000, max_waiting=200_000, queue=2)
    async with running(limits) as hub:
        stopped = hub.peer(RCVHWM=1, RCVBUF=8192)
        stopped.send(b"hello")
        await receive_parts(stopped)
        receiver = hub.receivers[0]

        def is_lost() -> bool:
            send_texts(receiver.link, *[b"x" * 20_000] * 5)
            return receiver.events[-1:] not in ([], ["writable"])

        await until(is_lost)
        assert receiver.events[-1:] == ["lost: the peer does not read what was written to it"]
        assert receiver.link.unsent_bytes() == 0


@on_both_loops
async def test_messages_received_while_paused_are_held_up_to_a_limit() -> None:
    async with running(replace(LIMITS, max_held=640)) as hub:
        hub.echo = False
        peer, other = hub.peer(), hub.peer()
        peer.send(b"first")
        await until(lambda: hub.receivers)
        receiver = hub.receivers[0]
        receiver.link.pause_reading()
        for number in range(20):
            peer.send(b"%02d" % number)
        await until(lambda: receiver.link.dropped == 11)
        other.send(b"read meanwhile")
        await until(lambda: len(hub.receivers) == 2 and hub.receivers[1].messages)
        assert receiver.messages == [b"first"]
        receiver.link.resume_reading()
        await until(lambda: len(receiver.messages) == 10)
        peer.send(b"last")
        await until(lambda: len(receiver.messages) == 11)
        assert receiver.messages == [b"first", *(b"%02d" % number for number in range(9)), b"last"]


@on_both_loops
async def test_too_large_message_is_truncated_or_rejected() -> None:
    async with running(replace(LIMITS, max_text=100, max_frame=1000)) as hub:
        peer, other = hub.peer(), hub.peer()
        for size, comes in ((100, 100), (101, 101), (1000, 101)):
            peer.send(b"x" * size)
            assert await receive_parts(peer) == [b"x" * comes]
        other.send(b"hello")
        assert await receive_parts(other) == [b"hello"]
        peer.send(b"x" * 1001)
        with pytest.raises(TimeoutError):
            await receive_parts(peer, 0.2)
        other.send(b"unharmed")
        assert await receive_parts(other) == [b"unharmed"]
        assert sum(len(receiver.messages) for receiver in hub.receivers) == 5


@on_both_loops
async def test_malformed_messages_are_skipped() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send_multipart([b"a", b"b"])
        peer.send_multipart([b"", b"", b"b"])
        peer.send_multipart([b"x"] * 1000)
        peer.send(b"good")
        assert await receive_parts(peer) == [b"good"]
        assert hub.port.malformed == 3


@on_both_loops
async def test_idle_peer_is_lost() -> None:
    async with running(replace(LIMITS, idle=1.0)) as hub:
        silent, busy = hub.peer(), hub.peer()
        started_at = asyncio.get_running_loop().time()
        silent.send(b"hello")
        await receive_parts(silent)
        while not hub.receivers[0].events:
            busy.send(b"here")
            await receive_parts(busy)
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - started_at >= 1.0  # not earlier
        assert hub.receivers[0].events == ["lost: idle"]
        assert hub.receivers[1].events == []
        silent.send(b"again")
        assert await receive_parts(silent) == [b"again"]
        assert len(hub.receivers) == 3


@on_both_loops
async def test_chosen_routing_id_survives_a_connection() -> None:
    async with running() as hub:
        for number in range(3):
            peer = hub.peer(routing_id=b"me")
            peer.send(b"%d" % number)
            assert await receive_parts(peer) == [b"%d" % number]
            peer.close(0)
        assert {receiver.routing_id for receiver in hub.receivers} == {b"me"}
        assert [text for receiver in hub.receivers for text in receiver.messages] == [b"0", b"1", b"2"]


@on_both_loops
async def test_latest_peer_with_a_routing_id_gets_the_responses() -> None:
    async with running() as hub:
        old = hub.peer(routing_id=b"me")
        old.send(b"old")
        assert await receive_parts(old) == [b"old"]
        new = hub.peer(routing_id=b"me")
        new.send(b"new")
        assert await receive_parts(new) == [b"new"]
        send_texts(hub.receivers[0].link, b"for the new one")
        assert await receive_parts(new) == [b"for the new one"]
        assert len(hub.receivers) == 1
        with pytest.raises(TimeoutError):
            await receive_parts(old, 0.1)


@on_both_loops
async def test_peer_above_max_links_is_refused() -> None:
    async with running(replace(LIMITS, max_links=2), refusal=b"full") as hub:
        peers = [hub.peer(), hub.peer(zmq.REQ), hub.peer(zmq.REQ)]
        answers = []
        for peer in peers:
            peer.send(b"hello")
            answers.append(await receive_parts(peer))
        assert answers == [[b"hello"], [b"hello"], [b"full"]]
        assert (hub.port.refused, hub.port.connections()) == (1, 2)
        hub.receivers[0].link.abort()
        peers[2].send(b"now")
        assert await receive_parts(peers[2]) == [b"now"]


@on_both_loops
async def test_closed_link_is_lost_after_written_messages() -> None:
    async with running(replace(LIMITS, queue=2)) as hub:
        hub.echo = False
        peer = hub.peer(RCVHWM=2)
        peer.send(b"hello")
        await until(lambda: hub.receivers)
        receiver = hub.receivers[0]
        texts = [b"%d" % number for number in range(300)]
        send_texts(receiver.link, *texts)
        receiver.link.close(1000, "enough")
        receiver.link.close()
        send_texts(receiver.link, b"too late")
        assert [(await receive_parts(peer))[0] for _ in texts] == texts
        await until(lambda: receiver.events == ["lost: enough"])
        assert hub.port.connections() == 0


@on_both_loops
async def test_ping_marks_a_connected_link_as_alive() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await receive_parts(peer)
        link = hub.receivers[0].link
        link.is_alive = False
        link.ping()
        assert link.is_alive  # the port checks for idle peers
        link.abort()
        link.is_alive = False
        link.ping()
        assert not link.is_alive


@on_both_loops
async def test_fragments_and_blobs_are_unrepresentable() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await receive_parts(peer)
        link = hub.receivers[0].link
        with pytest.raises(Unrepresentable):
            link.frame_piece(b"", first=True, last=True)
        with pytest.raises(Unrepresentable):
            link.frame(Packet(b"", is_text=False, blob=Large()))


@on_both_loops
async def test_port_in_use_is_an_os_error() -> None:
    async with running() as hub:
        second = ZmqPort(lambda link, _: RecordingReceiver(link), limits=LIMITS, context=hub.context)
        with pytest.raises(OSError, match="cannot listen on"):
            await second.listen(HOST, int(hub.url.rpartition(":")[2]))
        await second.close()
        with pytest.raises(OSError, match="already open"):
            await hub.port.listen(HOST, 0)


@on_both_loops
async def test_closed_port_loses_all_links() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await receive_parts(peer)
        send_texts(hub.receivers[0].link, b"goodbye")
        await hub.port.close()
        await hub.port.close()
        assert hub.receivers[0].events == ["lost: the port is closed"]
        assert await receive_parts(peer) == [b"goodbye"]


@on_both_loops
async def test_raising_receiver_does_not_affect_other_peers(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as hub:
        peer, other = hub.peer(), hub.peer()
        peer.send(b"hello")
        await receive_parts(peer)
        hub.receivers[0].progressed = hub.receivers[0].received = None  # type: ignore[assignment, method-assign]
        peer.send(b"trouble")
        other.send(b"hello")
        assert await receive_parts(other) == [b"hello"]
        await until(lambda: "cannot handle a ZeroMQ message" in caplog.text)


@on_both_loops
async def test_failed_connection_is_an_error() -> None:
    context: Context = zmq.Context()
    events: list[RecordingReceiver] = []

    def receive(link: ZmqLink) -> RecordingReceiver:
        events.append(RecordingReceiver(link))
        return events[-1]

    try:
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.1 seconds"):
            await open_zmq("tcp://127.0.0.1:9", receive, timeout=0.1, context=context)
        with pytest.raises(ConnectionError, match="cannot connect to"):
            await open_zmq("tcp://127.0.0.1:port", receive, timeout=0.1, context=context)
        with pytest.raises(ConnectionError, match="routing id"):
            await open_zmq("tcp://127.0.0.1:9", receive, routing_id=b"\0x", context=context)
        await asyncio.sleep(0)
        assert all(receiver.events[0].startswith("lost: ") for receiver in events)
    finally:
        context.destroy(linger=0)


@on_both_loops
async def test_connect_may_be_cancelled() -> None:
    context: Context = zmq.Context()
    receivers: list[RecordingReceiver] = []

    def receive(link: ZmqLink) -> RecordingReceiver:
        receivers.append(RecordingReceiver(link))
        return receivers[-1]

    try:
        opening = asyncio.create_task(open_zmq("tcp://127.0.0.1:9", receive, context=context))
        await until(lambda: receivers)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: receivers[0].events == ["lost: "])
    finally:
        context.destroy(linger=0)


@on_both_loops
async def test_disconnected_client_is_full_and_sends_after_reconnect() -> None:
    async with running() as hub:
        receivers: list[RecordingReceiver] = []

        def receive(link: ZmqLink) -> RecordingReceiver:
            receivers.append(RecordingReceiver(link))
            return receivers[-1]

        limits = replace(LIMITS, queue=4, high_water=1000)
        link = await open_zmq(hub.url, receive, routing_id=b"me", limits=limits, context=hub.context)
        await hub.port.close()
        await until(lambda: not link.is_connected)
        texts = [b"%d" % number * 10 for number in range(100)]
        send_texts(link, *texts)
        assert link.is_full
        restarted = Hub(hub.context, LIMITS)
        await listen_again(restarted, hub)
        await until(lambda: len(receivers[0].messages) == 100)
        assert (receivers[0].messages, receivers[0].events) == (texts, ["writable"])
        link.close()
        await restarted.port.close()


@on_both_loops
async def test_client_reconnects_to_a_restarted_port() -> None:
    async with running() as hub:
        receivers: list[RecordingReceiver] = []

        def receive(link: ZmqLink) -> RecordingReceiver:
            receivers.append(RecordingReceiver(link))
            return receivers[-1]

        url = hub.url.replace("tcp", "zmq")
        reconnecting = await open_zmq(url, receive, routing_id=b"me", limits=LIMITS, context=hub.context)
        single_use = await open_zmq(url, receive, limits=LIMITS, reconnects=False, context=hub.context)
        send_texts(reconnecting, b"a")
        await until(lambda: receivers[0].messages == [b"a"])
        await hub.port.close()
        await until(lambda: not reconnecting.is_connected and receivers[1].events == ["lost: the connection is lost"])
        assert not single_use.is_connected
        send_texts(reconnecting, b"b")
        restarted = Hub(hub.context, LIMITS)
        await listen_again(restarted, hub)
        await until(lambda: receivers[0].messages == [b"a", b"b"])
        assert reconnecting.is_connected
        assert (restarted.receivers[0].routing_id, receivers[0].events) == (b"me", [])
        reconnecting.abort()
        await restarted.port.close()
        await until(lambda: receivers[0].events == ["lost: "])


@on_both_loops
async def test_paused_client_causes_backpressure_at_the_port() -> None:
    async with running(replace(LIMITS, queue=4, high_water=100_000, max_waiting=1 << 30)) as hub:
        hub.echo = False
        receivers: list[RecordingReceiver] = []

        def receive(link: ZmqLink) -> RecordingReceiver:
            receivers.append(RecordingReceiver(link))
            return receivers[-1]

        link = await open_zmq(hub.url, receive, limits=replace(LIMITS, queue=4), context=hub.context)
        send_texts(link, b"hello")
        await until(lambda: hub.receivers)
        link.pause_reading()
        port_link = hub.receivers[0].link
        written = await fill(port_link, b"x" * 50_000)
        hub.receivers[0].events.clear()
        send_texts(link, b"still writes")
        await until(lambda: hub.receivers[0].messages == [b"hello", b"still writes"])
        assert receivers[0].messages == []
        link.resume_reading()
        await until(lambda: len(receivers[0].messages) == written)
        assert hub.receivers[0].events == ["writable"]
        link.close()
        await asyncio.sleep(0)
