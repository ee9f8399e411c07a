"""What a method gives back, as a body."""

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Final

import msgspec

from fiveways.app.conversion import from_model
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire import strict_json
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value, may_hold_markers

_SCALAR_TYPES: Final = frozenset({str, int, float, bool, bytes, NoneType})
_KEPT_TYPES: Final = (bytes,)
_MESSAGE_OVERHEAD: Final = 128

MAX_BUFFERED: Final = 256 << 20
"""Bytes that may wait in memory for the methods of one application: attachments, and elements of streams."""


class Unsendable(FivewaysError):
    """A value that is made of things no protocol knows; the message is a sentence."""


def to_body(value: object) -> Payload:
    """Return any value that msgspec can write (dataclasses, structs, dates, enums, ...) as a body; bytes stay bytes.

    Raises:
        Unsendable: it holds something else.
    """
    kind = type(value)
    if kind is dict or kind is list:
        # Most answers are such, and are best written at once.
        try:
            raw = strict_json.write(value)
        except Unrepresentable:
            pass
        else:
            if not may_hold_markers(raw):
                return Json(raw)
    if kind in _SCALAR_TYPES:
        return NULL if value is None else Value(value)
    if isinstance(value, bytearray | memoryview):
        return Value(bytes(value))
    try:
        _set_defaults(value)
        return Value(msgspec.to_builtins(value, builtin_types=_KEPT_TYPES, str_keys=True, enc_hook=from_model))
    except Exception as exc:
        raise Unsendable(f"a {kind.__name__} cannot be sent: {exc}") from exc


def _set_defaults(value: object) -> None:
    """Copy the defaults of dataclasses from class to instance, at any depth; no attribute reads differently afterwards.

    msgspec leaves them on the class when it decodes a dataclass, and encodes only the fields that the instance holds.
    """
    items: Iterable[object]
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        items = value
    elif is_dataclass(value):
        own = getattr(value, "__dict__", {})
        kind = type(value)
        for field in fields(value):
            default = field.default
            # In a class with slots the attribute is the slot.
            if field.name not in own and default is not MISSING and getattr(kind, field.name, MISSING) is default:
                own[field.name] = default
        items = _attributes(value, (field.name for field in fields(value)))
    elif isinstance(value, msgspec.Struct):
        items = _attributes(value, value.__struct_fields__)
    else:
        items = _attributes(value, (each.name for each in getattr(value, "__attrs_attrs__", ())))
    for item in items:
        _set_defaults(item)


def _attributes(value: object, names: Iterable[str]) -> Iterable[object]:
    return (getattr(value, name, None) for name in names)


def memory_cost(body: Payload) -> int:
    """Return about how many bytes of memory a body takes while it waits."""
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
    """How many bytes wait, of all calls and events together."""

    def __init__(self, limit: int = MAX_BUFFERED) -> None:
        self.limit = limit
        self.used = 0

    def acquire(self, size: int) -> bool:
        """Count so many more; False, and nothing is counted, if they are too many."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Count so many less."""
        self.used -= size
