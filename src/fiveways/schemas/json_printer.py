"""Messages as values of JSON, by protobuf's own mapping.

Fields have their names from the .proto file. Those without presence are always there. The library does the same in
`json_format`, which looks up each field's kind on every call; here it is looked up once for each type, and a small
message takes a quarter of the time. A test holds the two against each other.
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
"""From what a field holds, and how many levels may follow, to a value of JSON."""

_FLOAT: Final = struct.Struct("<f")
_printers: dict[Descriptor, Printer] = {}


def printer_of(descriptor: Descriptor) -> Printer:
    """Return what prints messages of this type; it raises Wrong for what JSON cannot say."""
    known = _printers.get(descriptor)
    if known is not None:
        return known
    special = _special_printer(descriptor)
    if special is None:
        made = _MessagePrinter()
        # Before its fields are looked at, since a message may hold others of its own type.
        _printers[descriptor] = made.to_json
        made.compile(descriptor)
        return made.to_json
    _printers[descriptor] = special
    return special


class _MessagePrinter:
    """How to print each field of one type of message."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: tuple[tuple[str, bool, Printer | None], ...] = ()

    def compile(self, descriptor: Descriptor) -> None:
        self._fields = tuple((field.name, field.has_presence, _field_printer(field)) for field in descriptor.fields)

    def to_json(self, message: Message, room: int) -> dict[str, object]:
        _check_depth(room)
        values: dict[str, object] = {}
        for name, may_be_absent, convert in self._fields:
            if may_be_absent and not message.HasField(name):
                continue
            value = getattr(message, name)
            if convert is None:
                values[name] = value
                continue
            try:
                values[name] = convert(value, room)
            except MappingError as wrong:
                raise wrong.add_place(f".{name}") from None
        return values


def _field_printer(field: FieldDescriptor) -> Printer | None:
    """Return None for what JSON holds just as it is."""
    if (entry := map_entry_fields(field)) is not None:
        return _map_printer(entry[0], _single_printer(entry[1]))
    convert = _single_printer(field)
    if not field.is_repeated:
        return convert
    if convert is None:
        return lambda items, _room: list(items)
    return lambda items, room: [convert(item, room) for item in items]


def _map_printer(key_field: FieldDescriptor, convert: Printer | None) -> Printer:
    write: Callable[[Any], object] = str
    if key_field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        write = {False: "false", True: "true"}.__getitem__
    elif key_field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        write = _identity
    if convert is None:
        return lambda items, _room: {write(key): value for key, value in items.items()}

    def printed(items: Any, room: int) -> object:  # noqa: ANN401 - the library's map
        values: dict[object, object] = {}
        for key, value in items.items():
            try:
                values[write(key)] = convert(value, room)
            except MappingError as wrong:
                raise wrong.add_place(f"[{abbreviate(key)}]") from None
        return values

    return printed


def _identity(key: object) -> object:
    return key


def _single_printer(field: FieldDescriptor) -> Printer | None:
    if field.message_type is not None:
        convert = printer_of(field.message_type)
        return lambda message, room: convert(message, room - 1)
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
    # With aliases, the first name of a number is the one that the library prints.
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number, _room: names.get(number, number)


def _non_finite_text(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _shortest_float(number: float) -> float:
    """Return the number with the fewest digits that is this one in four bytes, so that 0.1 is not 0.10000000149."""
    for digits in (6, 7, 8):
        short = float(f"{number:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(short))[0] == number:
            return short
    return float(f"{number:.9g}")


# Messages that JSON writes in a way of their own.


def _special_printer(descriptor: Descriptor) -> Printer | None:
    name = descriptor.full_name
    if name in STRING_MESSAGES:
        return _print_text
    if is_wrapper(descriptor):
        convert = _single_printer(descriptor.fields_by_name["value"])
        return lambda message, room: message.value if convert is None else convert(message.value, room)
    if descriptor.is_extendable:
        return _print_extendable
    return {VALUE: _print_value, STRUCT: _print_struct, LIST_VALUE: _print_list, ANY: _print_any}.get(name)


def _print_text(message: Any, _room: int) -> object:  # noqa: ANN401 - the library's types have no common base for this
    try:
        return message.ToJsonString()
    except (ValueError, OverflowError) as exc:
        raise MappingError(str(exc)) from exc


def _print_extendable(message: Message, _room: int) -> object:
    """Leave extensions, which only proto2 has, to the library."""
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


def _print_value(message: Any, room: int) -> object:  # noqa: ANN401
    match message.WhichOneof("kind"):
        case "number_value":
            if not math.isfinite(message.number_value):
                raise MappingError(f"JSON has no {message.number_value}, and a Value has no other way to say it")
            return message.number_value
        case "struct_value":
            return _print_struct(message.struct_value, room - 1)
        case "list_value":
            return _print_list(message.list_value, room - 1)
        case None | "null_value":
            return None
        case kind:
            return getattr(message, kind)


def _print_struct(message: Any, room: int) -> object:  # noqa: ANN401
    _check_depth(room)
    return {key: _print_value(value, room) for key, value in message.fields.items()}


def _print_list(message: Any, room: int) -> object:  # noqa: ANN401
    _check_depth(room)
    return [_print_value(value, room) for value in message.values]


def _print_any(message: Any, room: int) -> object:  # noqa: ANN401
    """Print what is packed. The parser counts levels anew for it, so here is the only bound."""
    _check_depth(room)
    url = message.type_url
    if not url and not message.value:
        return {}
    descriptor = find_packed_type(message.DESCRIPTOR, url)
    try:
        packed = GetMessageClass(descriptor).FromString(message.value)
    except DecodeError as exc:
        raise MappingError(f"an Any that does not hold a {abbreviate(descriptor.full_name)}") from exc
    value = printer_of(descriptor)(packed, room - 1)
    if is_regular_message(descriptor) and isinstance(value, dict):
        return {"@type": url, **value}
    return {"@type": url, "value": value}


def _check_depth(room: int) -> None:
    if room <= 0:
        raise MappingError(f"nested deeper than {MAX_DEPTH}")
