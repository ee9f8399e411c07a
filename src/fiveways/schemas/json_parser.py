"""Parser from JSON payloads to messages, with protobuf's own mapping.

Fields may have their names from the .proto file or their JSON names (`said_at`, `saidAt`). A null field is not set.
Beyond the mapping, bytes and non-finite numbers are accepted from encodings that have them. Anything else raises
MappingError: unknown fields and names, numbers out of range, duplicates. The library's parser, `json_format`, is less
strict in places and four times slower, because it inspects each field descriptor on every call.
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
"""Fills a message with a value; the number is the allowed nesting depth, including this message."""

_fillers: dict[Descriptor, Filler] = {}


def filler_of(descriptor: Descriptor) -> Filler:
    """Return a function that fills empty messages of this type; it raises MappingError."""
    cached = _fillers.get(descriptor)
    if cached is not None:
        return cached
    special = _special_filler(descriptor)
    if special is None:
        filler = _MessageFiller(descriptor.full_name)
        # Before its field descriptors are compiled, because a message may contain its own type.
        _fillers[descriptor] = filler.fill
        filler.compile(descriptor)
        return filler.fill
    _fillers[descriptor] = special
    return special


class _FieldChecks:
    """Checks that only some fields need."""

    __slots__ = ("oneof", "other_name", "takes_null")

    def __init__(self, field: FieldDescriptor, other_name: str) -> None:
        self.other_name = other_name
        """The other name of the field, if it has one."""
        oneof = field.containing_oneof
        self.oneof = oneof.name if oneof is not None and len(oneof.fields) > 1 else ""
        self.takes_null = _takes_null(field) and not field.is_repeated

    def check(self, message: Message, fields: dict[str, object], key: str) -> None:
        if self.other_name in fields:
            raise MappingError(f"{key} and {self.other_name} are the same field, which occurs twice")
        if self.oneof and (other := message.WhichOneof(self.oneof)):
            raise MappingError(f"{other} and {key} exclude each other (oneof)")


class _MessageFiller:
    """Fillers for the fields of one message type."""

    __slots__ = ("_fields", "_full_name")

    def __init__(self, full_name: str) -> None:
        self._full_name = full_name
        self._fields: dict[str, tuple[str, Converter | None, Filler, _FieldChecks | None]] = {}
        """By each name of a field: its own name, the converter of a scalar, the filler of any other, rare checks."""

    def compile(self, descriptor: Descriptor) -> None:
        own_names = {field.name for field in descriptor.fields}
        for field in descriptor.fields:
            # The name in the .proto file, which is printed, takes precedence over another field's JSON name.
            spellings = {field.name, field.json_name} - (own_names - {field.name})
            convert, put = _field_filler(field)
            for key in spellings:
                checks = _FieldChecks(field, "".join(spellings - {key}))
                is_needed = checks.other_name or checks.oneof or checks.takes_null
                self._fields[key] = field.name, convert, put, checks if is_needed else None

    def fill(self, message: Message, value: object, depth_left: int) -> None:
        if depth_left <= 0:
            raise _depth_error()
        if type(value) is not dict:
            raise MappingError(f"{abbreviate(value)} instead of an object with the fields of {self._full_name}")
        fields = self._fields
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                raise MappingError(f"{self._full_name} has no field {abbreviate(key)}")
            name, convert, put, checks = field
            if item is None and (checks is None or not checks.takes_null):
                continue
            try:
                if checks is not None:
                    checks.check(message, value, key)
                if convert is not None:
                    setattr(message, name, convert(item))
                else:
                    put(message, item, depth_left)
            except MappingError as exc:
                raise exc.add_place(f".{key}") from None


def _field_filler(field: FieldDescriptor) -> tuple[Converter | None, Filler]:
    """Return the converter of a singular scalar, or None and a filler."""
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
    raise AssertionError("scalars are set, not filled")


def _message_filler(name: str, fill: Filler) -> Filler:
    def put(message: Message, value: object, depth_left: int) -> None:
        inner = getattr(message, name)
        # An empty message differs from a missing one.
        inner.SetInParent()
        fill(inner, value, depth_left - 1)

    return put


def _repeated_filler(field: FieldDescriptor, fill: Filler) -> Filler:
    name, takes_null = field.name, _takes_null(field)

    def put(message: Message, value: object, depth_left: int) -> None:
        add = getattr(message, name).add
        for index, item in enumerate(_check_array(value)):
            try:
                _check_element(item, takes_null)
                fill(add(), item, depth_left - 1)
            except MappingError as exc:
                raise exc.add_place(f"[{index}]") from None

    return put


def _map_filler(name: str, key_field: FieldDescriptor, inner: FieldDescriptor) -> Filler:
    read_key = key_reader(key_field)
    takes_null = _takes_null(inner)
    fill = None if inner.message_type is None else filler_of(inner.message_type)
    convert = scalar_reader(inner) if fill is None else None

    def put(message: Message, value: object, depth_left: int) -> None:
        if type(value) is not dict:
            raise MappingError(f"{abbreviate(value)} instead of an object")
        if value:
            # A map entry counts as a message.
            _check_depth(depth_left - 1)
        target = getattr(message, name)
        for text, item in value.items():
            try:
                key = read_key(text)
                if key in target:
                    raise MappingError("the key occurs twice")  # noqa: TRY301 - the place is added below
                _check_element(item, takes_null)
                if fill is not None:
                    fill(target[key], item, depth_left - 2)
                elif convert is not None:
                    target[key] = convert(item)
            except MappingError as exc:
                raise exc.add_place(f"[{abbreviate(text)}]") from None

    return put


def _convert_items(value: object, convert: Converter) -> list[object]:
    items = _check_array(value)
    try:
        return [convert(item) for item in items]
    except MappingError:
        for index, item in enumerate(items):
            try:
                convert(item)
            except MappingError as exc:
                raise exc.add_place(f"[{index}]") from None
        raise


def _check_array(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return value  # type: ignore[return-value]  # only read
    raise MappingError(f"{abbreviate(value)} instead of an array")


def _takes_null(field: FieldDescriptor) -> bool:
    if field.message_type is not None:
        return bool(field.message_type.full_name == VALUE)
    return field.enum_type is not None and bool(field.enum_type.full_name == NULL_VALUE)


def _check_element(item: object, takes_null: bool) -> None:
    if item is None and not takes_null:
        raise MappingError("null is not allowed as an element")


def _check_depth(depth_left: int) -> None:
    if depth_left <= 0:
        raise _depth_error()


def _depth_error() -> MappingError:
    return MappingError(f"nested deeper than {MAX_WIRE_DEPTH} messages")


# Message descriptors with a JSON encoding of their own.


def _special_filler(descriptor: Descriptor) -> Filler | None:
    name = descriptor.full_name
    if name in STRING_MESSAGES:
        return _fill_text
    if is_wrapper(descriptor):
        convert = scalar_reader(descriptor.fields_by_name["value"])
        return lambda message, value, depth_left: _fill_wrapper(message, convert(value), depth_left)
    if descriptor.is_extendable:
        return _fill_extendable
    return {VALUE: _fill_value, STRUCT: _fill_struct, LIST_VALUE: _fill_list, ANY: _fill_any}.get(name)


def _fill_text(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401 - the library has no base class for these
    _check_depth(depth_left)
    if not isinstance(value, str):
        raise MappingError(f"{abbreviate(value)} instead of a string for {message.DESCRIPTOR.full_name}")
    try:
        message.FromJsonString(value)
    except (ValueError, OverflowError) as exc:
        raise MappingError(f"{abbreviate(value)} is not a {message.DESCRIPTOR.full_name}: {exc}") from exc


def _fill_wrapper(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401
    _check_depth(depth_left)
    message.value = value


def _fill_extendable(message: Message, value: object, depth_left: int) -> None:
    """Use the library for messages with extensions, which only proto2 has."""
    if not isinstance(value, dict):
        raise MappingError(
            f"{abbreviate(value)} instead of an object with the fields of {message.DESCRIPTOR.full_name}"
        )
    pool: Any = message.DESCRIPTOR.file.pool
    try:
        json_format.ParseDict(value, message, descriptor_pool=pool, max_recursion_depth=max(depth_left, 0))
    # The library's parser checks only JSON types; other payloads raise various exceptions.
    except (json_format.ParseError, TypeError, ValueError, KeyError, AttributeError, OverflowError) as exc:
        raise MappingError(str(exc)) from exc


def _fill_value(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401
    _check_depth(depth_left)
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
            _fill_struct(message.struct_value, value, depth_left - 1)
        case list() | tuple():
            message.list_value.SetInParent()
            _fill_list(message.list_value, value, depth_left - 1)
        case _:
            raise MappingError(f"{abbreviate(value)} is not possible in a Value, which holds only JSON")


def _fill_struct(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401
    if not isinstance(value, dict):
        raise MappingError(f"{abbreviate(value)} instead of an object")
    _check_depth(depth_left)
    target = message.fields
    for key, item in value.items():
        try:
            # The values of a Struct are nested in map entries.
            _fill_value(target[parse_text(key)], item, depth_left - 2)
        except MappingError as exc:
            raise exc.add_place(f"[{abbreviate(key)}]") from None


def _fill_list(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401
    _check_depth(depth_left)
    add = message.values.add
    for index, item in enumerate(_check_array(value)):
        try:
            _fill_value(add(), item, depth_left - 1)
        except MappingError as exc:
            raise exc.add_place(f"[{index}]") from None


def _fill_any(message: Any, value: object, depth_left: int) -> None:  # noqa: ANN401
    _check_depth(depth_left)
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
            raise MappingError(f"an Any of {descriptor.full_name} must have '@type' and 'value' only")
        content = value["value"]
    packed = GetMessageClass(descriptor)()
    # Parsers start to count again in a packed message; continuing to count bounds nested Any messages.
    filler_of(descriptor)(packed, content, depth_left - 1)
    message.type_url = url
    message.value = serialize(packed)


def serialize(message: Message) -> bytes:
    """Serialize a message; MappingError if a required field is not set."""
    try:
        return message.SerializeToString()
    except EncodeError as exc:
        raise MappingError(str(exc)) from exc
