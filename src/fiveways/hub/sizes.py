"""How much a body takes, for all that is kept within bounds."""

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
