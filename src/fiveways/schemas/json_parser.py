"""Values of JSON as messages, by protobuf's own mapping.

Fields may have their names from the .proto file or those of JSON (`said_at`, `saidAt`). Null is a field that is not
set. Beyond the mapping, bytes and numbers that are not finite are taken from encodings that have them. Everything that
does not fit is Wrong: unknown fields and names, numbers out of range, what is given twice. `json_format` of the library
is laxer here and there, and takes four times as long, as it looks at each field's kind on every call.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fiveways.schemas.fields import (
    ANY,
    LIST_VALUE,
    MAX_WIRE_DEPTH,
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
from fiveways.schemas.scalars import Converter, key_reader, parse_finite, parse_text, scalar_reader

Filler = Callable[[Any, Any, int], None]
"""Fills a message with a value; the number says how many levels of messages there may be, this one among them."""

_fillers: dict[Descriptor, Filler] = {}


def filler_of(descriptor: Descriptor) -> Filler:
    """Return what fills empty messages of this type; it raises Wrong for what they cannot hold."""
    known = _fillers.get(descriptor)
    if known is not None:
        return known
    special = _special_filler(descriptor)
    if special is None:
        made = _MessageFiller(descriptor.full_name)
        # Before its fields are looked at, since a message may hold others of its own type.
        _fillers[descriptor] = made.fill
        made.compile(descriptor)
        return made.fill
    _fillers[descriptor] = special
    return special


class _FieldChecks:
    """What has to be looked at before some fields are filled, and most need not."""

    __slots__ = ("oneof", "other_name", "takes_null")

    def __init__(self, field: FieldDescriptor, twin: str) -> None:
        self.other_name = twin
        """The other name under which the field may be given, if there is one."""
        group = field.containing_oneof
        self.oneof = group.name if group is not None and len(group.fields) > 1 else ""
        self.takes_null = _takes_null(field) and not field.is_repeated

    def check(self, message: Message, given: dict[str, object], key: str) -> None:
        if self.other_name in given:
            raise MappingError(f"{key} and {self.other_name} are one field, given twice")
        if self.oneof and (other := message.WhichOneof(self.oneof)):
            raise MappingError(f"of {other} and {key} there may be only one")


class _MessageFiller:
    """How to fill each field of one type of message."""

    __slots__ = ("_fields", "_full_name")

    def __init__(self, full_name: str) -> None:
        self._full_name = full_name
        self._fields: dict[str, tuple[str, Converter | None, Filler, _FieldChecks | None]] = {}
        """By each of its names: a field's own name, what reads a plain value, what fills any other, what is rare."""

    def compile(self, descriptor: Descriptor) -> None:
        own_names = {field.name for field in descriptor.fields}
        for field in descriptor.fields:
            # What we print is always read as what it was, even if another field has that name in JSON.
            spellings = {field.name, field.json_name} - (own_names - {field.name})
            convert, put = _field_filler(field)
            for key in spellings:
                rare = _FieldChecks(field, "".join(spellings - {key}))
                is_rare = rare.other_name or rare.oneof or rare.takes_null
                self._fields[key] = field.name, convert, put, rare if is_rare else None

    def fill(self, message: Message, value: object, room: int) -> None:
        if room <= 0:
            raise _depth_error()
        if type(value) is not dict:
            raise MappingError(f"{abbreviate(value)} instead of an object with the fields of {self._full_name}")
        fields = self._fields
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                raise MappingError(f"{self._full_name} has no field {abbreviate(key)}")
            name, convert, put, rare = field
            if item is None and (rare is None or not rare.takes_null):
                continue
            try:
                if rare is not None:
                    rare.check(message, value, key)
                if convert is not None:
                    setattr(message, name, convert(item))
                else:
                    put(message, item, room)
            except MappingError as wrong:
                raise wrong.add_place(f".{key}") from None


def _field_filler(field: FieldDescriptor) -> tuple[Converter | None, Filler]:
    """Return what reads the value of a single scalar, else None and what fills the field."""
    name = field.name
    if (entry := map_entry_fields(field)) is not None:
        return None, _map_filler(name, *entry)
    if field.message_type is not None:
        fill = filler_of(field.message_type)
        return None, _repeated_filler(field, fill) if field.is_repeated else _message_filler(name, fill)
    convert = scalar_reader(field)
    if field.is_repeated:
        return None, lambda message, value, _room: getattr(message, name).extend(_convert_items(value, convert))
    return convert, _unreachable


def _unreachable(_message: object, _value: object, _room: int) -> None:
    raise AssertionError("a scalar is set, not filled")


def _message_filler(name: str, fill: Filler) -> Filler:
    def put(message: Message, value: object, room: int) -> None:
        inner = getattr(message, name)
        # An empty message is not the same as none.
        inner.SetInParent()
        fill(inner, value, room - 1)

    return put


def _repeated_filler(field: FieldDescriptor, fill: Filler) -> Filler:
    name, takes_null = field.name, _takes_null(field)

    def put(message: Message, value: object, room: int) -> None:
        add = getattr(message, name).add
        for index, item in enumerate(_check_array(value)):
            try:
                _check_element(item, takes_null)
                fill(add(), item, room - 1)
            except MappingError as wrong:
                raise wrong.add_place(f"[{index}]") from None

    return put


def _map_filler(name: str, key_field: FieldDescriptor, inner: FieldDescriptor) -> Filler:
    read_key = key_reader(key_field)
    takes_null = _takes_null(inner)
    fill = None if inner.message_type is None else filler_of(inner.message_type)
    convert = scalar_reader(inner) if fill is None else None

    def put(message: Message, value: object, room: int) -> None:
        if type(value) is not dict:
            raise MappingError(f"{abbreviate(value)} instead of an object")
        if value:
            # An entry is a message too.
            _check_depth(room - 1)
        target = getattr(message, name)
        for text, item in value.items():
            try:
                key = read_key(text)
                if key in target:
                    raise MappingError("the key is there twice")  # noqa: TRY301 - its place is added below
                _check_element(item, takes_null)
                if fill is not None:
                    fill(target[key], item, room - 2)
                elif convert is not None:
                    target[key] = convert(item)
            except MappingError as wrong:
                raise wrong.add_place(f"[{abbreviate(text)}]") from None

    return put


def _convert_items(value: object, convert: Converter) -> list[object]:
    items = _check_array(value)
    try:
        return [convert(item) for item in items]
    except MappingError:
        for index, item in enumerate(items):
            try:
                convert(item)
            except MappingError as wrong:
                raise wrong.add_place(f"[{index}]") from None
        raise


def _check_array(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return value  # type: ignore[return-value]  # as good as a list for whoever only reads it
    raise MappingError(f"{abbreviate(value)} instead of an array")


def _takes_null(field: FieldDescriptor) -> bool:
    if field.message_type is not None:
        return bool(field.message_type.full_name == VALUE)
    return field.enum_type is not None and bool(field.enum_type.full_name == NULL_VALUE)


def _check_element(item: object, takes_null: bool) -> None:
    if item is None and not takes_null:
        raise MappingError("null, which is no element")


def _check_depth(room: int) -> None:
    if room <= 0:
        raise _depth_error()


def _depth_error() -> MappingError:
    return MappingError(f"nested deeper than {MAX_WIRE_DEPTH} messages")


# Messages that JSON writes in a way of their own.


def _special_filler(descriptor: Descriptor) -> Filler | None:
    name = descriptor.full_name
    if name in STRING_MESSAGES:
        return _fill_text
    if is_wrapper(descriptor):
        convert = scalar_reader(descriptor.fields_by_name["value"])
        return lambda message, value, room: _fill_wrapper(message, convert(value), room)
    if descriptor.is_extendable:
        return _fill_extendable
    return {VALUE: _fill_value, STRUCT: _fill_struct, LIST_VALUE: _fill_list, ANY: _fill_any}.get(name)


def _fill_text(message: Any, value: object, room: int) -> None:  # noqa: ANN401 - the library has no base for these
    _check_depth(room)
    if not isinstance(value, str):
        raise MappingError(f"{abbreviate(value)} instead of a string for {message.DESCRIPTOR.full_name}")
    try:
        message.FromJsonString(value)
    except (ValueError, OverflowError) as exc:
        raise MappingError(f"{abbreviate(value)} is no {message.DESCRIPTOR.full_name}: {exc}") from exc


def _fill_wrapper(message: Any, value: object, room: int) -> None:  # noqa: ANN401
    _check_depth(room)
    message.value = value


def _fill_extendable(message: Message, value: object, room: int) -> None:
    """Leave extensions, which only proto2 has, to the library."""
    if not isinstance(value, dict):
        raise MappingError(
            f"{abbreviate(value)} instead of an object with the fields of {message.DESCRIPTOR.full_name}"
        )
    pool: Any = message.DESCRIPTOR.file.pool
    try:
        json_format.ParseDict(value, message, descriptor_pool=pool, max_recursion_depth=max(room, 0))
    # It has checks for what JSON can hold, and trips over what else may come.
    except (json_format.ParseError, TypeError, ValueError, KeyError, AttributeError, OverflowError) as exc:
        raise MappingError(str(exc)) from exc


def _fill_value(message: Any, value: object, room: int) -> None:  # noqa: ANN401
    _check_depth(room)
    match value:
        case None:
            message.null_value = 0
        case bool():
            message.bool_value = value
        case str():
            message.string_value = parse_text(value)
        case int() | float():
            message.number_value = parse_finite(value)
        case dict():
            message.struct_value.SetInParent()
            _fill_struct(message.struct_value, value, room - 1)
        case list() | tuple():
            message.list_value.SetInParent()
            _fill_list(message.list_value, value, room - 1)
        case _:
            raise MappingError(f"{abbreviate(value)}, which JSON does not have, in a Value")


def _fill_struct(message: Any, value: object, room: int) -> None:  # noqa: ANN401
    if not isinstance(value, dict):
        raise MappingError(f"{abbreviate(value)} instead of an object")
    _check_depth(room)
    target = message.fields
    for key, item in value.items():
        try:
            # Between a Struct and its values there are entries of a map.
            _fill_value(target[parse_text(key)], item, room - 2)
        except MappingError as wrong:
            raise wrong.add_place(f"[{abbreviate(key)}]") from None


def _fill_list(message: Any, value: object, room: int) -> None:  # noqa: ANN401
    _check_depth(room)
    add = message.values.add
    for index, item in enumerate(_check_array(value)):
        try:
            _fill_value(add(), item, room - 1)
        except MappingError as wrong:
            raise wrong.add_place(f"[{index}]") from None


def _fill_any(message: Any, value: object, room: int) -> None:  # noqa: ANN401
    _check_depth(room)
    if not isinstance(value, dict):
        raise MappingError(f"{abbreviate(value)} instead of an object with '@type'")
    if not value:
        return
    url = value.get("@type")
    if not isinstance(url, str):
        raise MappingError("an Any without '@type'")
    descriptor = find_packed_type(message.DESCRIPTOR, url)
    content: object = {key: item for key, item in value.items() if key != "@type"}
    if not is_regular_message(descriptor):
        if value.keys() != {"@type", "value"}:
            raise MappingError(f"an Any of {descriptor.full_name} has '@type' and 'value', and nothing else")
        content = value["value"]
    packed = GetMessageClass(descriptor)()
    # The parser counts anew in what is packed; counting on keeps what is packed in what is packed bounded.
    filler_of(descriptor)(packed, content, room - 1)
    message.type_url = url
    message.value = serialize(packed)


def serialize(message: Message) -> bytes:
    """Return the message as bytes; Wrong if something that it requires is not set."""
    try:
        return message.SerializeToString()
    except EncodeError as exc:
        raise MappingError(str(exc)) from exc
