"""What waits to be written to one peer: bounded, in order, and written once for every pass of the loop."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from fiveways.hub.traffic import Tally
from fiveways.journal.tape import Track
from fiveways.model.messages import Attachment
from fiveways.transports.base import Link
from fiveways.transports.spool import AnySpools
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, size_of

PIECE: Final = 1 << 17
"""Bytes of a large attachment that go out as one fragment."""
CORK: Final = 1 << 18
"""So much is written at once, even before the pass is over."""
_LATE: Final = 1 << 12
"""An attachment smaller than this costs more on disk than in memory."""
_PIECES: Final = 8
"""Fragments that are written before others get their turn."""


class Shared(NamedTuple):
    """A frame that several get, what is in it, and to which operation it belongs."""

    frame: bytes
    packet: Packet
    op: str


class Queue:
    """Frames in order, and how many bytes they are together."""

    __slots__ = ("size", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        """Frames as bytes, and blobs."""
        self.size = 0
        """Bytes that wait in memory."""

    def put(self, shared: Shared) -> None:
        """Let a frame wait that others get, too."""
        self.waiting.append(shared.frame)


class Outbox(Queue):
    """Frames for one link. What is too slow for it is decided by its owner, who asks `is_choked` and `is_over`."""

    __slots__ = ("_blobs", "_counted", "_counted_size", "_limits", "_notes", "_offset", "link", "tally", "track")

    def __init__(self, link: Link, limits: Limits) -> None:
        super().__init__()
        self.link = link
        self.track: Track | None = None
        """Where what is written is noted down, if it is."""
        self.tally = Tally()
        """Where it is counted."""
        self._limits = limits
        self._blobs = 0
        self._counted = self._counted_size = 0
        """How many from the head on are in the size that `count` found last; 0 when something has gone since."""
        self._offset = 0
        """How much of the blob at the head has gone."""
        self._notes: deque[tuple[int, Sequence[Packet], Sequence[str]]] = deque()
        """For each that waits, since when, what is in it, and what that belongs to; empty without a track."""

    @property
    def is_choked(self) -> bool:
        """Whether more waits than events may take."""
        if not (self._blobs or self.link.is_full):
            return False  # all of it is about to be written
        return self.size + self.link.waiting() > self._limits.max_unread_events

    @property
    def is_slow(self) -> bool:
        """Whether an attachment that is added now would wait for so long that it had better do so on disk."""
        return bool(self._blobs) or self.is_choked

    @property
    def is_over(self) -> bool:
        """Whether more waits than anything may take, on disk too."""
        return self.size > self._limits.max_unread or self._blobs > self._limits.max_attachments

    def put_away(self, word: Attachment, spools: AnySpools, awaited: str) -> Attachment:
        """Let an attachment wait on disk that has to wait: for one that is awaited before it, or for a slow reader."""
        data = word.data
        if not isinstance(data, bytes) or len(data) < _LATE or (awaited == word.name and not self.is_slow):
            return word
        blob = spools.store(data)
        return Attachment(word.name, error=blob.error) if blob.error else Attachment(word.name, blob)

    def add(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Let packets wait, which belong to operations, one each, where that is noted down."""
        frame_of, append, tally = self.link.frame, self.waiting.append, self.tally
        for number, packet in enumerate(packets):
            tally.said(size_of(packet))
            if packet.blob is None:
                frame = frame_of(packet)
                append(frame)
                self.size += len(frame)
            else:
                append(packet.blob)
                self._blobs += 1
            if self.track is not None:
                self._notes.append((self.track.clock(), (packet,), (ops[number],)))

    def put(self, shared: Shared) -> None:
        """Let a frame wait that others get, too."""
        self.waiting.append(shared.frame)
        tally = self.tally
        tally.frames_out += 1
        tally.bytes_out += len(shared.packet.payload)
        if self.track is not None:
            self._notes.append((self.track.clock(), (shared.packet,), (shared.op,)))

    def hand(self, frames: bytes, burst: Sequence[Shared]) -> None:
        """Write frames that others get, too, or let them wait; whoever has them for all counts them."""
        is_late = self.waiting or self.link.is_full
        if is_late:
            self.waiting.append(frames)
        else:
            self.link.write(frames)
        if self.track is not None:
            packets, ops = [each.packet for each in burst], [each.op for each in burst]
            if is_late:
                self._notes.append((self.track.clock(), packets, ops))
            else:
                self.track.said_all(packets, ops)

    def send(self, packets: Sequence[Packet], ops: Sequence[str] = ()) -> None:
        """Write packets, after those that wait; what the link does not take waits. `ops` are as for `add`."""
        sizes = [len(packet.payload) for packet in packets]
        # Whatever has a blob has nothing else.
        if not self.waiting and not self.link.is_full and all(sizes):
            frames = self.link.frame(packets[0]) if len(packets) == 1 else self.link.frames(packets)
            if len(frames) <= CORK:
                self.link.write(frames)
                tally = self.tally
                tally.frames_out += len(sizes)
                tally.bytes_out += sum(sizes)
                if self.track is not None:
                    self.track.said_all(packets, ops)
                return
        self.add(packets, ops)
        self.flush()

    def count(self) -> None:
        """Find out anew how much waits: events are put in without being counted."""
        waiting = self.waiting
        # Only those that are new: a reader that is stuck has ten thousand of them, and is asked in every iteration.
        added = islice(reversed(waiting), len(waiting) - self._counted)
        size = sum([len(each) for each in added if type(each) is bytes])
        self.size = size + self._counted_size if self._counted else size
        self._counted, self._counted_size = len(waiting), self.size

    def flush(self) -> None:
        """Write what the link takes."""
        waiting, link = self.waiting, self.link
        pieces = 0
        while waiting and not link.is_full and pieces < _PIECES:
            if self._blobs and isinstance(waiting[0], Blob):
                self._write_piece(waiting[0])
                pieces += 1
            elif self._blobs or self.size > CORK:
                link.write(self._some())
            else:
                link.write(waiting.popleft() if len(waiting) == 1 else b"".join(waiting))
                waiting.clear()
                self._counted = 0
            if self.track is not None:
                self._note_written(self.track)
        if waiting:
            self.count()
        else:
            self.size = 0

    def _some(self) -> bytes:
        """Return the frames up to the next blob, not too many at once."""
        taken: list[bytes] = []
        size = self._counted = 0
        while self.waiting and size < CORK and not isinstance(self.waiting[0], Blob):
            taken.append(self.waiting.popleft())
            size += len(taken[-1])
        return b"".join(taken)

    def _write_piece(self, blob: Blob) -> None:
        start = self._offset
        self._offset += PIECE
        last = self._offset >= len(blob)
        self.link.write(self.link.frame_piece(blob.read(start, PIECE), first=start == 0, last=last))
        if last:
            self._offset = 0
            self._blobs -= 1
            self._counted = 0
            self.waiting.popleft()

    def clear(self) -> int:
        """Forget all that waits; return how many of those that were to be noted down will never be written."""
        self.waiting.clear()
        unwritten = sum(len(packets) for _, packets, _ in self._notes)
        self._notes.clear()
        return unwritten

    def _note_written(self, track: Track) -> None:
        """Note what waits no longer."""
        while len(self._notes) > len(self.waiting):
            since, packets, ops = self._notes.popleft()
            track.said_all(packets, ops, since)
