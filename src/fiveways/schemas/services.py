"""Services and their methods, as protobuf describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Self

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from fiveways.errors import FivewaysError
from fiveways.model import names

Kind = Literal["unary", "server", "client", "both"]
"""Which side streams."""

# By (the client streams, the server streams).
_KIND_BY_STREAMING: dict[tuple[bool, bool], Kind] = {
    (False, False): "unary",
    (False, True): "server",
    (True, False): "client",
    (True, True): "both",
}
_NO_DOCS: Mapping[str, str] = MappingProxyType({})


class SchemaError(FivewaysError):
    """A schema that cannot be used; the message is a sentence for whoever gave it."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service."""

    name: str
    """As in the schema, such as `SayHello`."""
    kind: Kind
    request: type[Message]
    response: type[Message]
    doc: str = ""
    """The comment above it, where the schema came with its comments."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service and its methods by name; two names that the hub could not tell apart are a SchemaError."""

    name: str
    """Such as `Greeter`."""
    full_name: str
    """With its package, such as `demo.Greeter`."""
    methods: Mapping[str, Method]
    doc: str = ""
    _by_folded_name: Mapping[str, Method] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded: dict[str, Method] = {}
        for name, method in self.methods.items():
            try:
                other = folded.setdefault(names.fold(name, names.MQTT), method)
            except names.BadName as exc:
                raise SchemaError(f"{self.full_name} has a method that cannot be called: {exc}") from exc
            if other is not method:
                raise SchemaError(f"{self.full_name} has {other.name} and {name}, which the hub cannot tell apart")
        # The way to set a field of what is frozen.
        object.__setattr__(self, "methods", MappingProxyType(dict(self.methods)))
        object.__setattr__(self, "_by_folded_name", folded)

    def find(self, name: str) -> Method | None:
        """Return the method of that name, else the one whose name folds alike: `say_hello` finds `SayHello`."""
        method = self.methods.get(name)
        if method is not None:
            return method
        try:
            return self._by_folded_name.get(names.fold(name, names.MQTT))
        except names.BadName:
            return None

    @classmethod
    def of(cls, given: object) -> Self:
        """Return the service that something stands for.

        Args:
            given: a Service; a service's descriptor, or a generated class that has one as DESCRIPTOR; a generated
                module, or a file's descriptor, if there is one service in it.

        Raises:
            SchemaError: it stands for no service, or for several.
        """
        if isinstance(given, cls):
            return given
        descriptor = given
        if not isinstance(given, ServiceDescriptor | FileDescriptor):
            descriptor = getattr(given, "DESCRIPTOR", None)
        if isinstance(descriptor, FileDescriptor):
            descriptor = _only_service(descriptor)
        if not isinstance(descriptor, ServiceDescriptor):
            raise SchemaError(
                f"{_abbreviate(given)} is no service: give its descriptor, or a class that was generated from it"
            )
        return cls.from_descriptor(descriptor)

    @classmethod
    def from_descriptor(cls, descriptor: ServiceDescriptor, docs: Mapping[str, str] = _NO_DOCS) -> Self:
        """Return the service of a descriptor; `docs` are comments by name, the service's own by the empty name."""
        methods = {method.name: _make_method(method, docs.get(method.name, "")) for method in descriptor.methods}
        return cls(descriptor.name, descriptor.full_name, methods, docs.get("", ""))


def _make_method(descriptor: MethodDescriptor, doc: str) -> Method:
    kind = _KIND_BY_STREAMING[descriptor.client_streaming, descriptor.server_streaming]
    request, response = GetMessageClass(descriptor.input_type), GetMessageClass(descriptor.output_type)
    return Method(descriptor.name, kind, request, response, doc)


def _only_service(file: FileDescriptor) -> ServiceDescriptor:
    services = list(file.services_by_name.values())
    if len(services) == 1:
        return services[0]
    found = ", ".join(service.full_name for service in services) or "none"
    raise SchemaError(f"{file.name} has not one service but {found}: say which")


def _abbreviate(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:80]}..."
