"""A WebSocket message that comes in fragments: in memory, or in a spool if it is a large binary one."""

from typing import Final

from fiveways.transports.base import Spool, SpoolFactory
from fiveways.wire.packet import Packet

SPOOL_ABOVE: Final = 1 << 20
PROGRESS_STEP: Final = 1 << 14
"""So many bytes of a large message count as progress; less could be said one by one, for ever."""


class FragmentedMessage:
    """A message that comes in fragments."""

    def __init__(self, is_text: bool, max_size: int, spools: SpoolFactory | None) -> None:
        self._is_text = is_text
        self._max_size = max_size
        self._spools = spools
        self._pieces: list[bytes] = []
        self.size = 0
        self.held = 0
        """Bytes of it in memory."""
        self._spool: Spool | None = None
        self._told = 0
        self._is_discarded = False

    def add(self, piece: bytes) -> bool:
        """Take a fragment; say whether it counts as progress."""
        if not piece:
            return False
        self.size += len(piece)
        if self._is_discarded:
            pass
        elif self._spools is None:
            # One byte more than is allowed is enough for the conversation to refuse it.
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
        if self.size - self._told < PROGRESS_STEP:
            return False
        self._told = self.size
        return True

    def discard(self) -> None:
        """Keep nothing of a binary message, neither of what has come nor of the rest."""
        if not self._is_text:
            self._is_discarded, self.held = True, 0
            self._pieces, self._spool = [], None

    def finish(self) -> Packet:
        """Return the whole message."""
        if self._spool is not None:
            return Packet(b"", is_text=False, blob=self._spool.finish())
        return Packet(b"".join(self._pieces), self._is_text)
