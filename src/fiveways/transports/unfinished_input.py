"""Input that has not come completely: half of a request, of a frame or of a message in fragments."""

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from fiveways.transports.address import network_address

UNFINISHED: Final = "max_unfinished"
UNAUTHENTICATED: Final = "max_unauthenticated"
"""Names of limits, as the settings have them."""


class ReadBuffer(Protocol):
    """A read buffer that keeps its size when its content is gone."""

    def shrink(self) -> None:
        """Return memory if nothing is in the buffer."""


class UnfinishedInput:
    """The bytes of all connections together and by address, and their limits."""

    def __init__(self, most: int, most_per_address: int, refused: Callable[[str, str], None]) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self.on_refused = refused
        """Called for each connection that one of the limits ends, with the limit's name and where the client is."""
        self.held = 0
        self._by_address = Counter[str]()
        self.grown_buffers: set[ReadBuffer] = set()
        """Those that have grown."""

    def count(self, more: int, remote: str) -> bool:
        """Count so many bytes more, or fewer; return False, and count nothing, if there is no room for them."""
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
        return self.held + more <= self._most and self._by_address[address] + more <= self._most_per_address
