"""Fields of messages that hold attachments."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from fiveways.schemas.services import SchemaError, Service

NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})


def find_attachment_fields(services: Iterable[Service], wanted: Mapping[str, str]) -> dict[str, tuple[str, bool]]:
    """Return for each message whether its field for attachments is repeated, beside the field's name.

    Raises:
        SchemaError: no method takes or gives a message of that name, or it has no such field, or one without bytes.
    """
    known: dict[str, Any] = {}
    for service in services:
        for method in service.methods.values():
            for message in (method.request, method.response):
                descriptor: Any = message.DESCRIPTOR
                known[descriptor.full_name] = descriptor
    return {name: _check_field(name, field, known) for name, field in wanted.items()}


def _check_field(name: str, field: str, known: Mapping[str, Any]) -> tuple[str, bool]:
    descriptor = known.get(name)
    if descriptor is None:
        raise SchemaError(f"no method of a known service takes or gives a message {name}")
    found = descriptor.fields_by_name.get(field)
    if found is None or found.type != FieldDescriptor.TYPE_BYTES:
        there = ", ".join(each.name for each in descriptor.fields if each.type == FieldDescriptor.TYPE_BYTES)
        raise SchemaError(f"{name} has no field {field} of bytes; there are {there or 'none'}")
    return field, found.is_repeated
