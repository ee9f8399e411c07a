"""Input that has not come completely: half of a request, of a frame or of a message in fragments."""

from collections.abc import Callable
from typing import Final, Protocol

UNFINISHED: Final = "max_unfinished"
UNAUTHENTICATED: Final = "max_unauthenticated"
"""Names of limits, as the settings have them."""


class Buffer(Protocol):
    """A read buffer that keeps its size when its content is gone."""

    def shrink(self) -> None:
        """Return memory if nothing is in the buffer."""


class UnfinishedInput:
    """The bytes of all connections together, and their limit."""

    def __init__(self, most: int, refused: Callable[[str, str], None]) -> None:
        self._most = most
        self.refused = refused
        """Called for each connection that one of the limits ends, with the limit's name and where the client is."""
        self.held = 0
        self.buffers: set[Buffer] = set()
        """Those that have grown."""

    def hold(self, more: int) -> bool:
        """Count so many bytes more, or fewer; return False, and count nothing, if there is no room for them."""
        if more > 0 and self.held + more > self._most:
            for buffer in list(self.buffers):
                buffer.shrink()
            if self.held + more > self._most:
                return False
        self.held += more
        return True
