"""Elements of a stream, put together for somebody who takes them only as one array."""

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload, Value


class TooMuch(FivewaysError):
    """The array has no room for one more element, or cannot hold it; the text says why."""


class Collected:
    """An array that grows, within the bounds of a stream and of a text."""

    __slots__ = ("_bytes", "_elements", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._elements: list[object] = []
        self._bytes = len("[]")

    def add(self, body: Payload) -> None:
        """Append an element; TooMuch if that cannot be."""
        if len(self._elements) >= self._limits.max_stream:
            raise TooMuch(f"more than {self._limits.max_stream} elements")
        try:
            self._bytes += len(body.json()) + len(",")
            value = body.value()
        except Unrepresentable as exc:
            raise TooMuch(str(exc)) from exc
        if self._bytes > self._limits.max_text:
            raise TooMuch(f"more than {self._limits.max_text} bytes")
        self._elements.append(value)

    def whole(self) -> Payload:
        """Return the array."""
        return Value(self._elements)


def as_array(body: Payload) -> Payload:
    """Return an array: the body itself where it is one, since who cannot stream gives all elements at once."""
    try:
        value = body.value()
    except Unrepresentable as exc:
        raise TooMuch(str(exc)) from exc
    return body if isinstance(value, list) else Value([value])
