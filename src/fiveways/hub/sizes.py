"""How much a body takes, for all that is kept within bounds."""

from sys import getsizeof

from fiveways.wire.payload import Binary, Cbor, Json, Payload, Text, Value


def size_of(body: Payload) -> int:
    """Return the bytes of a body, as it came or else as JSON; Unrepresentable if it has none."""
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
    """Return about how many bytes of memory a body takes; Unrepresentable if it has no form as JSON."""
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
    """Say whether a body is null, or on MQTT nothing at all."""
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
