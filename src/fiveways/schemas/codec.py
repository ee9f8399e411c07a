"""Bodies of known services: protobuf on the wire, JSON for peers of other protocols.

The mapping is protobuf's own (ProtoJSON). Fields are printed under their names from the .proto file, and parsed under
these or their JSON names; fields without presence are always printed. 64-bit integers are strings, bytes are base64,
enums their names, and a Timestamp is RFC 3339 text. NaN and the infinities are the strings "NaN", "Infinity" and
"-Infinity", except in a Value, which has none. Messages may be nested 128 deep when printed, and 100 deep when parsed,
the limit of all protobuf parsers.

Fields that the schema does not know are dropped when printed, and refused when parsed. Null is the empty message. Bytes
are taken as the serialized message if they can be parsed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from fiveways.errors import Malformed, Unrepresentable
from fiveways.schemas.attachment_fields import NO_FIELDS, find_attachment_fields
from fiveways.schemas.fields import LIST_VALUE, MAX_DEPTH, MAX_WIRE_DEPTH, VALUE, MappingError, abbreviate
from fiveways.schemas.json_parser import filler_of, serialize
from fiveways.schemas.json_printer import printer_of
from fiveways.schemas.services import Service
from fiveways.wire import strict_json
from fiveways.wire.payload import NULL, Binary, Json, Payload, Text, Value, may_hold_markers

_REQUEST: Final = "request"
_ARRAY_MESSAGES: Final = frozenset({VALUE, LIST_VALUE})
_EMPTY_TEXT: Final = Text("")


class Codec(Protocol):
    """Encodes and decodes bodies on topics. `kind` is the method as on the wire, `direction` is request or response."""

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        """Return the bytes of a body; Unrepresentable if it cannot be encoded."""

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        """Return the body of these bytes; Malformed if they are invalid."""


class _RawBytes:
    """Codec without a schema: bytes stay bytes, null is no bytes."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        return body.data if type(body) is Binary else body.binary()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        return Binary(data) if data else NULL


class MessageCodec:
    """Codec of one message type: JSON to bytes and back."""

    __slots__ = ("_fill", "_full_name", "_is_request", "_message", "_parse", "_takes_arrays", "_takes_null", "_to_json")

    def __init__(self, message: type[Message], *, is_request: bool) -> None:
        # Two implementations of the library have different types for it.
        descriptor: Any = message.DESCRIPTOR
        self._message = message
        self._parse = message.FromString
        self._full_name = descriptor.full_name
        self._is_request = is_request
        self._takes_arrays = descriptor.full_name in _ARRAY_MESSAGES
        self._takes_null = descriptor.full_name == VALUE
        self._to_json = printer_of(descriptor)
        self._fill = filler_of(descriptor)

    def to_wire(self, body: Payload) -> bytes:
        """Return the bytes of a body; Unrepresentable if it does not match the message."""
        value = body.value()
        if type(value) is not dict:
            if isinstance(value, bytes):
                return self._check_bytes(value)
            # In a protocol with text bodies, an empty text is the only way to send no body.
            if not self._takes_null and (value is None or body == _EMPTY_TEXT):
                return b""
            if isinstance(value, list | tuple) and not self._takes_arrays:
                value = self._unwrap_argument(value)
        message = self._message()
        try:
            self._fill(message, value, MAX_WIRE_DEPTH + 1)
            return serialize(message)
        except MappingError as exc:
            raise Unrepresentable(str(exc)) from exc
        except RecursionError as exc:
            raise Unrepresentable(f"nested too deeply for {self._full_name}") from exc

    def from_wire(self, data: bytes) -> Payload:
        """Return a message as JSON; Malformed if the bytes are invalid, or the message has no JSON form."""
        try:
            value = self._to_json(self._parse(data), MAX_DEPTH)
            raw = strict_json.write(value)
            # A map that looks like an internal marker must not be taken for one.
            return Json(Value(value).json() if may_hold_markers(raw) else raw)
        except DecodeError as exc:
            raise Malformed(f"{len(data)} bytes that are not a {self._full_name}") from exc
        except (MappingError, Unrepresentable) as exc:
            raise Malformed(f"a {self._full_name} without a JSON form: {exc}") from exc
        except UnicodeDecodeError as exc:
            # A map key: proto2 strings need not be UTF-8, and others are bytes, which JSON does not have.
            raise Malformed(f"a {self._full_name} with a key that is not UTF-8") from exc
        except RecursionError as exc:
            raise Malformed(f"a {self._full_name} that is nested too deeply") from exc

    def _check_bytes(self, data: bytes) -> bytes:
        try:
            self._parse(data)
        except DecodeError as exc:
            raise Unrepresentable(f"{len(data)} bytes that are not a {self._full_name}") from exc
        return data

    def _unwrap_argument(self, value: list[object] | tuple[object, ...]) -> object:
        """Return the only object of an argument list: the fields of a message are named, not ordered."""
        if self._is_request and len(value) == 1 and isinstance(value[0], dict):
            return value[0]
        raise Unrepresentable(f"an array instead of an object with the fields of {self._full_name}")


class SchemaCodec:
    """Codec with the services of topics; other topics use the fallback, by default raw bytes."""

    def __init__(
        self,
        topics: Mapping[str, Service],
        fallback: Codec | None = None,
        attachments: Mapping[str, str] = NO_FIELDS,
    ) -> None:
        """Create a codec; `attachments` maps message names to attachment fields, SchemaError if one is invalid."""
        self._topics = dict(topics)
        self._attachment_fields = find_attachment_fields(self._topics.values(), attachments)
        self._fallback: Codec = _RawBytes() if fallback is None else fallback
        self._codecs = {
            (topic, method.name): _codec_pair(method.request, method.response)
            for topic, service in self._topics.items()
            for method in service.methods.values()
        }

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        """Return the bytes of a body; Unrepresentable if it does not match the schema, or the method is unknown."""
        pair = self._codecs.get((topic, kind))
        if pair is None:
            if topic not in self._topics:
                return self._fallback.to_wire(topic, kind, body, direction)
            pair = self._find_folded(topic, kind, Unrepresentable)
        return pair[direction != _REQUEST].to_wire(body)

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        """Return a body as JSON; Malformed if the bytes do not match the schema, or the method is unknown."""
        pair = self._codecs.get((topic, kind))
        if pair is None:
            if topic not in self._topics:
                return self._fallback.from_wire(topic, kind, data, direction)
            pair = self._find_folded(topic, kind, Malformed)
        return pair[direction != _REQUEST].from_wire(data)

    def attachment_field(self, topic: str, kind: str, direction: str) -> tuple[str, bool] | None:
        """Return the attachment field of a body, and whether it is repeated; None if there is none."""
        service = self._topics.get(topic) if self._attachment_fields else None
        method = service.find(kind) if service is not None else None
        if method is None:
            return None
        message: Any = method.request if direction == _REQUEST else method.response
        return self._attachment_fields.get(message.DESCRIPTOR.full_name)

    def _find_folded(
        self, topic: str, kind: str, error: type[Malformed | Unrepresentable]
    ) -> tuple[MessageCodec, MessageCodec]:
        service = self._topics[topic]
        method = service.find(kind)
        if method is None:
            raise error(f"{service.full_name} has no method {abbreviate(kind)}")
        return self._codecs[topic, method.name]


def _codec_pair(request: type[Message], response: type[Message]) -> tuple[MessageCodec, MessageCodec]:
    return MessageCodec(request, is_request=True), MessageCodec(response, is_request=False)


def make_kind_lookup(topics: Mapping[str, Service]) -> Callable[[str, str], str | None]:
    """Return a function that maps topic and method to the streaming kind; None for a topic without a service.

    A method that the service lacks is unary: its caller then gets the error response.
    """
    services = dict(topics)

    def kind_of(topic: str, kind: str) -> str | None:
        service = services.get(topic)
        if service is None:
            return None
        method = service.find(kind)
        return "unary" if method is None else method.kind

    return kind_of
