"""Links within one process."""

import asyncio

import pytest

from fiveways.transports import memory
from fiveways.transports.base import Link
from fiveways.transports.memory import MemoryLink, link_pair
from fiveways.transports.spool import DiskSpools
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from tests.support.event_loops import on_both_loops


class Ear:
    """Notes what a link tells."""

    def __init__(self, link: MemoryLink, *, pause: bool = False) -> None:
        self.heard: list[object] = []
        self.link = link
        self._pause = pause
        self.changed = asyncio.Event()
        link.attach(self)

    wants_content = True

    def _note(self, what: object) -> None:
        self.heard.append(what)
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

    async def hears(self, count: int) -> list[object]:
        while len(self.heard) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.heard


def say(link: Link, *texts: bytes) -> None:
    link.write(b"".join(link.frame(Packet(text)) for text in texts))


async def passes(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_both_loops
async def test_what_is_written_is_received_in_order_and_in_a_later_pass() -> None:
    left, right = link_pair()
    ear = Ear(right)
    say(left, b"a", b"")
    left.write(left.frame(Packet(b"\0\xff", is_text=False)))
    assert ear.heard == []
    assert left.unsent_bytes() > 0
    assert await ear.hears(3) == [Packet(b"a"), Packet(b""), Packet(b"\0\xff", is_text=False)]
    assert left.unsent_bytes() == 0


@on_both_loops
async def test_both_directions_are_one_link() -> None:
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    say(left, b"question")
    await there.hears(1)
    say(right, b"answer")
    assert await here.hears(1) == [Packet(b"answer")]
    assert (left.transport, left.is_loopback, left.remote, right.remote) == ("memory", True, "right", "left")


@on_both_loops
async def test_what_comes_before_the_receiver_waits_for_it() -> None:
    left, right = link_pair()
    say(left, b"early")
    await passes()
    assert left.unsent_bytes() > 0
    assert await Ear(right).hears(1) == [Packet(b"early")]


@on_both_loops
async def test_a_large_message_comes_in_pieces() -> None:
    left, right = link_pair()
    ear = Ear(right)
    left.write(left.frame_piece(b"a", first=True, last=False) + left.frame_piece(b"b", first=False, last=False))
    left.write(left.frame_piece(b"c", first=False, last=True) + left.frame_piece(b"d", first=True, last=True))
    whole = [Packet(b"abc", is_text=False), Packet(b"d", is_text=False)]
    assert await ear.hears(4) == ["progress", "progress", *whole]


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
async def test_pieces_go_to_a_spool_where_there_is_one() -> None:
    left, right = link_pair(spools=_Spools())
    ear = Ear(right)
    left.write(left.frame_piece(b"ab", first=True, last=False) + left.frame_piece(b"c", first=False, last=True))
    packet = (await ear.hears(2))[1]
    assert isinstance(packet, Packet)
    assert packet.blob is not None
    assert (packet.payload, bytes(packet.blob)) == (b"", b"abc")


@on_both_loops
async def test_who_does_not_read_makes_the_link_full() -> None:
    left, right = link_pair(high_water=1000)
    here, there = Ear(left), Ear(right)
    right.pause_reading()
    say(left, *[b"x" * 95] * 10)
    assert not left.is_full
    say(left, b"")
    assert left.is_full
    assert left.unsent_bytes() == 1005
    await passes()
    assert there.heard == []
    right.resume_reading()
    assert await here.hears(1) == ["writable"]
    assert not left.is_full
    assert len(await there.hears(11)) == 11
    await passes()
    assert here.heard == ["writable"]


@on_both_loops
async def test_a_pause_holds_from_one_message_to_the_next() -> None:
    left, right = link_pair()
    ear = Ear(right, pause=True)
    say(left, b"a", b"b", b"c")
    await passes()
    assert ear.heard == [Packet(b"a")]
    right.resume_reading()
    await passes()
    assert ear.heard == [Packet(b"a"), Packet(b"b")]


@on_both_loops
async def test_who_writes_without_end_is_cut_off() -> None:
    left, right = link_pair(max_waiting=1000)
    here, there = Ear(left), Ear(right)
    right.pause_reading()
    for _ in range(100):
        say(left, b"x" * 100)
    assert left.unsent_bytes() == 0
    assert await here.hears(1) == [("lost", "the other end does not read what was written to it")]
    assert await there.hears(1) == [("lost", "the other end wrote too much")]


@on_both_loops
async def test_a_message_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_MESSAGE", 1000)
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    assert await there.hears(1) == ["progress"]
    left.write(left.frame_piece(b"x", first=False, last=False))
    assert (await there.hears(2))[1:] == [("lost", "a message is too large")]
    assert await here.hears(1) == [("lost", "a message was too large")]


@on_both_loops
async def test_content_that_nobody_wants_is_not_kept() -> None:
    spools = DiskSpools(1 << 20, 1 << 20)
    left, right = link_pair(spools=spools)
    there = Ear(right)
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    assert await there.hears(1) == ["progress"]
    assert spools.used == 1000
    right.discard_incoming()
    assert spools.used == 0
    left.write(left.frame_piece(bytes(1000), first=False, last=True))
    assert (await there.hears(2))[1:] == [Packet(b"", is_text=False)]
    there.wants_content = False
    left.write(left.frame_piece(bytes(1000), first=True, last=False))
    await there.hears(3)
    assert spools.used == 0
    say(left, b"next")
    assert (await there.hears(4))[3:] == [Packet(b"next")]


@on_both_loops
async def test_a_close_comes_after_what_was_written() -> None:
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    say(left, b"last words")
    left.close(1000, "done")
    say(left, b"too late")
    say(right, b"not heard")
    left.close()
    assert await there.hears(2) == [Packet(b"last words"), ("lost", "done")]
    assert await here.hears(1) == [("lost", "done")]
    say(right, b"nor this")
    right.close()
    right.abort()
    left.ping()
    await passes()
    assert (len(here.heard), len(there.heard)) == (1, 2)


@on_both_loops
async def test_both_may_close_at_once() -> None:
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    left.close(1000, "left")
    right.close(1000, "right")
    await here.hears(1)
    await there.hears(1)
    await passes()
    assert (len(here.heard), len(there.heard)) == (1, 1)


@on_both_loops
async def test_an_abort_loses_what_was_on_its_way() -> None:
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    say(left, b"lost")
    left.abort()
    assert here.heard == []
    assert await here.hears(1) == [("lost", "")]
    assert await there.hears(1) == [("lost", "the other end is gone")]
    assert (left.unsent_bytes(), right.unsent_bytes(), left.is_full) == (0, 0, False)


@on_both_loops
async def test_a_receiver_that_comes_too_late_is_told() -> None:
    left, right = link_pair()
    left.abort()
    await passes()
    assert await Ear(right).hears(1) == [("lost", "the other end is gone")]


@on_both_loops
async def test_a_ping_is_answered_when_it_is_read() -> None:
    left, right = link_pair()
    here, there = Ear(left), Ear(right)
    left.is_alive = right.is_alive = False
    right.pause_reading()
    left.ping()
    await passes()
    assert (left.is_alive, right.is_alive) == (False, False)
    right.resume_reading()
    await passes()
    assert (left.is_alive, right.is_alive) == (True, True)
    assert here.heard == there.heard == []


@on_both_loops
async def test_two_who_answer_each_other_for_ever_let_others_have_their_turn() -> None:
    left, right = link_pair()

    class Again(Ear):
        def received(self, packet: Packet) -> None:
            super().received(packet)
            self.link.write(self.link.frame(packet))

    here, there = Again(left), Again(right)
    say(left, b"ball")
    await there.hears(10)
    assert len(here.heard) >= 9
    left.abort()
    await passes()
