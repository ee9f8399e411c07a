"""Limits for unfinished input: incomplete requests, frames and fragmented messages."""

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from fiveways.transports.address import network_address

UNFINISHED: Final = "max_unfinished"
UNAUTHENTICATED: Final = "max_unauthenticated"
"""Names of limits, as in the settings."""


class ReadBuffer(Protocol):
    """Read buffer that keeps its size when it is empty."""

    def shrink(self) -> None:
        """Release memory if the buffer is empty."""


class UnfinishedInput:
    """Byte counts of unfinished input, in total and by address, with their limits."""

    def __init__(self, max_bytes: int, max_per_address: int, refused: Callable[[str, str], None]) -> None:
        self._max_bytes = max_bytes
        self._max_per_address = max_per_address
        self.on_refused = refused
        """Called with limit name and peer address for each connection that a limit closes."""
        self.held = 0
        self._by_address = Counter[str]()
        self.grown_buffers: set[ReadBuffer] = set()
        """Read buffers above their initial size."""

    def count(self, more: int, remote: str) -> bool:
        """Add `more` bytes, which may be negative. Return False, and count nothing, if a limit is reached."""
        address = network_address(remote)
        if more > 0 and not self._has_room(more, address):
            for buffer in list(self.grown_buffers):
                buffer.shrink()
            if not self._has_room(more, address):
                return False
        self.held += more
        self._by_address[address] += more
        if not self._by_address[address]:
            del self._by_address[address]
        return True

    def _has_room(self, more: int, address: str) -> bool:
        return self.held + more <= self._max_bytes and self._by_address[address] + more <= self._max_per_address
