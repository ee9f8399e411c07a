"""Values of JSON as what a single field of protobuf holds: one function for each kind of field, made once."""

import binascii
import math
import re
import struct
from binascii import a2b_base64
from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from fiveways.schemas.fields import INTEGERS, NULL, Wrong, shown

Convert = Callable[[object], object]
"""Returns what the field takes; Wrong if there is nothing like that."""

_INT32: Final = INTEGERS[FieldDescriptor.CPPTYPE_INT32]
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_UNUSUAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_STANDARD: Final = str.maketrans("-_", "+/")
_FLOAT: Final = struct.Struct("<f")
_LONGEST_NUMBER: Final = 400
"""Characters of a number in a string: more than any double needs, and quickly read."""


def scalar_reader(field: FieldDescriptor) -> Convert:
    """Return what reads a field's value, or one element of it if it is repeated."""
    kind = field.cpp_type
    if kind in INTEGERS:
        return _integer_reader(*INTEGERS[kind])
    match kind:
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return _double
        case FieldDescriptor.CPPTYPE_FLOAT:
            return _float
        case FieldDescriptor.CPPTYPE_BOOL:
            return _bool
        case _ if field.enum_type is not None:
            return _enum_reader(field.enum_type)
        case _:
            return _bytes if field.type == FieldDescriptor.TYPE_BYTES else text_of


def key_reader(field: FieldDescriptor) -> Convert:
    """Return what reads a key of a map: JSON has only strings there."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _bool_key
    if field.cpp_type not in INTEGERS:
        return text_of
    convert = _integer_reader(*INTEGERS[field.cpp_type])
    return lambda text: convert(text_of(text))


def text_of(value: object) -> str:
    """Return the string, if it is one that UTF-8 can hold."""
    if not isinstance(value, str):
        raise Wrong(f"{shown(value)} instead of a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Wrong("half of a surrogate pair in a string") from None
    return value


def finite(value: float) -> float:
    """Return a number as a double, if it is one that JSON has."""
    try:
        number = float(value)
    except OverflowError:
        raise Wrong(f"{shown(value)} is out of the range of double") from None
    if not math.isfinite(number):
        raise Wrong(f"JSON has no {number}")
    return number


def _integer_reader(name: str, least: int, most: int) -> Convert:
    def convert(value: object) -> int:
        number = value if type(value) is int else _integer(value, name)
        if least <= number <= most:
            return number
        raise Wrong(f"{shown(value)} is out of the range of {name}")

    return convert


def _integer(value: object, name: str) -> int:
    """Read what may stand for an integer: one in a string, or a number without a fraction such as 1e3."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and (found := _NUMBER.fullmatch(value)):
        value = float(value) if found[1] or found[2] else int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Wrong(f"{shown(value)} is no {name}")


def _double(value: object) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str):
        if value in _UNUSUAL:
            return _UNUSUAL[value]
        if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
            raise Wrong(f"{shown(value)} is no number")
        return finite(float(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return finite(value)
    raise Wrong(f"{shown(value)} is no number")


def _float(value: object) -> float:
    number = _double(value)
    try:
        _FLOAT.pack(number)
    except OverflowError:
        raise Wrong(f"{shown(value)} is out of the range of float") from None
    return number


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise Wrong(f"{shown(value)} is neither true nor false")


def _bool_key(text: object) -> bool:
    if text not in {"true", "false"}:
        raise Wrong("a key that is neither 'true' nor 'false'")
    return text == "true"


def _bytes(value: object) -> bytes:
    """Read base64 in either alphabet, with or without padding; from CBOR and the like bytes come as they are."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Wrong(f"{shown(value)} instead of base64")
    bare = value.rstrip("=").translate(_STANDARD)
    try:
        return a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise Wrong(f"{shown(value)} is no base64") from None


def _enum_reader(enum: EnumDescriptor) -> Convert:
    numbers = {name: value.number for name, value in enum.values_by_name.items()}
    known = frozenset(numbers.values()) if enum.is_closed else None
    takes_null = enum.full_name == NULL
    full_name = enum.full_name

    def convert(value: object) -> int:
        if type(value) is str:
            if value in numbers:
                return numbers[value]
            raise Wrong(f"{full_name} has no {shown(value)}")
        if value is None and takes_null:
            return 0
        number = _integer(value, full_name)
        if (known is None and _INT32[1] <= number <= _INT32[2]) or (known is not None and number in known):
            return number
        raise Wrong(f"{full_name} has no {shown(value)}")

    return convert
