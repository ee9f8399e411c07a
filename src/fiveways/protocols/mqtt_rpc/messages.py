"""Conversion between frames and messages: requests and responses."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fiveways.errors import TooLarge
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.frames import BARE, Frame, parse_frame, serialize_frame
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


class Request(msgspec.Struct, frozen=True, gc=False):
    """A call of the method `type_url` of the service on `topic`, or a further element of such a request."""

    topic: str
    correlation_id: int
    type_url: str = ""
    value: bytes | None = None
    """None for a missing body, as opposed to an empty one (MQRPC-a06); `type_url` is empty then."""
    eos: bool = False
    timeout: int = 0
    timeout_unit: int = 0


class Response(msgspec.Struct, frozen=True, gc=False):
    """A Response without `error_data`: the result, or one element of it."""

    topic: str
    correlation_id: int
    type_url: str = ""
    value: bytes | None = None
    eos: bool = False


class ErrorResponse(msgspec.Struct, frozen=True, gc=False):
    """A Response with `error_data`: there is no result."""

    topic: str
    correlation_id: int
    type_url: str = ""
    value: bytes | None = None
    code: int = 0
    tag: str = ""
    user_message: str = ""
    retry_after: int = 0
    eos: bool = False


Message = Request | Response | ErrorResponse
MESSAGES: Final[dict[str, type[Message]]] = {kind.__name__: kind for kind in (Request, Response, ErrorResponse)}


def decode(packet: Packet, limits: Limits) -> list[Message]:
    """Return the one message in a packet; a bare one is a Request if it has a type (MQRPC-a01)."""
    return [message_from_frame(parse_frame(packet, limits), pending=False)]


def encode(message: object) -> Packet:
    """Return the packet of a message; `eos` is always present, so that the shape is unambiguous."""
    return _WRITERS[type(message)](message)


def encode_within_limit(message: Request | Response, limits: Limits) -> Packet:
    """Return the packet of a message; TooLarge if it exceeds our own read limit (MQRPC-03)."""
    packet = encode(message)
    if len(packet.payload) > limits.max_text:
        raise too_large_error(packet.payload)
    return packet


def too_large_error(payload: bytes) -> TooLarge:
    """Return the error for a message above our own read limit."""
    return TooLarge(f"a message of {len(payload)} bytes [MQRPC-03]")


def message_from_frame(frame: Frame, *, pending: bool) -> Message:
    """Return the message of a frame; `pending` means that its id belongs to an open request of the receiver."""
    content = frame.content
    body = content.body
    type_url = body.type_url
    value = body.value or (b"" if content.HasField("body") else None)
    number, eos = content.correlation_id, content.eos
    if type(content) is rpc_pb2.Response:
        if not content.HasField("error_data"):
            return Response(frame.topic, number, type_url, value, eos)
        error = content.error_data
        return ErrorResponse(
            frame.topic, number, type_url, value, error.code, error.tag, error.user_message, error.retry_after, eos
        )
    if frame.shape is BARE and (pending or not type_url):
        return Response(frame.topic, number, type_url, value)
    return Request(frame.topic, number, type_url, value, eos, content.timeout, content.timeout_unit)


def _write_request(message: Request) -> Packet:
    content = rpc_pb2.Request()
    content.correlation_id = message.correlation_id
    if message.value is not None:
        body = content.body
        body.type_url = message.type_url
        body.value = message.value
    content.eos = message.eos
    if message.timeout:
        content.timeout = message.timeout
    if message.timeout_unit:
        content.timeout_unit = message.timeout_unit  # type: ignore[assignment]  # proto3 takes numbers without a name
    return serialize_frame(message.topic, content)


def _write_response(message: Response | ErrorResponse) -> Packet:
    content = rpc_pb2.Response()
    content.correlation_id = message.correlation_id
    if message.value is not None:
        body = content.body
        body.type_url = message.type_url
        body.value = message.value
    content.eos = message.eos
    if type(message) is ErrorResponse:
        error = content.error_data
        error.code = message.code
        error.tag = message.tag
        error.user_message = message.user_message
        error.retry_after = message.retry_after
    return serialize_frame(message.topic, content)


_WRITERS: Final[dict[type, Callable[[Any], Packet]]] = {
    Request: _write_request,
    Response: _write_response,
    ErrorResponse: _write_response,
}
