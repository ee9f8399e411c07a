"""What the hub notes down as things happen: cheap to add to, and taken away in pages."""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import pack
from typing import Any, Final

import msgspec

from fiveways.wire.packet import Packet


class StreamInfo(msgspec.Struct, eq=False, gc=False, array_like=True):
    """What all frames have in common that go one way over one link, in text or in binary."""

    session: str
    peer: str
    """Empty while it is not known."""
    protocol: str
    transport: str
    direction: str
    kind: str
    channel: str = ""


class NoPayload(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What stands in a record that is no frame, where a frame has its payload; or a frame that is not in memory."""

    reason: str = ""
    channel: str = ""
    size: int | None = None


Entry = tuple[int, StreamInfo, "bytes | NoPayload | list[bytes]", "str | Sequence[str]"]
"""When (ns since 1970), on which way, what, and of which operation; or several that are alike in the first two."""
_CELLS_PER_ENTRY: Final = 4
_MAX_BATCH_BYTES: Final = 1 << 24
"""Bytes of payloads that go onto one page, or one payload."""
OP_SEPARATOR: Final = "\n"
"""Stands between operations, and in none of them."""


class FrameBatch(msgspec.Struct, gc=False, tag="page", array_like=True):
    """Some entries, column by column, as whoever writes them wants to have them: numbers and texts in a row.

    Most entries are one record. Numbers are of 4 bytes, but for times, which have 8.
    """

    first_seq: int
    """The number of the first record, in the run."""
    streams: list[StreamInfo]
    stream_indexes: bytes
    """For each entry, which of the ways it went,"""
    times: bytes
    """and when."""
    multi_record_entries: bytes
    """The places of entries that are several records,"""
    multi_record_lengths: bytes
    """and how many each of them is."""
    payloads: bytes
    """For each record."""
    payload_lengths: bytes
    ops: bytes
    """For each record, with OP_END between them."""
    queue_times: dict[int, int]
    """How long entries had waited, in ns, by their places; most had not."""
    no_payloads: dict[int, NoPayload]
    """By the place of the record, which has no payload then."""

    def __len__(self) -> int:
        return len(self.payload_lengths) // 4


class FrameBuffer:
    """Entries that wait to be passed on."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Make one; `clock` tells the ns since 1970."""
        self.clock = clock
        # Entries lie end to end: a tuple that is kept is one more thing for Python to look after.
        self._cells: list[Any] = []
        self.append: Final[Callable[[Entry], None]] = self._cells.extend
        """Note an entry; the list is one and the same for ever, so that this may be kept."""
        self._multi_record_entries: list[int] = []
        """The places of entries that are several records."""
        self._queue_times: dict[int, int] = {}
        self._next_seq = 0
        self.flush: Callable[[], None] = _no_flush
        """Have what is there taken away; to be called when that is much."""

    def append_many(self, at: int, way: StreamInfo, payloads: list[bytes], ops: Sequence[str]) -> None:
        """Note frames that go one way at the same time."""
        self._multi_record_entries.append(len(self._cells) // _CELLS_PER_ENTRY)
        self.append((at, way, payloads, ops))

    def append_delayed(self, at: int, way: StreamInfo, what: "bytes | NoPayload", op: str, since: int) -> None:
        """Note one frame that had to wait."""
        self._queue_times[len(self._cells) // _CELLS_PER_ENTRY] = at - since
        self.append((at, way, what, op))

    def take(self, most: int) -> FrameBatch | None:
        """Return the oldest entries."""
        cells = self._cells[: most * _CELLS_PER_ENTRY]
        if not cells:
            return None
        places = self._multi_record_entries[: bisect(self._multi_record_entries, len(cells) // _CELLS_PER_ENTRY - 1)]
        whats, ops, lengths = _flatten_entries(cells[2::_CELLS_PER_ENTRY], cells[3::_CELLS_PER_ENTRY], places)
        notes: dict[int, NoPayload] = {}
        try:
            sizes = list(map(len, whats))
        except TypeError:
            notes = {place: what for place, what in enumerate(whats) if type(what) is NoPayload}
            whats = [b"" if type(what) is NoPayload else what for what in whats]
            sizes = list(map(len, whats))
        payloads = b"".join(whats)
        if len(payloads) > _MAX_BATCH_BYTES and len(cells) > _CELLS_PER_ENTRY:
            return self.take(_count_fitting(cells[2::_CELLS_PER_ENTRY]))
        count, records, ways = len(cells) // _CELLS_PER_ENTRY, len(whats), cells[1::_CELLS_PER_ENTRY]
        numbers = {way: number for number, way in enumerate(set(ways))}
        first, self._next_seq = self._next_seq, self._next_seq + records
        return FrameBatch(
            first,
            list(numbers),
            pack(f"{count}i", *map(numbers.__getitem__, ways)),
            pack(f"{count}n", *cells[::_CELLS_PER_ENTRY]),  # of 8 bytes as q is, but quicker
            pack(f"{len(places)}i", *places),
            pack(f"{len(places)}i", *lengths),
            payloads,
            pack(f"{records}i", *sizes),
            OP_SEPARATOR.join(ops).encode(),
            self._drop_oldest(count),
            notes,
        )

    def _drop_oldest(self, count: int) -> dict[int, int]:
        """Forget the oldest entries; return how long they had waited."""
        del self._cells[: count * _CELLS_PER_ENTRY]
        queued, self._queue_times = self._queue_times, {}
        if not self._cells:
            self._multi_record_entries.clear()
            return queued
        self._multi_record_entries[:] = [place - count for place in self._multi_record_entries if place >= count]
        self._queue_times = {place - count: waited for place, waited in queued.items() if place >= count}
        return {place: waited for place, waited in queued.items() if place < count}

    def __len__(self) -> int:
        return len(self._cells) // _CELLS_PER_ENTRY


def _flatten_entries(whats: list[Any], ops: list[Any], several: list[int]) -> tuple[list[Any], list[str], list[int]]:
    """Return entries record by record, and how many each of `several` is."""
    if not several:
        return whats, ops, []
    flat, flat_ops, lengths, start = list[Any](), list[str](), list[int](), 0
    for place in several:
        flat += whats[start:place]
        flat += whats[place]
        flat_ops += ops[start:place]
        flat_ops += ops[place]
        lengths.append(len(whats[place]))
        start = place + 1
    return flat + whats[start:], flat_ops + ops[start:], lengths


def _count_fitting(whats: list[Any]) -> int:
    """Return how many entries go onto one page; one does, however large it is."""
    sizes = [
        0 if type(what) is NoPayload else len(what) if type(what) is bytes else sum(map(len, what)) for what in whats
    ]
    return max(1, bisect(list(accumulate(sizes)), _MAX_BATCH_BYTES))


def _no_flush() -> None:
    """Nobody takes anything away."""


class ConnectionRecorder:
    """One link on the tape."""

    __slots__ = ("_buffer", "_streams", "append", "clock", "in_binary", "in_text", "out_binary", "out_text")

    def __init__(
        self, tape: FrameBuffer, session: str, peer: str, protocol: str, transport: str, channel: str = ""
    ) -> None:
        self._buffer = tape
        self.append = tape.append
        self.clock = tape.clock
        self._streams = [
            StreamInfo(session, peer, protocol, transport, direction, kind, channel)
            for direction in ("in", "out")
            for kind in ("text", "binary")
        ]
        self.in_text, self.in_binary, self.out_text, self.out_binary = self._streams

    def set_peer(self, peer: str) -> None:
        """Know whose it is."""
        for way in self._streams:
            way.peer = peer

    def record_received(self, at: int, packet: Packet, op: str) -> None:
        """Note what came at a time."""
        what = packet.payload if packet.blob is None else NoPayload(size=len(packet.blob))
        self.append((at, self.in_text if packet.is_text else self.in_binary, what, op))

    def record_sent(self, at: int, packet: Packet, op: str, since: int = 0) -> None:
        """Note what the socket got at a time, and had to wait for it since another."""
        what = packet.payload if packet.blob is None else NoPayload(size=len(packet.blob))
        way = self.out_text if packet.is_text else self.out_binary
        if since:
            self._buffer.append_delayed(at, way, what, op, since)
        else:
            self.append((at, way, what, op))

    def record_sent_many(self, packets: Sequence[Packet], ops: Sequence[str], since: int = 0) -> None:
        """Note what the socket got now, and to which operations that belongs."""
        at = self.clock()
        if len(packets) > 1 and not since:
            way, alike = self.out_text, [packet.payload for packet in packets if packet.is_text]
            if not alike:
                way, alike = self.out_binary, [packet.payload for packet in packets if packet.blob is None]
            if len(alike) == len(packets) == len(ops):  # nearly always
                self._buffer.append_many(at, way, alike, ops)
                return
        for packet, op in zip(packets, ops, strict=True):
            self.record_sent(at, packet, op, since)

    def record_marker(self, kind: str, direction: str, reason: str = "", op: str = "", channel: str = "") -> None:
        """Note that something happened now: open, close, drop or deny."""
        way = self.in_text
        marked = StreamInfo(way.session, way.peer, way.protocol, way.transport, direction, kind, way.channel)
        self.append((self.clock(), marked, NoPayload(reason, channel), op))
