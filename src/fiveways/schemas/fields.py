"""What printing and reading share: well-known types, the bounds, and sentences about what is wrong and where."""

from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_DEPTH: Final = 128
"""How deep messages may be nested where they are printed, those packed into Any among them."""
MAX_WIRE_DEPTH: Final = 100
"""How deep below the outermost they may be where they are read from JSON: parsers take no more unless told to."""

VALUE: Final = "google.protobuf.Value"
STRUCT: Final = "google.protobuf.Struct"
LIST_VALUE: Final = "google.protobuf.ListValue"
ANY: Final = "google.protobuf.Any"
NULL_VALUE: Final = "google.protobuf.NullValue"
STRING_MESSAGES: Final = frozenset(
    {"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"}
)
"""Messages that are a string in JSON, for which the library has ToJsonString and FromJsonString."""

INTEGER_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: ("int32", -(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: ("uint32", 0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: ("int64", -(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: ("uint64", 0, (1 << 64) - 1),
}

_MAX_SHOWN: Final = 60
_MAX_PATH: Final = 200


class MappingError(Exception):
    """What is wrong with a body; where that is gets added on the way up, the innermost place first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.places: list[str] = []

    def add_place(self, place: str) -> "MappingError":
        """Add the next place outward: a field, an index or a key."""
        self.places.append(place)
        return self

    def __str__(self) -> str:
        path = "".join(reversed(self.places)).removeprefix(".")
        if len(path) > _MAX_PATH:
            path = f"{path[:_MAX_PATH]}..."
        return f"{path}: {self.text}" if path else self.text


def abbreviate(value: object) -> str:
    """Show a value that came from outside, but not all of a long one."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if value is None:
        return "null"
    # Python refuses to write a very long integer at all.
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_SHOWN:
        return "a very long integer"
    text = repr(value[: _MAX_SHOWN + 1]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def is_wrapper(descriptor: Descriptor) -> bool:
    """Whether the message only wraps a scalar, and is that scalar in JSON."""
    return descriptor.file.name == "google/protobuf/wrappers.proto"


def is_regular_message(descriptor: Descriptor) -> bool:
    """Whether the message is an object of its fields in JSON."""
    return descriptor.full_name not in {VALUE, STRUCT, LIST_VALUE, ANY, *STRING_MESSAGES} and not is_wrapper(descriptor)


def map_entry_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return key and value of a map, which protobuf writes as repeated messages; None if the field is no map."""
    entry = field.message_type
    if entry is None or not entry.has_options or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def find_packed_type(any_descriptor: Descriptor, url: object) -> Descriptor:
    """Return what is packed into an Any, if the schema has it."""
    name = url.rpartition("/")[2] if isinstance(url, str) else ""
    try:
        found: Descriptor = any_descriptor.file.pool.FindMessageTypeByName(name)
    except KeyError:
        raise MappingError(f"an Any of the type {abbreviate(url)}, which the schema does not have") from None
    return found
