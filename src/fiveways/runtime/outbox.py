"""The bounded, ordered queue of frames for one peer, written once per event loop iteration."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from fiveways.hub.traffic_totals import ProtocolStats
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.model.messages import Attachment
from fiveways.transports.base import Link
from fiveways.transports.spool import AttachmentSpools
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, packet_size

FRAGMENT_SIZE: Final = 1 << 17
"""Bytes of a large attachment per fragment."""
FLUSH_THRESHOLD: Final = 1 << 18
"""Bytes above which an outbox is written before the end of the event loop iteration."""
_MIN_SPOOLED: Final = 1 << 12
"""Bytes of the smallest attachment that is spooled; a smaller one costs more on disk than in memory."""
_FRAGMENTS_PER_FLUSH: Final = 8
"""Fragments written before other peers get their turn."""


class SharedFrame(NamedTuple):
    """A frame for several peers, with its packet and its operation."""

    frame: bytes
    packet: Packet
    op: str


class FrameQueue:
    """Frames in order, and their size."""

    __slots__ = ("buffered_bytes", "pending")

    def __init__(self) -> None:
        self.pending: deque[Any] = deque()
        """Frames as bytes, and blobs."""
        self.buffered_bytes = 0
        """Bytes that wait in memory."""

    def put(self, shared: SharedFrame) -> None:
        """Add a frame that other peers get, too."""
        self.pending.append(shared.frame)


class Outbox(FrameQueue):
    """Frames for one link. Its owner checks `is_above_high_water` and `has_overflowed`, and acts on them."""

    __slots__ = ("_blobs", "_counted", "_counted_size", "_limits", "_offset", "_unrecorded", "link", "tally", "track")

    def __init__(self, link: Link, limits: Limits) -> None:
        super().__init__()
        self.link = link
        self.track: ConnectionRecorder | None = None
        """The journal's recorder of written frames, if any."""
        self.tally = ProtocolStats()
        """The traffic counters of the peer's protocol."""
        self._limits = limits
        self._blobs = 0
        self._counted = self._counted_size = 0
        """Frames from the head on, and their bytes, that `recount` included last; 0 after any of them was written."""
        self._offset = 0
        """Written bytes of the blob at the head."""
        self._unrecorded: deque[tuple[int, Sequence[Packet], Sequence[str]]] = deque()
        """For each pending entry: time, packets and operations for the journal; empty without a journal."""

    @property
    def is_above_high_water(self) -> bool:
        """Whether more bytes wait than `limits.max_unread_events` allows for events."""
        if not (self._blobs or self.link.is_full):
            return False  # the next flush writes everything
        return self.buffered_bytes + self.link.unsent_bytes() > self._limits.max_unread_events

    @property
    def should_spool(self) -> bool:
        """Whether an attachment added now would wait so long that it belongs on disk."""
        return bool(self._blobs) or self.is_above_high_water

    @property
    def has_overflowed(self) -> bool:
        """Whether more waits than `limits.max_unread` or `limits.max_attachments` allows, on disk included."""
        return self.buffered_bytes > self._limits.max_unread or self._blobs > self._limits.max_attachments

    def spool_attachment(self, message: Attachment, spools: AttachmentSpools, awaited_name: str) -> Attachment:
        """Move an attachment to disk if it must wait for another attachment or for a slow consumer."""
        data = message.data
        if (
            not isinstance(data, bytes)
            or len(data) < _MIN_SPOOLED
            or (awaited_name == message.name and not self.should_spool)
        ):
            return message
        blob = spools.store(data)
        return Attachment(message.name, error=blob.error) if blob.error else Attachment(message.name, blob)

    def add(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Queue packets; with a journal, `ops` holds the operation of each packet."""
        frame_of, append, tally = self.link.frame, self.pending.append, self.tally
        for number, packet in enumerate(packets):
            tally.count_sent(packet_size(packet))
            if packet.blob is None:
                frame = frame_of(packet)
                append(frame)
                self.buffered_bytes += len(frame)
            else:
                append(packet.blob)
                self._blobs += 1
            if self.track is not None:
                self._unrecorded.append((self.track.clock(), (packet,), (ops[number],)))

    def put(self, shared: SharedFrame) -> None:
        """Add a frame that other peers get, too."""
        self.pending.append(shared.frame)
        tally = self.tally
        tally.frames_out += 1
        tally.bytes_out += len(shared.packet.payload)
        if self.track is not None:
            self._unrecorded.append((self.track.clock(), (shared.packet,), (shared.op,)))

    def write_shared(self, frames: bytes, shared_frames: Sequence[SharedFrame]) -> None:
        """Write or queue frames that other peers get, too; the caller counts them."""
        must_wait = self.pending or self.link.is_full
        if must_wait:
            self.pending.append(frames)
        else:
            self.link.write(frames)
        if self.track is not None:
            packets, ops = [shared.packet for shared in shared_frames], [shared.op for shared in shared_frames]
            if must_wait:
                self._unrecorded.append((self.track.clock(), packets, ops))
            else:
                self.track.record_sent_many(packets, ops)

    def send(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Write packets behind those that wait; queue the rest if the link is full. `ops` is as for `add`."""
        sizes = [len(packet.payload) for packet in packets]
        # A packet with a blob has no payload.
        if not self.pending and not self.link.is_full and all(sizes):
            frames = self.link.frame(packets[0]) if len(packets) == 1 else self.link.frames(packets)
            if len(frames) <= FLUSH_THRESHOLD:
                self.link.write(frames)
                tally = self.tally
                tally.frames_out += len(sizes)
                tally.bytes_out += sum(sizes)
                if self.track is not None:
                    self.track.record_sent_many(packets, ops)
                return
        self.add(packets, ops)
        self.flush()

    def recount(self) -> None:
        """Update `buffered_bytes`: events are queued without being counted."""
        pending = self.pending
        # Only new frames: a stuck reader has ten thousand of them, and is checked in every iteration.
        added = islice(reversed(pending), len(pending) - self._counted)
        size = sum([len(shared) for shared in added if type(shared) is bytes])
        self.buffered_bytes = size + self._counted_size if self._counted else size
        self._counted, self._counted_size = len(pending), self.buffered_bytes

    def flush(self) -> None:
        """Write as much as the link accepts."""
        pending, link = self.pending, self.link
        fragments = 0
        while pending and not link.is_full and fragments < _FRAGMENTS_PER_FLUSH:
            if self._blobs and isinstance(pending[0], Blob):
                self._write_fragment(pending[0])
                fragments += 1
            elif self._blobs or self.buffered_bytes > FLUSH_THRESHOLD:
                link.write(self._take_frames())
            else:
                link.write(pending.popleft() if len(pending) == 1 else b"".join(pending))
                pending.clear()
                self._counted = 0
            if self.track is not None:
                self._record_written(self.track)
        if pending:
            self.recount()
        else:
            self.buffered_bytes = 0

    def _take_frames(self) -> bytes:
        """Return the frames before the next blob, up to about `FLUSH_THRESHOLD` bytes."""
        taken: list[bytes] = []
        size = self._counted = 0
        while self.pending and size < FLUSH_THRESHOLD and not isinstance(self.pending[0], Blob):
            taken.append(self.pending.popleft())
            size += len(taken[-1])
        return b"".join(taken)

    def _write_fragment(self, blob: Blob) -> None:
        start = self._offset
        self._offset += FRAGMENT_SIZE
        last = self._offset >= len(blob)
        self.link.write(self.link.frame_piece(blob.read(start, FRAGMENT_SIZE), first=start == 0, last=last))
        if last:
            self._offset = 0
            self._blobs -= 1
            self._counted = 0
            self.pending.popleft()

    def clear(self) -> int:
        """Discard everything; return the number of packets that the journal will not record as written."""
        self.pending.clear()
        unwritten = sum(len(packets) for _, packets, _ in self._unrecorded)
        self._unrecorded.clear()
        return unwritten

    def _record_written(self, track: ConnectionRecorder) -> None:
        while len(self._unrecorded) > len(self.pending):
            since, packets, ops = self._unrecorded.popleft()
            track.record_sent_many(packets, ops, since)
