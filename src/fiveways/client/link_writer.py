"""Packets to a link: all of one pass in one write, large attachments in pieces as the link takes them."""

from collections import deque
from typing import Final

from fiveways.transports.base import Link
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet

FRAGMENT_SIZE: Final = 1 << 17
"""Bytes of a large attachment that go out as one fragment."""


class LinkWriter:
    """Writes to one link, in order."""

    __slots__ = ("_blob_offset", "_link", "pending")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._blob_offset = 0
        """How much of the blob at the head has gone."""
        self.pending: deque[bytes | Blob] = deque()
        """A blob that is on its way, and what stands behind it; who has more to say waits until there is nothing."""

    def write(self, packets: list[Packet]) -> None:
        """Write packets, or let them wait behind a blob."""
        link, frame = self._link, self._link.frame
        # A list is quicker than a generator.
        if not self.pending and all([packet.blob is None for packet in packets]):  # noqa: C419
            link.write(link.frames(packets))
            return
        self.pending.extend(frame(packet) if packet.blob is None else packet.blob for packet in packets)
        self.resume()

    def resume(self) -> None:
        """Write what waited, as much as the link takes."""
        link, waiting = self._link, self.pending
        while waiting and not link.is_full:
            head = waiting[0]
            if isinstance(head, bytes):
                waiting.popleft()
                link.write(head)
            elif not self._write_fragment(head):
                waiting.clear()

    def _write_fragment(self, blob: Blob) -> bool:
        """Write the next piece; end the link if there is none, as half of a message cannot be taken back."""
        start, size = self._blob_offset, len(blob)
        try:
            piece = blob.read(start, FRAGMENT_SIZE)
        except OSError:
            self._link.abort()
            return False
        self._blob_offset += len(piece)
        last = self._blob_offset >= size
        self._link.write(self._link.frame_piece(piece, first=start == 0, last=last))
        if last:
            self._blob_offset = 0
            self.pending.popleft()
        return True
