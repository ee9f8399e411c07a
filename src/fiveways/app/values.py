"""Conversion of a method's return value to a message body."""

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Final

import msgspec

from fiveways.app.conversion import from_model
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire import strict_json
from fiveways.wire.payload import NULL, Json, Payload, Value, may_hold_markers

_SCALAR_TYPES: Final = frozenset({str, int, float, bool, bytes, NoneType})
_KEPT_TYPES: Final = (bytes,)


class Unsendable(FivewaysError):
    """A value of a type that cannot be encoded; the message says why."""


def to_body(value: object) -> Payload:
    """Return a value that msgspec can encode (dataclass, struct, date, enum and so on) as a body; bytes stay bytes."""
    kind = type(value)
    if kind is dict or kind is list:
        # The common case: encoding right away is fastest.
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
    """Copy the defaults of dataclasses from class to instance, at any depth; attribute access is not affected.

    msgspec leaves defaults on the class when it decodes a dataclass, and encodes only fields of the instance.
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
            # In a class with slots the class attribute is the slot descriptor.
            if field.name not in own and default is not MISSING and getattr(kind, field.name, MISSING) is default:
                own[field.name] = default
        items = _attributes(value, (field.name for field in fields(value)))
    elif isinstance(value, msgspec.Struct):
        items = _attributes(value, value.__struct_fields__)
    else:
        items = _attributes(value, (attribute.name for attribute in getattr(value, "__attrs_attrs__", ())))
    for item in items:
        _set_defaults(item)


def _attributes(value: object, names: Iterable[str]) -> Iterable[object]:
    return (getattr(value, name, None) for name in names)
