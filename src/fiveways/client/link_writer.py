"""Writes packets to a link: one write per flush, and large attachments in fragments."""

from collections import deque
from typing import Final

from fiveways.transports.base import Link
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet

FRAGMENT_SIZE: Final = 1 << 17
"""Bytes of one fragment of a large attachment."""


class LinkWriter:
    """Writes packets to one link, in order."""

    __slots__ = ("_blob_offset", "_link", "pending")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._blob_offset = 0
        """Bytes of the first blob that were written."""
        self.pending: deque[bytes | Blob] = deque()
        """A blob in progress, and the packets behind it. Writers wait until it is empty."""

    def write(self, packets: list[Packet]) -> None:
        """Write packets, or queue them behind a blob."""
        link, frame = self._link, self._link.frame
        # A list comprehension is faster than a generator here.
        if not self.pending and all([packet.blob is None for packet in packets]):  # noqa: C419
            link.write(link.frames(packets))
            return
        self.pending.extend(frame(packet) if packet.blob is None else packet.blob for packet in packets)
        self.resume()

    def resume(self) -> None:
        """Write queued packets until the link is full."""
        link, pending = self._link, self.pending
        while pending and not link.is_full:
            head = pending[0]
            if isinstance(head, bytes):
                pending.popleft()
                link.write(head)
            elif not self._write_fragment(head):
                pending.clear()

    def _write_fragment(self, blob: Blob) -> bool:
        """Write the next fragment. If it cannot be read, close the link: half of a message cannot be withdrawn."""
        start, size = self._blob_offset, len(blob)
        try:
            fragment = blob.read(start, FRAGMENT_SIZE)
        except OSError:
            self._link.abort()
            return False
        self._blob_offset += len(fragment)
        last = self._blob_offset >= size
        self._link.write(self._link.frame_piece(fragment, first=start == 0, last=last))
        if last:
            self._blob_offset = 0
            self.pending.popleft()
        return True
