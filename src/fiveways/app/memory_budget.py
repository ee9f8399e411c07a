"""Bounds on the bytes that wait in memory for the methods of an application."""

from typing import Final

from fiveways.wire.payload import Binary, Cbor, Json, Payload, Text, Value

_MESSAGE_OVERHEAD: Final = 128

MAX_BUFFERED: Final = 256 << 20
"""Bytes of attachments and stream elements that may wait in memory for the methods of one application."""


def memory_cost(body: Payload) -> int:
    """Return the approximate memory of a body in bytes."""
    match body:
        case Text() | Json() | Cbor():
            return _MESSAGE_OVERHEAD + len(body.raw)
        case Binary():
            return _MESSAGE_OVERHEAD + len(body.data)
        case Value(native=str() | bytes() as native):
            return _MESSAGE_OVERHEAD + len(native)
        case _:
            return _MESSAGE_OVERHEAD


class MemoryBudget:
    """Bytes that wait, of all calls and events together."""

    def __init__(self, limit: int = MAX_BUFFERED) -> None:
        self.limit = limit
        self.used = 0

    def acquire(self, size: int) -> bool:
        """Reserve bytes; return False without a reservation if the limit would be exceeded."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Return reserved bytes."""
        self.used -= size
