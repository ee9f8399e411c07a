"""Services and their methods, from protobuf descriptors."""

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
"""Side that streams: none, the server, the client or both."""

# By (the client streams, the server streams).
_KIND_BY_STREAMING: dict[tuple[bool, bool], Kind] = {
    (False, False): "unary",
    (False, True): "server",
    (True, False): "client",
    (True, True): "both",
}
_NO_DOCS: Mapping[str, str] = MappingProxyType({})


class SchemaError(FivewaysError):
    """A schema that cannot be used; the message explains the problem to its author."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service."""

    name: str
    """Name in the schema, such as `SayHello`."""
    kind: Kind
    request: type[Message]
    response: type[Message]
    doc: str = ""
    """Leading comment in the schema, if the schema has its comments."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service and its methods by name; SchemaError if the hub could not distinguish two of them."""

    name: str
    """Name such as `Greeter`."""
    full_name: str
    """Name with the package, such as `demo.Greeter`."""
    methods: Mapping[str, Method]
    doc: str = ""
    _by_folded_name: Mapping[str, Method] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded: dict[str, Method] = {}
        for name, method in self.methods.items():
            try:
                other = folded.setdefault(names.fold(name, names.MQTT), method)
            except names.BadName as exc:
                raise SchemaError(f"{self.full_name} has a method with an invalid name: {exc}") from exc
            if other is not method:
                raise SchemaError(f"{self.full_name} has {other.name} and {name}, which the hub cannot distinguish")
        # A frozen dataclass has no other way to set a field.
        object.__setattr__(self, "methods", MappingProxyType(dict(self.methods)))
        object.__setattr__(self, "_by_folded_name", folded)

    def find(self, name: str) -> Method | None:
        """Return the method of this name, or of the same folded name: `say_hello` finds `SayHello`."""
        method = self.methods.get(name)
        if method is not None:
            return method
        try:
            return self._by_folded_name.get(names.fold(name, names.MQTT))
        except names.BadName:
            return None

    @classmethod
    def of(cls, source: object) -> Self:
        """Return the service of a descriptor, a generated class or a module.

        Args:
            source: a Service; a service descriptor, or a generated class with one as DESCRIPTOR; a generated module or
                a file descriptor with one service.

        Raises:
            SchemaError: the source has no service, or several.
        """
        if isinstance(source, cls):
            return source
        descriptor = source
        if not isinstance(source, ServiceDescriptor | FileDescriptor):
            descriptor = getattr(source, "DESCRIPTOR", None)
        if isinstance(descriptor, FileDescriptor):
            descriptor = _only_service(descriptor)
        if not isinstance(descriptor, ServiceDescriptor):
            raise SchemaError(
                f"{_abbreviate(source)} is not a service: pass its descriptor, or a class that was generated from it"
            )
        return cls.from_descriptor(descriptor)

    @classmethod
    def from_descriptor(cls, descriptor: ServiceDescriptor, docs: Mapping[str, str] = _NO_DOCS) -> Self:
        """Return the service of a descriptor; `docs` are comments by method name, its own by the empty name."""
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
    names = ", ".join(service.full_name for service in services) or "none"
    raise SchemaError(f"{file.name} must have exactly one service to be used like this; it has {names}")


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
