"""Shared by printer and parser: well-known message descriptors, limits, and errors with the path of a field."""

from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_DEPTH: Final = 128
"""Maximum nesting of printed messages, including those packed into an Any."""
MAX_WIRE_DEPTH: Final = 100
"""Maximum nesting of parsed messages: the default limit of protobuf parsers."""

VALUE: Final = "google.protobuf.Value"
STRUCT: Final = "google.protobuf.Struct"
LIST_VALUE: Final = "google.protobuf.ListValue"
ANY: Final = "google.protobuf.Any"
NULL_VALUE: Final = "google.protobuf.NullValue"
STRING_MESSAGES: Final = frozenset(
    {"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"}
)
"""Messages that are strings in JSON, with ToJsonString and FromJsonString of the library."""

INTEGER_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: ("int32", -(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: ("uint32", 0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: ("int64", -(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: ("uint64", 0, (1 << 64) - 1),
}

_MAX_SHOWN: Final = 60
_MAX_PATH: Final = 200


class MappingError(Exception):
    """An error in a body. Its path is collected while the error propagates, innermost place first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.places: list[str] = []

    def add_place(self, place: str) -> "MappingError":
        """Add the next outer place: a field, an index or a key."""
        self.places.append(place)
        return self

    def __str__(self) -> str:
        path = "".join(reversed(self.places)).removeprefix(".")
        if len(path) > _MAX_PATH:
            path = f"{path[:_MAX_PATH]}..."
        return f"{path}: {self.text}" if path else self.text


def abbreviate(value: object) -> str:
    """Return a short representation of a foreign value."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if value is None:
        return "null"
    # Python refuses to format a very long integer.
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_SHOWN:
        return "a very long integer"
    text = repr(value[: _MAX_SHOWN + 1]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def is_wrapper(descriptor: Descriptor) -> bool:
    """Return whether the message wraps a scalar, and is that scalar in JSON."""
    return descriptor.file.name == "google/protobuf/wrappers.proto"


def is_regular_message(descriptor: Descriptor) -> bool:
    """Return whether the message is a JSON object of its fields."""
    return descriptor.full_name not in {VALUE, STRUCT, LIST_VALUE, ANY, *STRING_MESSAGES} and not is_wrapper(descriptor)


def map_entry_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return key and value field of a map, which is a repeated message on the wire; None if the field is not a map."""
    entry = field.message_type
    if entry is None or not entry.has_options or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def find_packed_type(any_descriptor: Descriptor, url: object) -> Descriptor:
    """Return the type of the message in an Any, if the schema has it."""
    name = url.rpartition("/")[2] if isinstance(url, str) else ""
    try:
        descriptor: Descriptor = any_descriptor.file.pool.FindMessageTypeByName(name)
    except KeyError:
        raise MappingError(f"an Any of the type {abbreviate(url)}, which the schema does not have") from None
    return descriptor
