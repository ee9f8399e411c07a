"""Converters from JSON values to scalar fields: one function per kind of field, created once."""

import binascii
import math
import re
import struct
from binascii import a2b_base64
from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from fiveways.schemas.fields import INTEGER_RANGES, NULL_VALUE, MappingError, abbreviate

Converter = Callable[[object], object]
"""Converts a JSON value to the field's type; MappingError if that is impossible."""

_INT32: Final = INTEGER_RANGES[FieldDescriptor.CPPTYPE_INT32]
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_URLSAFE_TO_STANDARD: Final = str.maketrans("-_", "+/")
_FLOAT: Final = struct.Struct("<f")
_MAX_NUMBER_LENGTH: Final = 400
"""Characters of a number in a string: more than any double needs, and fast to parse."""


def scalar_reader(field: FieldDescriptor) -> Converter:
    """Return the converter of a field, or of one element of a repeated field."""
    kind = field.cpp_type
    if kind in INTEGER_RANGES:
        return _integer_reader(*INTEGER_RANGES[kind])
    match kind:
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return _parse_double
        case FieldDescriptor.CPPTYPE_FLOAT:
            return _parse_float
        case FieldDescriptor.CPPTYPE_BOOL:
            return _parse_bool
        case _ if field.enum_type is not None:
            return _enum_reader(field.enum_type)
        case _:
            return _parse_bytes if field.type == FieldDescriptor.TYPE_BYTES else parse_text


def key_reader(field: FieldDescriptor) -> Converter:
    """Return the converter of a map key, which is a string in JSON."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _parse_bool_key
    if field.cpp_type not in INTEGER_RANGES:
        return parse_text
    convert = _integer_reader(*INTEGER_RANGES[field.cpp_type])
    return lambda text: convert(parse_text(text))


def parse_text(value: object) -> str:
    """Return a string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise MappingError(f"{abbreviate(value)} instead of a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MappingError("an unpaired surrogate in a string") from None
    return value


def parse_finite(value: float) -> float:
    """Return a number as a finite double."""
    try:
        number = float(value)
    except OverflowError:
        raise MappingError(f"{abbreviate(value)} is out of the range of double") from None
    if not math.isfinite(number):
        raise MappingError(f"{number} is not possible in JSON")
    return number


def _integer_reader(name: str, minimum: int, maximum: int) -> Converter:
    def convert(value: object) -> int:
        number = value if type(value) is int else _parse_integer(value, name)
        if minimum <= number <= maximum:
            return number
        raise MappingError(f"{abbreviate(value)} is out of the range of {name}")

    return convert


def _parse_integer(value: object, name: str) -> int:
    """Return an integer from a string, or from a number without a fraction such as 1e3."""
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_LENGTH and (match := _NUMBER.fullmatch(value)):
        value = float(value) if match[1] or match[2] else int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise MappingError(f"{abbreviate(value)} is not a valid {name}")


def _parse_double(value: object) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str):
        if value in _NON_FINITE:
            return _NON_FINITE[value]
        if len(value) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(value):
            raise MappingError(f"{abbreviate(value)} is not a number")
        return parse_finite(float(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_finite(value)
    raise MappingError(f"{abbreviate(value)} is not a number")


def _parse_float(value: object) -> float:
    number = _parse_double(value)
    try:
        _FLOAT.pack(number)
    except OverflowError:
        raise MappingError(f"{abbreviate(value)} is out of the range of float") from None
    return number


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise MappingError(f"{abbreviate(value)} is neither true nor false")


def _parse_bool_key(text: object) -> bool:
    if text not in {"true", "false"}:
        raise MappingError("a key that is neither 'true' nor 'false'")
    return text == "true"


def _parse_bytes(value: object) -> bytes:
    """Decode base64 in either alphabet, with or without padding; bytes, from CBOR and similar encodings, stay bytes."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise MappingError(f"{abbreviate(value)} instead of base64")
    bare = value.rstrip("=").translate(_URLSAFE_TO_STANDARD)
    try:
        return a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise MappingError(f"{abbreviate(value)} is not base64") from None


def _enum_reader(enum: EnumDescriptor) -> Converter:
    numbers = {name: value.number for name, value in enum.values_by_name.items()}
    known = frozenset(numbers.values()) if enum.is_closed else None
    takes_null = enum.full_name == NULL_VALUE
    full_name = enum.full_name

    def convert(value: object) -> int:
        if type(value) is str:
            if value in numbers:
                return numbers[value]
            raise MappingError(f"{full_name} has no {abbreviate(value)}")
        if value is None and takes_null:
            return 0
        number = _parse_integer(value, full_name)
        if (known is None and _INT32[1] <= number <= _INT32[2]) or (known is not None and number in known):
            return number
        raise MappingError(f"{full_name} has no {abbreviate(value)}")

    return convert
