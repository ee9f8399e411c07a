"""Conversion between packets and frames: an MQTT message parsed by protobuf, with its shape."""

from enum import Enum
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.base import packet_content
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


class Shape(Enum):
    """The meaning of a message as far as its fields show it (MQRPC-a01)."""

    REQUEST = "request"
    RESPONSE = "response"
    BARE = "bare"
    """Only an id and a body, which are the same fields in Request and Response; parsed as a Request."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A protobuf message and its topic."""

    shape: Shape
    topic: str
    content: rpc_pb2.Request | rpc_pb2.Response


# Module constants: attribute access on an Enum class takes longer than parsing a short message.
REQUEST, RESPONSE, BARE = Shape.REQUEST, Shape.RESPONSE, Shape.BARE

_parse_request = rpc_pb2.Request.FromString
_parse_response = rpc_pb2.Response.FromString

_MAX_SCANNED_FIELDS: Final = 64
"""Limit for the fields that `scan_undecodable` reads."""
_MAX_VARINT_BYTES: Final = 10
"""Maximum length of a varint."""


def parse_frame(packet: Packet, limits: Limits) -> Frame:
    """Parse a message and its shape; RemoteProtocolError if it is invalid."""
    data = packet.payload
    if len(data) > limits.max_text or packet.blob is not None:
        data = packet_content(packet, limits, "message", "MQRPC-03")
    if len(packet.channel) > limits.max_name:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a topic of {len(packet.channel)} characters", "MQRPC-a08")
    if packet.is_text:
        raise RemoteProtocolError(Fault.MALFORMED, "a text packet instead of protobuf", "MQRPC-03")
    try:
        # Each message type skips the fields of the other as unknown, so both parsers accept any message. The fields of
        # a Response decide: a Request has no field 4 (MQRPC-a12), and an error is never a call.
        response = _parse_response(data)
        if response.HasField("eos") or response.HasField("error_data"):
            return Frame(RESPONSE, packet.channel, response)
        request = _parse_request(data)
    except DecodeError as exc:
        # The text before the colon is the name of the message type.
        text = str(exc).rpartition(": ")[2]
        raise RemoteProtocolError(Fault.MALFORMED, f"not protobuf: {text}", "MQRPC-03") from exc
    if request.HasField("eos") or request.HasField("timeout") or request.HasField("timeout_unit"):
        return Frame(REQUEST, packet.channel, request)
    return Frame(BARE, packet.channel, request)


def serialize_frame(topic: str, content: rpc_pb2.Request | rpc_pb2.Response) -> Packet:
    """Return the packet of a message. No Frame is created: it takes time, and the fields define the shape."""
    return Packet(content.SerializeToString(), is_text=False, channel=topic)


def scan_undecodable(data: bytes) -> tuple[int | None, bool]:
    """Return the id of a message that cannot be parsed, if it is readable, and whether it is certainly a Request.

    Without the id, the caller would wait until its deadline. A response to a message that may be a Response would reach
    nobody.
    """
    number: int | None = None
    is_request = is_response = False
    at = fields = 0
    while at < len(data) and fields < _MAX_SCANNED_FIELDS:
        fields += 1
        tag, at = _read_varint(data, at)
        content, at = _read_varint(data, at)
        match tag & 7, tag >> 3:
            case 0, 4:
                is_response = True
            case 0, 1 if at <= len(data):
                number = content & 0xFFFFFFFFFFFFFFFF
            case 0, 3 | 5 | 6:
                is_request = is_request or at <= len(data)
            case 0, _:
                pass
            case 2, field_number:
                is_response = is_response or field_number == 3
                at += content
            case _:
                break
    return number, is_request and not is_response


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint at `at`; if there is none, return an offset after the end of the data."""
    number = 0
    for shift, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte <= 0x7F:
            return number, at + shift + 1
    return 0, len(data) + 1
