"""Tests of in-process links."""

import asyncio

import pytest

from fiveways.transports import memory
from fiveways.transports.base import Link
from fiveways.transports.memory import MemoryLink, link_pair
from fiveways.transports.spool import DiskSpools
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from tests.support.running import on_both_loops


class RecordingReceiver:
    """Receiver that records the events of a link."""

    def __init__(self, link: MemoryLink, *, pause: bool = False) -> None:
        self.events: list[object] = []
        self.link = link
        self._pause = pause
        self.changed = asyncio.Event()
        link.attach(self)

    wants_content = True

    def _note(self, event: object) -> None:
        self.events.append(event)
        self.changed.set()

    def received(self, packet: Packet) -> None:
        self._note(packet)
        if self._pause:
            self.link.pause_reading()

    def progressed(self, size: int) -> bool:
        self._note("progress")
        return self.wants_content

    def writable(self) -> None:
        self._note("writable")

    def lost(self, reason: str) -> None:
        self._note(("lost", reason))

    async def wait_for_events(self, count: int) -> list[object]:
        while len(self.events) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.events


def send_texts(link: Link, *texts: bytes) -> None:
    link.write(b"".join(link.frame(Packet(text)) for text in texts))


async def run_iterations(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_both_loops
async def test_messages_are_received_in_order_in_a_later_iteration() -> None:
    left, right = link_pair()
    receiver = RecordingReceiver(right)
    send_texts(left, b"a", b"")
    left.write(left.frame(Packet(b"\0\xff", is_text=False)))
    assert receiver.events == []
    assert left.unsent_bytes() > 0
    assert await receiver.wait_for_events(3) == [Packet(b"a"), Packet(b""), Packet(b"\0\xff", is_text=False)]
    assert left.unsent_bytes() == 0


@on_both_loops
async def test_link_works_in_both_directions() -> None:
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    send_texts(left, b"question")
    await there.wait_for_events(1)
    send_texts(right, b"answer")
    assert await here.wait_for_events(1) == [Packet(b"answer")]
    assert (left.transport, left.is_loopback, left.remote, right.remote) == ("memory", True, "right", "left")


@on_both_loops
async def test_messages_wait_for_the_receiver() -> None:
    left, right = link_pair()
    send_texts(left, b"early")
    await run_iterations()
    assert left.unsent_bytes() > 0
    assert await RecordingReceiver(right).wait_for_events(1) == [Packet(b"early")]


@on_both_loops
async def test_fragmented_message_is_reassembled() -> None:
    left, right = link_pair()
    receiver = RecordingReceiver(right)
    left.write(left.frame_piece(b"a", first=True, last=False) + left.frame_piece(b"b", first=False, last=False))
    left.write(left.frame_piece(b"c", first=False, last=True) + left.frame_piece(b"d", first=True, last=True))
    whole = [Packet(b"abc", is_text=False), Packet(b"d", is_text=False)]
    assert await receiver.wait_for_events(4) == ["progress", "progress", *whole]


class _Held(Blob):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]


class _Spool:
    def __init__(self) -> None:
        self._data = b""

    def write(self, piece: bytes) -> None:
        self._data += piece

    def finish(self) -> Blob:
        return _Held(self._data)


class _Spools:
    def open(self) -> _Spool:
        return _Spool()


@on_both_loops
async def test_fragments_are_written_to_a_spool() -> None:
    left, right = link_pair(spools=_Spools())
    receiver = RecordingReceiver(right)
    left.write(left.frame_piece(b"ab", first=True, last=False) + left.frame_piece(b"c", first=False, last=True))
    packet = (await receiver.wait_for_events(2))[1]
    assert isinstance(packet, Packet)
    assert packet.blob is not None
    assert (packet.payload, bytes(packet.blob)) == (b"", b"abc")


@on_both_loops
async def test_paused_reader_makes_the_link_full() -> None:
    left, right = link_pair(high_water=1000)
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    right.pause_reading()
    send_texts(left, *[b"x" * 95] * 10)
    assert not left.is_full
    send_texts(left, b"")
    assert left.is_full
    assert left.unsent_bytes() == 1005
    await run_iterations()
    assert there.events == []
    right.resume_reading()
    assert await here.wait_for_events(1) == ["writable"]
    assert not left.is_full
    assert len(await there.wait_for_events(11)) == 11
    await run_iterations()
    assert here.events == ["writable"]


@on_both_loops
async def test_pause_takes_effect_after_one_message() -> None:
    left, right = link_pair()
    receiver = RecordingReceiver(right, pause=True)
    send_texts(left, b"a", b"b", b"c")
    await run_iterations()
    assert receiver.events == [Packet(b"a")]
    right.resume_reading()
    await run_iterations()
    assert receiver.events == [Packet(b"a"), Packet(b"b")]


@on_both_loops
async def test_writer_above_max_waiting_is_closed() -> None:
    left, right = link_pair(max_waiting=1000)
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    right.pause_reading()
    for _ in range(100):
        send_texts(left, b"x" * 100)
    assert left.unsent_bytes() == 0
    assert await here.wait_for_events(1) == [("lost", "the other end does not read what was written to it")]
    assert await there.wait_for_events(1) == [("lost", "the other end wrote too much")]


@on_both_loops
async def test_message_above_max_message_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_MESSAGE", 1000)
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    assert await there.wait_for_events(1) == ["progress"]
    left.write(left.frame_piece(b"x", first=False, last=False))
    assert (await there.wait_for_events(2))[1:] == [("lost", "a message is too large")]
    assert await here.wait_for_events(1) == [("lost", "a message was too large")]


@on_both_loops
async def test_unwanted_content_is_discarded() -> None:
    spools = DiskSpools(1 << 20, 1 << 20)
    left, right = link_pair(spools=spools)
    there = RecordingReceiver(right)
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    assert await there.wait_for_events(1) == ["progress"]
    assert spools.used == 1000
    right.discard_incoming()
    assert spools.used == 0
    left.write(left.frame_piece(bytes(1000), first=False, last=True))
    assert (await there.wait_for_events(2))[1:] == [Packet(b"", is_text=False)]
    there.wants_content = False
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    await there.wait_for_events(3)
    assert spools.used == 0
    send_texts(left, b"next")
    assert (await there.wait_for_events(4))[3:] == [Packet(b"next")]


@on_both_loops
async def test_close_follows_written_messages() -> None:
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    send_texts(left, b"last words")
    left.close(1000, "done")
    send_texts(left, b"too late")
    send_texts(right, b"not heard")
    left.close()
    assert await there.wait_for_events(2) == [Packet(b"last words"), ("lost", "done")]
    assert await here.wait_for_events(1) == [("lost", "done")]
    send_texts(right, b"nor this")
    right.close()
    right.abort()
    left.ping()
    await run_iterations()
    assert (len(here.events), len(there.events)) == (1, 2)


@on_both_loops
async def test_simultaneous_close_is_reported_once() -> None:
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    left.close(1000, "left")
    right.close(1000, "right")
    await here.wait_for_events(1)
    await there.wait_for_events(1)
    await run_iterations()
    assert (len(here.events), len(there.events)) == (1, 1)


@on_both_loops
async def test_abort_discards_unread_messages() -> None:
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    send_texts(left, b"lost")
    left.abort()
    assert here.events == []
    assert await here.wait_for_events(1) == [("lost", "")]
    assert await there.wait_for_events(1) == [("lost", "the other end is gone")]
    assert (left.unsent_bytes(), right.unsent_bytes(), left.is_full) == (0, 0, False)


@on_both_loops
async def test_late_receiver_is_notified_of_the_end() -> None:
    left, right = link_pair()
    left.abort()
    await run_iterations()
    assert await RecordingReceiver(right).wait_for_events(1) == [("lost", "the other end is gone")]


@on_both_loops
async def test_ping_is_answered_when_it_is_read() -> None:
    left, right = link_pair()
    here, there = RecordingReceiver(left), RecordingReceiver(right)
    left.is_alive = right.is_alive = False
    right.pause_reading()
    left.ping()
    await run_iterations()
    assert (left.is_alive, right.is_alive) == (False, False)
    right.resume_reading()
    await run_iterations()
    assert (left.is_alive, right.is_alive) == (True, True)
    assert here.events == there.events == []


@on_both_loops
async def test_endless_echo_does_not_block_the_loop() -> None:
    left, right = link_pair()

    class Again(RecordingReceiver):
        def received(self, packet: Packet) -> None:
            super().received(packet)
            self.link.write(self.link.frame(packet))

    here, there = Again(left), Again(right)
    send_texts(left, b"ball")
    await there.wait_for_events(10)
    assert len(here.events) >= 9
    left.abort()
    await run_iterations()
