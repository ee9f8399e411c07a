"""Message fields that hold attachments, in requests and responses."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from fiveways.schemas.services import SchemaError, Service

NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})


def find_attachment_fields(services: Iterable[Service], fields: Mapping[str, str]) -> dict[str, tuple[str, bool]]:
    """Return the attachment field of each message, and whether it is repeated.

    Raises:
        SchemaError: no method uses the message, or the message has no such field of type bytes.
    """
    descriptors: dict[str, Any] = {}
    for service in services:
        for method in service.methods.values():
            for message in (method.request, method.response):
                descriptor: Any = message.DESCRIPTOR
                descriptors[descriptor.full_name] = descriptor
    return {name: _check_field(name, field, descriptors) for name, field in fields.items()}


def _check_field(name: str, field: str, descriptors: Mapping[str, Any]) -> tuple[str, bool]:
    descriptor = descriptors.get(name)
    if descriptor is None:
        raise SchemaError(f"no method of a known service has the request or response {name}")
    field_descriptor = descriptor.fields_by_name.get(field)
    if field_descriptor is None or field_descriptor.type != FieldDescriptor.TYPE_BYTES:
        known = ", ".join(item.name for item in descriptor.fields if item.type == FieldDescriptor.TYPE_BYTES)
        raise SchemaError(f"{name} has no field {field} of type bytes; such fields: {known or 'none'}")
    return field, field_descriptor.is_repeated
