"""What waits to be written to one peer: bounded, in order, and written once for every pass of the loop."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from fiveways.transports.base import Link
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

PIECE: Final = 1 << 17
"""Bytes of a large attachment that go out as one fragment."""
CORK: Final = 1 << 18
"""So much is written at once, even before the pass is over."""
_PIECES: Final = 8
"""Fragments that are written before others get their turn."""


class Queue:
    """Frames in order, and how many bytes they are together."""

    __slots__ = ("size", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        """Frames as bytes, and blobs."""
        self.size = 0
        """Bytes that wait in memory."""


class Outbox(Queue):
    """Frames for one link. What is too slow for it is decided by its owner, who asks `is_choked` and `is_over`."""

    __slots__ = ("_blobs", "_limits", "_offset", "link")

    def __init__(self, link: Link, limits: Limits) -> None:
        super().__init__()
        self.link = link
        self._limits = limits
        self._blobs = 0
        self._offset = 0
        """How much of the blob at the head has gone."""

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

    def add(self, packets: Sequence[Packet]) -> None:
        """Let packets wait."""
        frame_of, append = self.link.frame, self.waiting.append
        for packet in packets:
            if packet.blob is None:
                frame = frame_of(packet)
                append(frame)
                self.size += len(frame)
            else:
                append(packet.blob)
                self._blobs += 1

    def send(self, packets: Sequence[Packet]) -> None:
        """Write packets, after those that wait; what the link does not take waits."""
        if not self.waiting and not self.link.is_full and all([packet.blob is None for packet in packets]):  # noqa: C419  quicker
            frame_of = self.link.frame
            frames = frame_of(packets[0]) if len(packets) == 1 else b"".join([frame_of(packet) for packet in packets])
            if len(frames) <= CORK:
                self.link.write(frames)
                return
        self.add(packets)
        self.flush()

    def count(self) -> None:
        """Find out anew how much waits: events are put in without being counted."""
        waiting = self.waiting
        self.size = sum(len(each) for each in waiting if type(each) is bytes) if self._blobs else sum(map(len, waiting))

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
        if waiting:
            self.count()
        else:
            self.size = 0

    def _some(self) -> bytes:
        """Return the frames up to the next blob, not too many at once."""
        taken: list[bytes] = []
        size = 0
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
            self.waiting.popleft()
