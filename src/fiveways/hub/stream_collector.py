"""Collection of a stream into one array, for a receiver without streams."""

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Payload, Value


class CollectError(FivewaysError):
    """The array has no room for one more element, or cannot hold it; the text gives the reason."""


class ByteCounter:
    """Bytes of all arrays of one peer."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class StreamCollector:
    """A growing array within the limits of a stream, of a text, and of all arrays of its peer.

    The buffer is JSON: decoded values would take many times as much memory.
    """

    __slots__ = ("_buffer", "_count", "_limits", "_peer_bytes")

    def __init__(self, limits: Limits, peer_bytes: ByteCounter) -> None:
        self._limits = limits
        self._peer_bytes = peer_bytes
        self._count = 0
        self._buffer = bytearray(b"[")

    def add(self, body: Payload) -> None:
        """Append an element; raise CollectError if that is impossible."""
        if self._count >= self._limits.max_stream:
            raise CollectError(f"more than {self._limits.max_stream} elements")
        try:
            body.value()  # finds bodies without a value early
            raw = body.json()
        except Unrepresentable as exc:
            raise CollectError(str(exc)) from exc
        size = len(raw) + len(",")
        if len(self._buffer) + size + len("]") > self._limits.max_text:
            raise CollectError(f"more than {self._limits.max_text} bytes")
        if self._peer_bytes.used + size > self._limits.max_unread:
            raise CollectError(f"more than {self._limits.max_unread} bytes of collected streams for one peer")
        self._peer_bytes.used += size
        self._count += 1
        self._buffer += raw
        self._buffer += b","

    def to_array(self) -> Payload:
        """Return the array; raise CollectError if it is nested too deeply."""
        try:
            return Value(Json(bytes(self._buffer).removesuffix(b",") + b"]").value())
        except Unrepresentable as exc:
            raise CollectError(str(exc)) from exc

    def clear(self) -> None:
        """Release all elements."""
        if self._count:
            self._peer_bytes.used -= len(self._buffer) - len("[")
            self._count = 0
            self._buffer = bytearray(b"[")


def as_array(body: Payload) -> Payload:
    """Return an array: the body itself if it is one, because a callee without streams returns all elements at once."""
    try:
        value = body.value()
    except Unrepresentable as exc:
        raise CollectError(str(exc)) from exc
    return body if isinstance(value, list) else Value([value])
