"""Protobuf for raw peers, independent of the library on the other side.

Messages are lists of (number, value): an int is a varint, a float 64 bits, and bytes have a length prefix.
"""

import struct
from collections.abc import Iterator
from typing import Any

Field = tuple[int, int | float | bytes]
_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_MASK = (1 << 64) - 1


def packed(*fields: Field) -> bytes:
    """Serialize a message."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, bytes):
            out += _varint(number << 3 | _BYTES) + _varint(len(value)) + value
        elif isinstance(value, float):
            out += _varint(number << 3 | _DOUBLE) + struct.pack("<d", value)
        else:
            out += _varint(number << 3 | _VARINT) + _varint(value & _MASK)
    return bytes(out)


def fields(data: bytes) -> Iterator[Field]:
    """Parse a message."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
        elif kind == _DOUBLE:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            assert kind == _BYTES, kind
            size, at = _read_varint(data, at)
            yield number, data[at : at + size]
            at += size


def message(data: bytes) -> dict[int, Any]:
    """Parse a message without repeated fields."""
    return dict(fields(data))


def signed(number: int) -> int:
    """Return the int64 value of a varint."""
    return number - (1 << 64) if number >> 63 else number


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


# google.protobuf.Value: 1 null, 2 number, 3 string, 4 bool, 5 Struct, 6 ListValue.


def pack_value(value: Any) -> bytes:  # noqa: ANN401  any JSON
    """Serialize a google.protobuf.Value."""
    match value:
        case None:
            return packed((1, 0))
        case bool():
            return packed((4, int(value)))
        case int() | float():
            return packed((2, float(value)))
        case str():
            return packed((3, value.encode()))
        case list():
            return packed((6, packed(*((1, pack_value(item)) for item in value))))
        case _:
            entries = (packed((1, key.encode()), (2, pack_value(item))) for key, item in value.items())
            return packed((5, packed(*((1, entry) for entry in entries))))


def read_value(data: bytes) -> Any:  # noqa: ANN401  any JSON
    """Parse a google.protobuf.Value."""
    ((kind, content),) = fields(data)
    match kind, content:
        case 1, _:
            return None
        case 4, _:
            return bool(content)
        case 3, bytes():
            return content.decode()
        case 6, bytes():
            return [read_value(item) for _, item in fields(content) if isinstance(item, bytes)]
        case 5, bytes():
            entries = [message(entry) for _, entry in fields(content) if isinstance(entry, bytes)]
            return {entry.get(1, b"").decode(): read_value(entry[2]) for entry in entries}
    return content
