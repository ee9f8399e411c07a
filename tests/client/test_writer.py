"""Packets to a link."""

import asyncio
from pathlib import Path

from fiveways.app.sources import LARGE, content
from fiveways.client.writer import PIECE, Writer
from fiveways.transports import memory
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from tests.client.scripted import waiting


class Reader:
    """The other end."""

    def __init__(self, link: memory.MemoryLink) -> None:
        self.packets: list[bytes] = []
        self.changed = asyncio.Event()
        self.reason: str | None = None
        link.attach(self)

    def received(self, packet: Packet) -> None:
        self.packets.append(packet.payload)
        self.changed.set()

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.reason = reason
        self.changed.set()

    async def all(self, number: int) -> list[bytes]:
        while len(self.packets) < number and self.reason is None:
            self.changed.clear()
            await self.changed.wait()
        return self.packets


class Sender(Reader):
    """Our end, which writes on when there is room."""

    def __init__(self, link: memory.MemoryLink) -> None:
        super().__init__(link)
        self.writer = Writer(link)

    def writable(self) -> None:
        self.writer.resume()


@waiting
async def test_a_large_attachment_goes_in_pieces_and_nothing_passes_it() -> None:
    ours, theirs = memory.pair(high_water=PIECE)
    sender, reader = Sender(ours), Reader(theirs)
    data = bytes(range(256)) * (LARGE // 64)
    blob = content(data)
    assert isinstance(blob, Blob)
    sender.writer.write([Packet(b"before"), Packet(b"", is_text=False, blob=blob), Packet(b"after")])
    sender.writer.write([Packet(b"last")])
    assert sender.writer.waiting
    assert ours.waiting() < LARGE
    assert await reader.all(4) == [b"before", data, b"after", b"last"]
    assert not sender.writer.waiting


@waiting
async def test_a_file_is_read_while_it_is_sent(tmp_path: Path) -> None:
    ours, theirs = memory.pair(high_water=PIECE)
    sender, reader = Sender(ours), Reader(theirs)
    path = tmp_path / "large"
    path.write_bytes(b"x" * (2 * LARGE) + b"end")
    blob = content(path)
    assert isinstance(blob, Blob)
    sender.writer.write([Packet(b"", is_text=False, blob=blob)])
    (whole,) = await reader.all(1)
    assert len(whole) == 2 * LARGE + 3
    assert whole.endswith(b"xend")


@waiting
async def test_a_file_that_shrinks_meanwhile_ends_the_link(tmp_path: Path) -> None:
    ours, theirs = memory.pair(high_water=PIECE)
    sender, reader = Sender(ours), Reader(theirs)
    path = tmp_path / "large"
    path.write_bytes(b"x" * (2 * LARGE))
    blob = content(path)
    assert isinstance(blob, Blob)
    path.write_bytes(b"")
    sender.writer.write([Packet(b"", is_text=False, blob=blob), Packet(b"after")])
    assert await reader.all(2) == []
    assert reader.reason is not None


def test_small_things_are_attached_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"small")
    assert content(path) == content(bytearray(b"small")) == content(memoryview(b"small")) == b"small"
