"""Reassembly of fragmented WebSocket messages, in memory or in a spool for large binary ones."""

from typing import Final

from fiveways.transports.base import Spool, SpoolFactory
from fiveways.wire.packet import Packet

SPOOL_ABOVE: Final = 1 << 20
PROGRESS_STEP: Final = 1 << 14
"""Bytes that count as progress of a large message; smaller steps could keep a slow transfer alive for ever."""


class FragmentedMessage:
    """Message that arrives in fragments."""

    def __init__(self, is_text: bool, max_size: int, spools: SpoolFactory | None) -> None:
        self._is_text = is_text
        self._max_size = max_size
        self._spools = spools
        self._pieces: list[bytes] = []
        self.size = 0
        self.held = 0
        """Bytes in memory."""
        self._spool: Spool | None = None
        self._reported = 0
        self._is_discarded = False

    def add(self, piece: bytes) -> bool:
        """Append a fragment; return whether the size grew by `PROGRESS_STEP` since the last report."""
        if not piece:
            return False
        self.size += len(piece)
        if self._is_discarded:
            pass
        elif self._spools is None:
            # One byte over the limit is enough for the conversation to refuse the message.
            if self.size - len(piece) <= self._max_size:
                self._pieces.append(piece[: self._max_size + 1])
                self.held += len(self._pieces[-1])
        elif self._spool is None:
            self._pieces.append(piece)
            self.held += len(piece)
            if self.size > SPOOL_ABOVE:
                self._spool = self._spools.open()
                self._spool.write(b"".join(self._pieces))
                self._pieces = []
                self.held = 0
        else:
            self._spool.write(piece)
        if self.size - self._reported < PROGRESS_STEP:
            return False
        self._reported = self.size
        return True

    def discard(self) -> None:
        """Discard the content of a binary message, received or still to come."""
        if not self._is_text:
            self._is_discarded, self.held = True, 0
            self._pieces, self._spool = [], None

    def finish(self) -> Packet:
        """Return the complete message."""
        if self._spool is not None:
            return Packet(b"", is_text=False, blob=self._spool.finish())
        return Packet(b"".join(self._pieces), self._is_text)
