"""Packets and large attachments written to a link."""

import asyncio
from pathlib import Path

from fiveways.app.attachment_sources import BLOB_THRESHOLD, load_content
from fiveways.client.link_writer import FRAGMENT_SIZE, LinkWriter
from fiveways.transports import memory
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from tests.support.running import async_test


class Reader:
    """The receiver of the other end."""

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
    """The receiver of this end, which resumes the writer."""

    def __init__(self, link: memory.MemoryLink) -> None:
        super().__init__(link)
        self.writer = LinkWriter(link)

    def writable(self) -> None:
        self.writer.resume()


@async_test
async def test_large_attachment_is_written_in_fragments_and_in_order() -> None:
    ours, theirs = memory.link_pair(high_water=FRAGMENT_SIZE)
    sender, reader = Sender(ours), Reader(theirs)
    data = bytes(range(256)) * (BLOB_THRESHOLD // 64)
    blob = load_content(data)
    assert isinstance(blob, Blob)
    sender.writer.write([Packet(b"before"), Packet(b"", is_text=False, blob=blob), Packet(b"after")])
    sender.writer.write([Packet(b"last")])
    assert sender.writer.pending
    assert ours.unsent_bytes() < BLOB_THRESHOLD
    assert await reader.all(4) == [b"before", data, b"after", b"last"]
    assert not sender.writer.pending


@async_test
async def test_file_is_read_during_transmission(tmp_path: Path) -> None:
    ours, theirs = memory.link_pair(high_water=FRAGMENT_SIZE)
    sender, reader = Sender(ours), Reader(theirs)
    path = tmp_path / "large"
    path.write_bytes(b"x" * (2 * BLOB_THRESHOLD) + b"end")
    blob = load_content(path)
    assert isinstance(blob, Blob)
    sender.writer.write([Packet(b"", is_text=False, blob=blob)])
    (whole,) = await reader.all(1)
    assert len(whole) == 2 * BLOB_THRESHOLD + 3
    assert whole.endswith(b"xend")


@async_test
async def test_file_truncated_during_transmission_aborts_the_link(tmp_path: Path) -> None:
    ours, theirs = memory.link_pair(high_water=FRAGMENT_SIZE)
    sender, reader = Sender(ours), Reader(theirs)
    path = tmp_path / "large"
    path.write_bytes(b"x" * (2 * BLOB_THRESHOLD))
    blob = load_content(path)
    assert isinstance(blob, Blob)
    path.write_bytes(b"")
    sender.writer.write([Packet(b"", is_text=False, blob=blob), Packet(b"after")])
    assert await reader.all(2) == []
    assert reader.reason is not None


def test_small_attachments_are_loaded_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"small")
    assert load_content(path) == load_content(bytearray(b"small")) == load_content(memoryview(b"small")) == b"small"
