"""The outbox: order, one write per event loop iteration, fragments of blobs, and limits."""

from collections.abc import Sequence

from fiveways.runtime.outbox import FLUSH_THRESHOLD, FRAGMENT_SIZE, Outbox
from fiveways.transports.spool import DiskSpools
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

LIMITS = Limits(max_unread_events=20_000, max_unread=50_000)


class FakeLink:
    """Accepts a number of bytes, then is full."""

    transport, remote, is_loopback, is_alive = "memory", "here", True, True

    def __init__(self, room: int) -> None:
        self.writes: list[bytes] = []
        self.accept(room)

    def accept(self, room: int) -> None:
        self.room = room
        self.is_full = sum(map(len, self.writes)) >= room

    def frame(self, packet: Packet) -> bytes:
        return b"<%b>" % packet.payload

    def frames(self, packets: Sequence[Packet]) -> bytes:
        return b"".join(map(self.frame, packets))

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        return b"%b%b%b" % (b"{" if first else b"", piece, b"}" if last else b"")

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.accept(self.room)

    def unsent_bytes(self) -> int:
        return max(0, sum(map(len, self.writes)) - self.room)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def discard_incoming(self) -> None: ...

    def ping(self) -> None: ...

    def close(self, code: int = 1000, text: str = "") -> None: ...

    def abort(self) -> None: ...


def outbox(room: int = 1 << 30) -> tuple[Outbox, FakeLink]:
    link = FakeLink(room)
    return Outbox(link, LIMITS), link


def test_frames_of_one_iteration_are_one_write() -> None:
    box, link = outbox()
    for number in range(3):
        box.add([Packet(b"%d" % number)])
    box.flush()
    assert link.writes == [b"<0><1><2>"]
    assert (box.buffered_bytes, len(box.pending)) == (0, 0)


def test_full_link_gets_the_rest_later_in_order() -> None:
    box, link = outbox(room=1)
    box.add([Packet(b"a")])
    box.flush()
    box.add([Packet(b"b")])
    box.flush()
    assert link.writes == [b"<a>"]
    link.accept(1 << 30)
    box.add([Packet(b"c")])
    box.flush()
    assert link.writes == [b"<a>", b"<b><c>"]


def test_blob_is_fragmented_in_its_place() -> None:
    spools = DiskSpools(1 << 24, 1 << 24)
    box, link = outbox()
    content = bytes(range(256)) * (FRAGMENT_SIZE // 256) + b"rest"
    box.add([Packet(b"before")])
    box.add([Packet(b"", is_text=False, blob=spools.store(content))])
    box.add([Packet(b"after")])
    box.flush()
    assert b"".join(link.writes) == b"<before>{" + content + b"}<after>"
    assert len(link.writes) == 4
    assert spools.used == 0


def test_blob_resumes_at_its_offset() -> None:
    spools = DiskSpools(1 << 24, 1 << 24)
    box, link = outbox(room=FRAGMENT_SIZE)
    box.add([Packet(b"", is_text=False, blob=spools.store(b"x" * FRAGMENT_SIZE * 3))])
    box.flush()
    assert len(link.writes) == 1
    link.accept(1 << 30)
    box.flush()
    assert b"".join(link.writes) == b"{" + b"x" * FRAGMENT_SIZE * 3 + b"}"


def test_slow_consumer_passes_the_high_water_mark_before_overflow() -> None:
    box, _ = outbox(room=0)
    box.add([Packet(b"x" * 15_000)])
    assert (box.is_above_high_water, box.has_overflowed) == (False, False)
    box.add([Packet(b"x" * 15_000)])
    assert (box.is_above_high_water, box.has_overflowed) == (True, False)
    box.add([Packet(b"x" * 30_000)])
    assert (box.is_above_high_water, box.has_overflowed) == (True, True)


def test_large_outbox_is_written_in_several_steps() -> None:
    box, link = outbox()
    for _ in range(5):
        box.add([Packet(b"x" * (FLUSH_THRESHOLD // 2))])
    box.flush()
    assert len(link.writes) == 3
    assert b"".join(link.writes) == b"<%b>" % (b"x" * (FLUSH_THRESHOLD // 2)) * 5
