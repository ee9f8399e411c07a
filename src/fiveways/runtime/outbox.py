"""What waits to be written to one peer: bounded, in order, and written once for every pass of the loop."""

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
"""Bytes of a large attachment that go out as one fragment."""
FLUSH_THRESHOLD: Final = 1 << 18
"""So much is written at once, even before the pass is over."""
_MIN_SPOOLED: Final = 1 << 12
"""An attachment smaller than this costs more on disk than in memory."""
_FRAGMENTS_PER_FLUSH: Final = 8
"""Fragments that are written before others get their turn."""


class SharedFrame(NamedTuple):
    """A frame that several get, what is in it, and to which operation it belongs."""

    frame: bytes
    packet: Packet
    op: str


class FrameQueue:
    """Frames in order, and how many bytes they are together."""

    __slots__ = ("buffered_bytes", "pending")

    def __init__(self) -> None:
        self.pending: deque[Any] = deque()
        """Frames as bytes, and blobs."""
        self.buffered_bytes = 0
        """Bytes that wait in memory."""

    def put(self, shared: SharedFrame) -> None:
        """Let a frame wait that others get, too."""
        self.pending.append(shared.frame)


class Outbox(FrameQueue):
    """Frames for one link. What is too slow for it is decided by its owner, who asks `is_choked` and `is_over`."""

    __slots__ = ("_blobs", "_counted", "_counted_size", "_limits", "_offset", "_unrecorded", "link", "tally", "track")

    def __init__(self, link: Link, limits: Limits) -> None:
        super().__init__()
        self.link = link
        self.track: ConnectionRecorder | None = None
        """Where what is written is noted down, if it is."""
        self.tally = ProtocolStats()
        """Where it is counted."""
        self._limits = limits
        self._blobs = 0
        self._counted = self._counted_size = 0
        """How many from the head on are in the size that `count` found last; 0 when something has gone since."""
        self._offset = 0
        """How much of the blob at the head has gone."""
        self._unrecorded: deque[tuple[int, Sequence[Packet], Sequence[str]]] = deque()
        """For each that waits, since when, what is in it, and what that belongs to; empty without a track."""

    @property
    def is_above_high_water(self) -> bool:
        """Whether more waits than events may take."""
        if not (self._blobs or self.link.is_full):
            return False  # all of it is about to be written
        return self.buffered_bytes + self.link.unsent_bytes() > self._limits.max_unread_events

    @property
    def should_spool(self) -> bool:
        """Whether an attachment that is added now would wait for so long that it had better do so on disk."""
        return bool(self._blobs) or self.is_above_high_water

    @property
    def has_overflowed(self) -> bool:
        """Whether more waits than anything may take, on disk too."""
        return self.buffered_bytes > self._limits.max_unread or self._blobs > self._limits.max_attachments

    def spool_attachment(self, word: Attachment, spools: AttachmentSpools, awaited: str) -> Attachment:
        """Let an attachment wait on disk that has to wait: for one that is awaited before it, or for a slow reader."""
        data = word.data
        if not isinstance(data, bytes) or len(data) < _MIN_SPOOLED or (awaited == word.name and not self.should_spool):
            return word
        blob = spools.store(data)
        return Attachment(word.name, error=blob.error) if blob.error else Attachment(word.name, blob)

    def add(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Let packets wait, which belong to operations, one each, where that is noted down."""
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
        """Let a frame wait that others get, too."""
        self.pending.append(shared.frame)
        tally = self.tally
        tally.frames_out += 1
        tally.bytes_out += len(shared.packet.payload)
        if self.track is not None:
            self._unrecorded.append((self.track.clock(), (shared.packet,), (shared.op,)))

    def write_shared(self, frames: bytes, burst: Sequence[SharedFrame]) -> None:
        """Write frames that others get, too, or let them wait; whoever has them for all counts them."""
        is_late = self.pending or self.link.is_full
        if is_late:
            self.pending.append(frames)
        else:
            self.link.write(frames)
        if self.track is not None:
            packets, ops = [each.packet for each in burst], [each.op for each in burst]
            if is_late:
                self._unrecorded.append((self.track.clock(), packets, ops))
            else:
                self.track.record_sent_many(packets, ops)

    def send(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Write packets, after those that wait; what the link does not take waits. `ops` are as for `add`."""
        sizes = [len(packet.payload) for packet in packets]
        # Whatever has a blob has nothing else.
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
        """Find out anew how much waits: events are put in without being counted."""
        waiting = self.pending
        # Only those that are new: a reader that is stuck has ten thousand of them, and is asked in every iteration.
        added = islice(reversed(waiting), len(waiting) - self._counted)
        size = sum([len(each) for each in added if type(each) is bytes])
        self.buffered_bytes = size + self._counted_size if self._counted else size
        self._counted, self._counted_size = len(waiting), self.buffered_bytes

    def flush(self) -> None:
        """Write what the link takes."""
        waiting, link = self.pending, self.link
        pieces = 0
        while waiting and not link.is_full and pieces < _FRAGMENTS_PER_FLUSH:
            if self._blobs and isinstance(waiting[0], Blob):
                self._write_fragment(waiting[0])
                pieces += 1
            elif self._blobs or self.buffered_bytes > FLUSH_THRESHOLD:
                link.write(self._take_frames())
            else:
                link.write(waiting.popleft() if len(waiting) == 1 else b"".join(waiting))
                waiting.clear()
                self._counted = 0
            if self.track is not None:
                self._record_written(self.track)
        if waiting:
            self.recount()
        else:
            self.buffered_bytes = 0

    def _take_frames(self) -> bytes:
        """Return the frames up to the next blob, not too many at once."""
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
        """Forget all that waits; return how many of those that were to be noted down will never be written."""
        self.pending.clear()
        unwritten = sum(len(packets) for _, packets, _ in self._unrecorded)
        self._unrecorded.clear()
        return unwritten

    def _record_written(self, track: ConnectionRecorder) -> None:
        """Note what waits no longer."""
        while len(self._unrecorded) > len(self.pending):
            since, packets, ops = self._unrecorded.popleft()
            track.record_sent_many(packets, ops, since)
