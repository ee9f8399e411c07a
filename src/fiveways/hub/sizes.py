"""Sizes of message bodies for the limits."""

from sys import getsizeof

from fiveways.wire.payload import Binary, Cbor, Json, Payload, Text, Value


def size_of(body: Payload) -> int:
    """Return the bytes of a body in its original form, else as JSON; Unrepresentable if it has no JSON form."""
    match body:
        case Text():
            return len(body.raw.encode(errors="surrogatepass"))
        case Json() | Cbor():
            return len(body.raw)
        case Binary():
            return len(body.data)
        case _:
            return len(body.json())


def memory_of(body: Payload) -> int:
    """Return the approximate memory of a body; Unrepresentable if it has no JSON form."""
    match body:
        case Text():
            return getsizeof(body.raw)
        case Json() | Cbor():
            return getsizeof(body.raw)
        case Binary():
            return getsizeof(body.data)
        case _:
            return max(_memory_of(body.value()), len(body.json()))


def _memory_of(value: object) -> int:
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        total += getsizeof(item)
        if isinstance(item, dict):
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item
    return total


def is_null(body: Payload) -> bool:
    """Return whether a body is null; in MQTT an empty payload counts as null."""
    match body:
        case Value():
            return body.native is None
        case Text():
            return body.raw == "null"
        case Json():
            return body.raw == b"null"
        case Cbor():
            return body.raw in (b"\xf6", b"\xf7")
        case _:
            return body == Binary(b"")
