"""Protobuf schema of the shop's services, for the MQTT peers of the demo.

The descriptor set is built here instead of by protoc. It is stored in the directory of the run, for
`fiveways call mqtt-rpc+mqtt://... --schema`.
"""

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

PACKAGE: Final = "shop"
FILE: Final = "shop.binpb"
_FIELD_TYPES: Final = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "Text": {"text": "string"},
    "Shown": {"text": "string", "number": "int32"},
    "Item": {"item": "string"},
    "Price": {"item": "string", "price": "double"},
    "Sale": {"item": "string", "count": "int32"},
    "Receipt": {"number": "int32", "total": "double"},
    "Order": {"number": "int32", "state": "string"},
    "Entry": {"text": "string", "amount": "double"},
    "Balance": {"balance": "double", "entries": "int32"},
    "Stamped": {"text": "string", "code": "string"},
    "Bed": {"bed": "int32", "litres": "double"},
    "Reading": {"bed": "int32", "temperature": "double", "moisture": "double"},
}
_SERVICES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Front": {"Show": ("Text", "Shown")},
    "Till": {"Ring": ("Sale", "Receipt")},
    "Books": {"Enter": ("Entry", "Balance")},
    "Prices": {"Quote": ("Item", "Price"), "History": ("Item", "stream Price")},
    "Greenhouse": {"Measure": ("Bed", "Reading"), "Water": ("Bed", "Reading"), "Watch": ("Bed", "stream Reading")},
    "Orders": {"Place": ("Sale", "Order"), "Arrange": ("Sale", "Order")},
    "Labels": {"Stamp": ("Text", "Stamped")},
}
"""Methods of each service, with the types of request and response."""
SERVICES: Final = tuple(_SERVICES)


def descriptor_set() -> bytes:
    """Return the descriptor set of all services."""
    file = FileDescriptorProto(name="shop.proto", package=PACKAGE, syntax="proto3")
    file.message_type.extend(_message(name, fields) for name, fields in _MESSAGES.items())
    file.service.extend(_service(name, methods) for name, methods in _SERVICES.items())
    return FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)


def _message(name: str, fields: Mapping[str, str]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for number, (field, type_name) in enumerate(fields.items(), 1):
        message.field.add(
            name=field, number=number, type=_FIELD_TYPES[type_name], label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    return message


def _service(name: str, methods: Mapping[str, tuple[str, str]]) -> ServiceDescriptorProto:
    service = ServiceDescriptorProto(name=name)
    for method, (request, response) in methods.items():
        streams, _, type_name = response.rpartition(" ")
        service.method.add(
            name=method,
            input_type=f".{PACKAGE}.{request}",
            output_type=f".{PACKAGE}.{type_name}",
            server_streaming=bool(streams),
        )
    return service
