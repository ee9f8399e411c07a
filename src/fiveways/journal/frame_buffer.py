"""Buffer of recorded frames in the hub: cheap to append to, and drained in column-oriented batches."""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import pack
from typing import Any, Final

import msgspec

from fiveways.wire.packet import Packet


class StreamInfo(msgspec.Struct, eq=False, gc=False, array_like=True):
    """The constant fields of all frames in one direction of a connection, text or binary."""

    session: str
    peer: str
    """Empty until it is known."""
    protocol: str
    transport: str
    direction: str
    kind: str
    channel: str = ""

    def for_marker(self, direction: str, kind: str) -> "StreamInfo":
        """Return the stream of markers of the same connection."""
        return StreamInfo(self.session, self.peer, self.protocol, self.transport, direction, kind, self.channel)


class NoPayload(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A marker, with a reason in place of a payload; or a frame with its payload on disk."""

    reason: str = ""
    channel: str = ""
    size: int | None = None


Entry = tuple[int, StreamInfo, "bytes | NoPayload | list[bytes]", "str | Sequence[str]"]
"""Time (ns since 1970), stream, payload, and operation; or the payloads and operations of several frames."""
_CELLS_PER_ENTRY: Final = 4
_MAX_BATCH_BYTES: Final = 1 << 24
"""Maximum payload bytes of a batch; a single payload may be larger."""
OP_SEPARATOR: Final = "\n"
"""Separator between operation ids; no id contains it."""


class FrameBatch(msgspec.Struct, gc=False, tag="page", array_like=True):
    """Entries as columns, in the layout that the writer needs.

    Most entries are one record. Numbers have 4 bytes, times 8 bytes.
    """

    first_seq: int
    """Sequence number of the first record in the run."""
    streams: list[StreamInfo]
    stream_indexes: bytes
    """Index into `streams` for each entry."""
    times: bytes
    """Time of each entry."""
    multi_record_entries: bytes
    """Indices of entries with several records."""
    multi_record_lengths: bytes
    """Number of records of these entries."""
    payloads: bytes
    """Concatenated payloads of all records."""
    payload_lengths: bytes
    ops: bytes
    """Operations of all records, separated by OP_SEPARATOR."""
    queue_times: dict[int, int]
    """Time in ns that an entry waited in the outbox, by its index; entries without a wait are absent."""
    no_payloads: dict[int, NoPayload]
    """Records without a payload, by the index of the record."""

    def __len__(self) -> int:
        return len(self.payload_lengths) // 4


class FrameBuffer:
    """Entries that wait for the writer process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Create a buffer; `clock` returns nanoseconds since 1970."""
        self.clock = clock
        # Flat cells instead of tuples: each kept tuple would be one more object for the garbage collector to track.
        self._cells: list[Any] = []
        self.append: Final[Callable[[Entry], None]] = self._cells.extend
        """Append an entry. The list never changes its identity, so callers may keep this bound method."""
        self._multi_record_entries: list[int] = []
        """Indices of entries with several records."""
        self._queue_times: dict[int, int] = {}
        self._next_seq = 0
        self.flush: Callable[[], None] = _no_flush
        """Forward the buffered entries; callers call it after many entries."""

    def append_many(self, at: int, stream: StreamInfo, payloads: list[bytes], ops: Sequence[str]) -> None:
        """Append frames of one stream at the same time."""
        self._multi_record_entries.append(len(self._cells) // _CELLS_PER_ENTRY)
        self.append((at, stream, payloads, ops))

    def append_delayed(self, at: int, stream: StreamInfo, payload: "bytes | NoPayload", op: str, since: int) -> None:
        """Append a frame that waited in the outbox since `since`."""
        self._queue_times[len(self._cells) // _CELLS_PER_ENTRY] = at - since
        self.append((at, stream, payload, op))

    def take(self, max_entries: int) -> FrameBatch | None:
        """Remove and return the oldest entries, at most `max_entries`; None if the buffer is empty."""
        cells = self._cells[: max_entries * _CELLS_PER_ENTRY]
        if not cells:
            return None
        multi_record = self._multi_record_entries[
            : bisect(self._multi_record_entries, len(cells) // _CELLS_PER_ENTRY - 1)
        ]
        contents, ops, lengths = _flatten_entries(cells[2::_CELLS_PER_ENTRY], cells[3::_CELLS_PER_ENTRY], multi_record)
        no_payloads: dict[int, NoPayload] = {}
        try:
            payload_lengths = list(map(len, contents))
        except TypeError:
            no_payloads = {index: content for index, content in enumerate(contents) if type(content) is NoPayload}
            contents = [b"" if type(content) is NoPayload else content for content in contents]
            payload_lengths = list(map(len, contents))
        payloads = b"".join(contents)
        if len(payloads) > _MAX_BATCH_BYTES and len(cells) > _CELLS_PER_ENTRY:
            return self.take(_count_fitting(cells[2::_CELLS_PER_ENTRY]))
        count, records, streams = len(cells) // _CELLS_PER_ENTRY, len(contents), cells[1::_CELLS_PER_ENTRY]
        stream_indexes = {stream: index for index, stream in enumerate(set(streams))}
        first_seq, self._next_seq = self._next_seq, self._next_seq + records
        return FrameBatch(
            first_seq,
            list(stream_indexes),
            pack(f"{count}i", *map(stream_indexes.__getitem__, streams)),
            pack(f"{count}n", *cells[::_CELLS_PER_ENTRY]),  # 8 bytes as with q, but faster
            pack(f"{len(multi_record)}i", *multi_record),
            pack(f"{len(multi_record)}i", *lengths),
            payloads,
            pack(f"{records}i", *payload_lengths),
            OP_SEPARATOR.join(ops).encode(),
            self._drop_oldest(count),
            no_payloads,
        )

    def _drop_oldest(self, count: int) -> dict[int, int]:
        """Delete the oldest entries; return their queue times."""
        del self._cells[: count * _CELLS_PER_ENTRY]
        queue_times, self._queue_times = self._queue_times, {}
        if not self._cells:
            self._multi_record_entries.clear()
            return queue_times
        self._multi_record_entries[:] = [index - count for index in self._multi_record_entries if index >= count]
        self._queue_times = {index - count: wait for index, wait in queue_times.items() if index >= count}
        return {index: wait for index, wait in queue_times.items() if index < count}

    def __len__(self) -> int:
        return len(self._cells) // _CELLS_PER_ENTRY


def _flatten_entries(
    contents: list[Any], ops: list[Any], multi_record: list[int]
) -> tuple[list[Any], list[str], list[int]]:
    """Return payloads and operations record by record, and the number of records of each entry in `multi_record`."""
    if not multi_record:
        return contents, ops, []
    flat, flat_ops, lengths, start = list[Any](), list[str](), list[int](), 0
    for index in multi_record:
        flat += contents[start:index]
        flat += contents[index]
        flat_ops += ops[start:index]
        flat_ops += ops[index]
        lengths.append(len(contents[index]))
        start = index + 1
    return flat + contents[start:], flat_ops + ops[start:], lengths


def _count_fitting(contents: list[Any]) -> int:
    """Return the number of entries that fit into a batch, at least 1."""
    sizes = [
        0 if type(content) is NoPayload else len(content) if type(content) is bytes else sum(map(len, content))
        for content in contents
    ]
    return max(1, bisect(list(accumulate(sizes)), _MAX_BATCH_BYTES))


def _no_flush() -> None:
    """Do nothing: there is no writer process."""


class ConnectionRecorder:
    """Recorder of one connection."""

    __slots__ = ("_buffer", "_streams", "append", "clock", "in_binary", "in_text", "out_binary", "out_text")

    def __init__(
        self, buffer: FrameBuffer, session: str, peer: str, protocol: str, transport: str, channel: str = ""
    ) -> None:
        self._buffer = buffer
        self.append = buffer.append
        self.clock = buffer.clock
        self._streams = [
            StreamInfo(session, peer, protocol, transport, direction, kind, channel)
            for direction in ("in", "out")
            for kind in ("text", "binary")
        ]
        self.in_text, self.in_binary, self.out_text, self.out_binary = self._streams

    def set_peer(self, peer: str) -> None:
        """Set the peer of the connection."""
        for stream in self._streams:
            stream.peer = peer

    def record_received(self, at: int, packet: Packet, op: str) -> None:
        """Record a received packet."""
        payload = packet.payload if packet.blob is None else NoPayload(size=len(packet.blob))
        self.append((at, self.in_text if packet.is_text else self.in_binary, payload, op))

    def record_sent(self, at: int, packet: Packet, op: str, since: int = 0) -> None:
        """Record a packet that was written to the socket; `since` is the time it entered the outbox, if it waited."""
        payload = packet.payload if packet.blob is None else NoPayload(size=len(packet.blob))
        stream = self.out_text if packet.is_text else self.out_binary
        if since:
            self._buffer.append_delayed(at, stream, payload, op, since)
        else:
            self.append((at, stream, payload, op))

    def record_sent_many(self, packets: Sequence[Packet], ops: Sequence[str], since: int = 0) -> None:
        """Record packets that were written to the socket now, with their operations."""
        at = self.clock()
        if len(packets) > 1 and not since:
            stream, payloads = self.out_text, [packet.payload for packet in packets if packet.is_text]
            if not payloads:
                stream, payloads = self.out_binary, [packet.payload for packet in packets if packet.blob is None]
            if len(payloads) == len(packets) == len(ops):  # the common case
                self._buffer.append_many(at, stream, payloads, ops)
                return
        for packet, op in zip(packets, ops, strict=True):
            self.record_sent(at, packet, op, since)

    def record_marker(self, kind: str, direction: str, reason: str = "", op: str = "", channel: str = "") -> None:
        """Record an event of the session now: open, close, drop or deny."""
        self.append((self.clock(), self.in_text.for_marker(direction, kind), NoPayload(reason, channel), op))
