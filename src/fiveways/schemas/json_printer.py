"""Prints messages as JSON values, with protobuf's own mapping.

Fields have their names from the .proto file. Fields without presence are always printed. The library's `json_format`
does the same, but inspects each field's type on every call. Here this is done once per message type: a small message
takes a quarter of the time. A test compares the results of both.
"""

import math
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fiveways.schemas.fields import (
    ANY,
    LIST_VALUE,
    MAX_DEPTH,
    NULL_VALUE,
    STRING_MESSAGES,
    STRUCT,
    VALUE,
    MappingError,
    abbreviate,
    find_packed_type,
    is_regular_message,
    is_wrapper,
    map_entry_fields,
)

Printer = Callable[[Any, int], object]
"""Converts the value of a field, with the allowed nesting depth, to a JSON value."""

_FLOAT: Final = struct.Struct("<f")
_printers: dict[Descriptor, Printer] = {}


def printer_of(descriptor: Descriptor) -> Printer:
    """Return a function that prints messages of this type; it raises MappingError."""
    cached = _printers.get(descriptor)
    if cached is not None:
        return cached
    special = _special_printer(descriptor)
    if special is None:
        printer = _MessagePrinter()
        # Before its field descriptors are compiled, because a message may contain its own type.
        _printers[descriptor] = printer.to_json
        printer.compile(descriptor)
        return printer.to_json
    _printers[descriptor] = special
    return special


class _MessagePrinter:
    """Printers for the fields of one message type."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: tuple[tuple[str, bool, Printer | None], ...] = ()

    def compile(self, descriptor: Descriptor) -> None:
        self._fields = tuple((field.name, field.has_presence, _field_printer(field)) for field in descriptor.fields)

    def to_json(self, message: Message, depth_left: int) -> dict[str, object]:
        _check_depth(depth_left)
        values: dict[str, object] = {}
        for name, may_be_absent, convert in self._fields:
            if may_be_absent and not message.HasField(name):
                continue
            value = getattr(message, name)
            if convert is None:
                values[name] = value
                continue
            try:
                values[name] = convert(value, depth_left)
            except MappingError as exc:
                raise exc.add_place(f".{name}") from None
        return values


def _field_printer(field: FieldDescriptor) -> Printer | None:
    """Return a printer, or None if the value is the same in JSON."""
    if (entry := map_entry_fields(field)) is not None:
        return _map_printer(entry[0], _single_printer(entry[1]))
    convert = _single_printer(field)
    if not field.is_repeated:
        return convert
    if convert is None:
        return lambda items, _room: list(items)
    return lambda items, depth_left: [convert(item, depth_left) for item in items]


def _map_printer(key_field: FieldDescriptor, convert: Printer | None) -> Printer:
    write: Callable[[Any], object] = str
    if key_field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        write = {False: "false", True: "true"}.__getitem__
    elif key_field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        write = _identity
    if convert is None:
        return lambda items, _room: {write(key): value for key, value in items.items()}

    def print_map(items: Any, depth_left: int) -> object:  # noqa: ANN401 - the library's map
        values: dict[object, object] = {}
        for key, value in items.items():
            try:
                values[write(key)] = convert(value, depth_left)
            except MappingError as exc:
                raise exc.add_place(f"[{abbreviate(key)}]") from None
        return values

    return print_map


def _identity(key: object) -> object:
    return key


def _single_printer(field: FieldDescriptor) -> Printer | None:
    if field.message_type is not None:
        convert = printer_of(field.message_type)
        return lambda message, depth_left: convert(message, depth_left - 1)
    if field.enum_type is not None:
        return _enum_printer(field.enum_type)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT64 | FieldDescriptor.CPPTYPE_UINT64:
            return lambda value, _room: str(value)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return lambda value, _room: value if math.isfinite(value) else _non_finite_text(value)
        case FieldDescriptor.CPPTYPE_FLOAT:
            return lambda value, _room: _shortest_float(value) if math.isfinite(value) else _non_finite_text(value)
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return lambda value, _room: b64encode(value).decode()
        case _:
            return None


def _enum_printer(enum: EnumDescriptor) -> Printer:
    if enum.full_name == NULL_VALUE:
        return lambda _number, _room: None
    # With aliases, the library prints the first name of a number.
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number, _room: names.get(number, number)


def _non_finite_text(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _shortest_float(number: float) -> float:
    """Return the shortest decimal number with this single-precision value: 0.1, not 0.10000000149."""
    for digits in (6, 7, 8):
        short = float(f"{number:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(short))[0] == number:
            return short
    return float(f"{number:.9g}")


# Message descriptors with a JSON encoding of their own.


def _special_printer(descriptor: Descriptor) -> Printer | None:
    name = descriptor.full_name
    if name in STRING_MESSAGES:
        return _print_text
    if is_wrapper(descriptor):
        convert = _single_printer(descriptor.fields_by_name["value"])
        return lambda message, depth_left: message.value if convert is None else convert(message.value, depth_left)
    if descriptor.is_extendable:
        return _print_extendable
    return {VALUE: _print_value, STRUCT: _print_struct, LIST_VALUE: _print_list, ANY: _print_any}.get(name)


def _print_text(message: Any, _room: int) -> object:  # noqa: ANN401 - the library has no base class for these
    try:
        return message.ToJsonString()
    except (ValueError, OverflowError) as exc:
        raise MappingError(str(exc)) from exc


def _print_extendable(message: Message, _room: int) -> object:
    """Use the library for messages with extensions, which only proto2 has."""
    pool: Any = message.DESCRIPTOR.file.pool
    try:
        return json_format.MessageToDict(
            message,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
            descriptor_pool=pool,
        )
    except (json_format.Error, TypeError, ValueError, DecodeError) as exc:
        raise MappingError(str(exc)) from exc


def _print_value(message: Any, depth_left: int) -> object:  # noqa: ANN401
    match message.WhichOneof("kind"):
        case "number_value":
            if not math.isfinite(message.number_value):
                raise MappingError(f"a Value cannot be {message.number_value}, which JSON does not have")
            return message.number_value
        case "struct_value":
            return _print_struct(message.struct_value, depth_left - 1)
        case "list_value":
            return _print_list(message.list_value, depth_left - 1)
        case None | "null_value":
            return None
        case kind:
            return getattr(message, kind)


def _print_struct(message: Any, depth_left: int) -> object:  # noqa: ANN401
    _check_depth(depth_left)
    return {key: _print_value(value, depth_left) for key, value in message.fields.items()}


def _print_list(message: Any, depth_left: int) -> object:  # noqa: ANN401
    _check_depth(depth_left)
    return [_print_value(value, depth_left) for value in message.values]


def _print_any(message: Any, depth_left: int) -> object:  # noqa: ANN401
    """Print the packed message. The parser starts to count levels again for it; this is the only limit."""
    _check_depth(depth_left)
    url = message.type_url
    if not url and not message.value:
        return {}
    descriptor = find_packed_type(message.DESCRIPTOR, url)
    try:
        packed = GetMessageClass(descriptor).FromString(message.value)
    except DecodeError as exc:
        raise MappingError(f"an Any that does not contain a valid {abbreviate(descriptor.full_name)}") from exc
    value = printer_of(descriptor)(packed, depth_left - 1)
    if is_regular_message(descriptor) and isinstance(value, dict):
        return {"@type": url, **value}
    return {"@type": url, "value": value}


def _check_depth(depth_left: int) -> None:
    if depth_left <= 0:
        raise MappingError(f"nested deeper than {MAX_DEPTH}")
