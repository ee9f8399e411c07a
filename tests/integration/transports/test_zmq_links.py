"""ZeroMQ links, at the port and at the client, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
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
from tests.support.event_loops import on_both_loops

HOST = "127.0.0.1"
LIMITS = ZmqLimits(linger=0.1)
MANY = 10_000


class Ear:
    """Notes what a link tells."""

    def __init__(self, link: ZmqLink, routing_id: bytes = b"", *, echo: bool = False) -> None:
        self.link = link
        self.routing_id = routing_id
        self.heard: list[bytes] = []
        self.told: list[str] = []
        self.echo = echo

    def received(self, packet: Packet) -> None:
        assert packet.is_text
        self.heard.append(packet.payload)
        if self.echo:
            say(self.link, packet.payload)

    def progressed(self, size: int) -> bool:
        raise AssertionError

    def writable(self) -> None:
        self.told.append("writable")

    def lost(self, reason: str) -> None:
        self.told.append(f"lost: {reason}")


class Large(Blob):
    def __len__(self) -> int:
        return 1

    def read(self, start: int, size: int) -> bytes:
        raise AssertionError


class Hub:
    """A port, who has come to it, and sockets of peers."""

    def __init__(self, context: Context, limits: ZmqLimits, refusal: bytes = b"") -> None:
        self.context = context
        self.ears: list[Ear] = []
        self.echo = True
        self.port = ZmqPort(self._accept, limits=limits, refusal=refusal, context=context)
        self.url = ""

    def _accept(self, link: ZmqLink, routing_id: bytes) -> Ear:
        self.ears.append(Ear(link, routing_id, echo=self.echo))
        return self.ears[-1]

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


def say(link: Link, *texts: bytes) -> None:
    link.write(link.frames([Packet(text) for text in texts]))


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  sockets of others set no events
            await asyncio.sleep(0.002)


async def fill(link: Link, piece: bytes) -> int:
    """Write until neither ZeroMQ nor the system takes any more, and return how often."""
    written = full_for = 0
    while full_for < 50:
        full_for = full_for + 1 if link.is_full else 0
        if not link.is_full:
            say(link, piece)
            written += 1
        await asyncio.sleep(0.01 if link.is_full else 0)
    return written


async def listen_again(hub: Hub, former: Hub) -> None:
    """Listen where another did, as soon as the system lets us."""
    port = int(former.url.rpartition(":")[2])
    async with asyncio.timeout(60):
        while True:
            try:
                await hub.port.listen(HOST, port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


async def heard(socket: Socket, seconds: float = 60.0) -> list[bytes]:
    """Return the next message, parts and all."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                await asyncio.sleep(0.001)


@on_both_loops
async def test_a_dealer_and_a_req_hear_their_echo_in_their_own_shape() -> None:
    async with running() as hub:
        dealer, req = hub.peer(), hub.peer(zmq.REQ)
        for text in (b"{}", b"", b"[1]"):
            dealer.send(text)
            req.send(text)
            assert await heard(dealer) == [text]
            assert await heard(req) == [text]
        like_req = hub.peer()
        like_req.send_multipart([b"", b"x"])
        assert await heard(like_req) == [b"", b"x"]
        assert sorted(ear.link.is_lockstep for ear in hub.ears) == [False, True, True]
        assert hub.port.connections() == 3


@on_both_loops
async def test_a_link_says_who_it_is() -> None:
    async with running() as hub:
        named, nameless = hub.peer(routing_id=b"printer"), hub.peer()
        named.send(b"a")
        await heard(named)
        nameless.send(b"a")
        await heard(nameless)
        first, second = (ear.link for ear in hub.ears)
        assert (first.transport, first.remote, first.is_loopback) == ("zmq", "127.0.0.1 as printer", True)
        assert second.remote.startswith("127.0.0.1 as 0x00")
        assert [is_generated(ear.routing_id) for ear in hub.ears] == [False, True]
        assert hub.ears[0].routing_id == b"printer"


@on_both_loops
async def test_many_messages_keep_their_order_both_ways() -> None:
    texts = [b"%d" % number for number in range(MANY)]
    async with running() as hub:
        ears: list[Ear] = []

        def receive(link: ZmqLink) -> Ear:
            ears.append(Ear(link))
            return ears[0]

        link = await open_zmq(hub.url, receive, limits=LIMITS, context=hub.context)
        say(link, *texts)
        await until(lambda: len(ears[0].heard) == MANY)
        assert hub.ears[0].heard == texts
        assert ears[0].heard == texts
        assert link.unsent_bytes() == hub.ears[0].link.unsent_bytes() == 0
        link.close()
        await until(lambda: ears[0].told == ["lost: "])


@on_both_loops
async def test_others_have_their_turn_while_much_is_read() -> None:
    async with running() as hub:
        hub.echo = False
        flood, passes = hub.peer(SNDHWM=0), 0
        for _ in range(MANY):
            flood.send(b"x")
        await until(lambda: hub.ears)
        while len(hub.ears[0].heard) < MANY:
            await asyncio.sleep(0)
            passes += 1
        assert passes > 20


@on_both_loops
async def test_a_peer_that_died_is_lost_when_it_is_written_to() -> None:
    async with running() as hub:
        peer, other = hub.peer(), hub.peer()
        for each in (peer, other):
            each.send(b"hello")
            await heard(each)
        peer.close(0)
        link = hub.ears[0].link

        def is_lost() -> bool:
            say(link, b"x" * 100)
            return bool(hub.ears[0].told)

        await until(is_lost)
        assert hub.ears[0].told == ["lost: the peer is not connected"]
        assert hub.port.connections() == 1
        say(link, b"nothing comes of it")
        other.send(b"still there")
        assert await heard(other) == [b"still there"]


@on_both_loops
async def test_a_reader_that_stops_costs_bounded_memory_and_nobody_else_anything() -> None:
    limits = replace(LIMITS, high_water=100_000, max_waiting=1_000_000, queue=8)
    async with running(limits) as hub:
        stopped, other = hub.peer(RCVHWM=4, RCVBUF=8192), hub.peer()
        stopped.send(b"hello")
        await heard(stopped)
        other.send(b"hello")
        await heard(other)
        ear = hub.ears[0]
        link, piece = ear.link, b"x" * 20_000
        written = await fill(link, piece)
        waiting = link.unsent_bytes()
        assert 25_000 < waiting < 130_000
        ear.told.clear()
        for number in range(100):
            other.send(b"%d" % number)
            assert await heard(other) == [b"%d" % number]
        assert (ear.told, link.is_full, link.unsent_bytes()) == ([], True, waiting)
        for _ in range(written):
            assert await heard(stopped) == [piece]
        await until(lambda: ear.told == ["writable"])
        assert not link.is_full
        await until(lambda: link.unsent_bytes() == 0)


@on_both_loops
async def test_a_writer_that_goes_on_is_cut_off() -> None:
    limits = replace(LIMITS, high_water=10_000, max_waiting=200_000, queue=2)
    async with running(limits) as hub:
        stopped = hub.peer(RCVHWM=1, RCVBUF=8192)
        stopped.send(b"hello")
        await heard(stopped)
        ear = hub.ears[0]

        def is_lost() -> bool:
            say(ear.link, *[b"x" * 20_000] * 5)
            return ear.told[-1:] not in ([], ["writable"])

        await until(is_lost)
        assert ear.told[-1:] == ["lost: the peer does not read what was written to it"]
        assert ear.link.unsent_bytes() == 0


@on_both_loops
async def test_what_comes_while_nobody_reads_is_held_within_bounds() -> None:
    async with running(replace(LIMITS, max_held=640)) as hub:
        hub.echo = False
        peer, other = hub.peer(), hub.peer()
        peer.send(b"first")
        await until(lambda: hub.ears)
        ear = hub.ears[0]
        ear.link.pause_reading()
        for number in range(20):
            peer.send(b"%02d" % number)
        await until(lambda: ear.link.dropped == 11)
        other.send(b"read meanwhile")
        await until(lambda: len(hub.ears) == 2 and hub.ears[1].heard)
        assert ear.heard == [b"first"]
        ear.link.resume_reading()
        await until(lambda: len(ear.heard) == 10)
        peer.send(b"last")
        await until(lambda: len(ear.heard) == 11)
        assert ear.heard == [b"first", *(b"%02d" % number for number in range(9)), b"last"]


@on_both_loops
async def test_a_message_that_is_too_large_is_cut_or_not_taken() -> None:
    async with running(replace(LIMITS, max_text=100, max_frame=1000)) as hub:
        peer, other = hub.peer(), hub.peer()
        for size, comes in ((100, 100), (101, 101), (1000, 101)):
            peer.send(b"x" * size)
            assert await heard(peer) == [b"x" * comes]
        other.send(b"hello")
        assert await heard(other) == [b"hello"]
        peer.send(b"x" * 1001)
        with pytest.raises(TimeoutError):
            await heard(peer, 0.2)
        other.send(b"unharmed")
        assert await heard(other) == [b"unharmed"]
        assert sum(len(ear.heard) for ear in hub.ears) == 5


@on_both_loops
async def test_strange_shapes_are_skipped() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send_multipart([b"a", b"b"])
        peer.send_multipart([b"", b"", b"b"])
        peer.send_multipart([b"x"] * 1000)
        peer.send(b"good")
        assert await heard(peer) == [b"good"]
        assert hub.port.malformed == 3


@on_both_loops
async def test_the_silent_are_lost() -> None:
    async with running(replace(LIMITS, idle=1.0)) as hub:
        silent, busy = hub.peer(), hub.peer()
        began = asyncio.get_running_loop().time()
        silent.send(b"hello")
        await heard(silent)
        while not hub.ears[0].told:
            busy.send(b"here")
            await heard(busy)
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began >= 1.0  # and no sooner
        assert hub.ears[0].told == ["lost: idle"]
        assert hub.ears[1].told == []
        silent.send(b"again")
        assert await heard(silent) == [b"again"]
        assert len(hub.ears) == 3


@on_both_loops
async def test_a_chosen_routing_id_outlives_a_connection() -> None:
    async with running() as hub:
        for number in range(3):
            peer = hub.peer(routing_id=b"me")
            peer.send(b"%d" % number)
            assert await heard(peer) == [b"%d" % number]
            peer.close(0)
        assert {ear.routing_id for ear in hub.ears} == {b"me"}
        assert [text for ear in hub.ears for text in ear.heard] == [b"0", b"1", b"2"]


@on_both_loops
async def test_the_latest_with_a_routing_id_is_the_one_that_is_answered() -> None:
    async with running() as hub:
        old = hub.peer(routing_id=b"me")
        old.send(b"old")
        assert await heard(old) == [b"old"]
        new = hub.peer(routing_id=b"me")
        new.send(b"new")
        assert await heard(new) == [b"new"]
        say(hub.ears[0].link, b"for the new one")
        assert await heard(new) == [b"for the new one"]
        assert len(hub.ears) == 1
        with pytest.raises(TimeoutError):
            await heard(old, 0.1)


@on_both_loops
async def test_there_is_room_for_so_many() -> None:
    async with running(replace(LIMITS, max_links=2), refusal=b"full") as hub:
        peers = [hub.peer(), hub.peer(zmq.REQ), hub.peer(zmq.REQ)]
        answers = []
        for peer in peers:
            peer.send(b"hello")
            answers.append(await heard(peer))
        assert answers == [[b"hello"], [b"hello"], [b"full"]]
        assert (hub.port.refused, hub.port.connections()) == (1, 2)
        hub.ears[0].link.abort()
        peers[2].send(b"now")
        assert await heard(peers[2]) == [b"now"]


@on_both_loops
async def test_a_closed_link_is_lost_after_what_was_written() -> None:
    async with running(replace(LIMITS, queue=2)) as hub:
        hub.echo = False
        peer = hub.peer(RCVHWM=2)
        peer.send(b"hello")
        await until(lambda: hub.ears)
        ear = hub.ears[0]
        texts = [b"%d" % number for number in range(300)]
        say(ear.link, *texts)
        ear.link.close(1000, "enough")
        ear.link.close()
        say(ear.link, b"too late")
        assert [(await heard(peer))[0] for _ in texts] == texts
        await until(lambda: ear.told == ["lost: enough"])
        assert hub.port.connections() == 0


@on_both_loops
async def test_a_link_that_is_not_lost_answers_a_ping_by_itself() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await heard(peer)
        link = hub.ears[0].link
        link.is_alive = False
        link.ping()
        assert link.is_alive  # the port knows the silent
        link.abort()
        link.is_alive = False
        link.ping()
        assert not link.is_alive


@on_both_loops
async def test_pieces_and_blobs_cannot_go_this_way() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await heard(peer)
        link = hub.ears[0].link
        with pytest.raises(Unrepresentable):
            link.frame_piece(b"", first=True, last=True)
        with pytest.raises(Unrepresentable):
            link.frame(Packet(b"", is_text=False, blob=Large()))


@on_both_loops
async def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    async with running() as hub:
        second = ZmqPort(lambda link, _: Ear(link), limits=LIMITS, context=hub.context)
        with pytest.raises(OSError, match="cannot listen on"):
            await second.listen(HOST, int(hub.url.rpartition(":")[2]))
        await second.close()
        with pytest.raises(OSError, match="open already"):
            await hub.port.listen(HOST, 0)


@on_both_loops
async def test_closing_the_port_loses_all() -> None:
    async with running() as hub:
        peer = hub.peer()
        peer.send(b"hello")
        await heard(peer)
        say(hub.ears[0].link, b"goodbye")
        await hub.port.close()
        await hub.port.close()
        assert hub.ears[0].told == ["lost: the port is closed"]
        assert await heard(peer) == [b"goodbye"]


@on_both_loops
async def test_what_a_receiver_raises_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as hub:
        peer, other = hub.peer(), hub.peer()
        peer.send(b"hello")
        await heard(peer)
        hub.ears[0].progressed = hub.ears[0].received = None  # type: ignore[assignment, method-assign]
        peer.send(b"trouble")
        other.send(b"hello")
        assert await heard(other) == [b"hello"]
        await until(lambda: "could not be dealt with" in caplog.text)


@on_both_loops
async def test_a_client_that_nobody_answers_says_so() -> None:
    context: Context = zmq.Context()
    told: list[Ear] = []

    def receive(link: ZmqLink) -> Ear:
        told.append(Ear(link))
        return told[-1]

    try:
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.1 seconds"):
            await open_zmq("tcp://127.0.0.1:9", receive, timeout=0.1, context=context)
        with pytest.raises(ConnectionError, match="cannot connect to"):
            await open_zmq("tcp://127.0.0.1:port", receive, timeout=0.1, context=context)
        with pytest.raises(ConnectionError, match="routing id"):
            await open_zmq("tcp://127.0.0.1:9", receive, routing_id=b"\0x", context=context)
        await asyncio.sleep(0)
        assert all(ear.told[0].startswith("lost: ") for ear in told)
    finally:
        context.destroy(linger=0)


@on_both_loops
async def test_a_client_may_give_up_waiting_for_a_connection() -> None:
    context: Context = zmq.Context()
    ears: list[Ear] = []

    def receive(link: ZmqLink) -> Ear:
        ears.append(Ear(link))
        return ears[-1]

    try:
        opening = asyncio.create_task(open_zmq("tcp://127.0.0.1:9", receive, context=context))
        await until(lambda: ears)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: ears[0].told == ["lost: "])
    finally:
        context.destroy(linger=0)


@on_both_loops
async def test_a_client_that_says_too_much_to_nobody_is_full_and_says_it_later() -> None:
    async with running() as hub:
        ears: list[Ear] = []

        def receive(link: ZmqLink) -> Ear:
            ears.append(Ear(link))
            return ears[-1]

        limits = replace(LIMITS, queue=4, high_water=1000)
        link = await open_zmq(hub.url, receive, routing_id=b"me", limits=limits, context=hub.context)
        await hub.port.close()
        await until(lambda: not link.is_connected)
        texts = [b"%d" % number * 10 for number in range(100)]
        say(link, *texts)
        assert link.is_full
        again = Hub(hub.context, LIMITS)
        await listen_again(again, hub)
        await until(lambda: len(ears[0].heard) == 100)
        assert (ears[0].heard, ears[0].told) == (texts, ["writable"])
        link.close()
        await again.port.close()


@on_both_loops
async def test_a_client_goes_on_when_the_port_comes_back() -> None:
    async with running() as hub:
        ears: list[Ear] = []

        def receive(link: ZmqLink) -> Ear:
            ears.append(Ear(link))
            return ears[-1]

        url = hub.url.replace("tcp", "zmq")
        faithful = await open_zmq(url, receive, routing_id=b"me", limits=LIMITS, context=hub.context)
        fickle = await open_zmq(url, receive, limits=LIMITS, reconnects=False, context=hub.context)
        say(faithful, b"a")
        await until(lambda: ears[0].heard == [b"a"])
        await hub.port.close()
        await until(lambda: not faithful.is_connected and ears[1].told == ["lost: the connection is lost"])
        assert not fickle.is_connected
        say(faithful, b"b")
        again = Hub(hub.context, LIMITS)
        await listen_again(again, hub)
        await until(lambda: ears[0].heard == [b"a", b"b"])
        assert faithful.is_connected
        assert (again.ears[0].routing_id, ears[0].told) == (b"me", [])
        faithful.abort()
        await again.port.close()
        await until(lambda: ears[0].told == ["lost: "])


@on_both_loops
async def test_a_client_that_does_not_read_lets_the_port_wait() -> None:
    async with running(replace(LIMITS, queue=4, high_water=100_000, max_waiting=1 << 30)) as hub:
        hub.echo = False
        ears: list[Ear] = []

        def receive(link: ZmqLink) -> Ear:
            ears.append(Ear(link))
            return ears[-1]

        link = await open_zmq(hub.url, receive, limits=replace(LIMITS, queue=4), context=hub.context)
        say(link, b"hello")
        await until(lambda: hub.ears)
        link.pause_reading()
        there = hub.ears[0].link
        written = await fill(there, b"x" * 50_000)
        hub.ears[0].told.clear()
        say(link, b"still writes")
        await until(lambda: hub.ears[0].heard == [b"hello", b"still writes"])
        assert ears[0].heard == []
        link.resume_reading()
        await until(lambda: len(ears[0].heard) == written)
        assert hub.ears[0].told == ["writable"]
        link.close()
        await asyncio.sleep(0)
