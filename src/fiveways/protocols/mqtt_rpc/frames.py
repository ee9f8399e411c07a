"""Packet <-> Frame: one MQTT message, parsed by the protobuf library, and whether it asks or answers."""

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
    """What the fields alone tell of a message (MQRPC-a01)."""

    REQUEST = "request"
    RESPONSE = "response"
    BARE = "bare"
    """Nothing but an id and a body; parsed as a Request, and as a Response the same two fields."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A protobuf message on its topic."""

    shape: Shape
    topic: str
    content: rpc_pb2.Request | rpc_pb2.Response


# To reach a member through its class takes longer than to parse a short message.
REQUEST, RESPONSE, BARE = Shape.REQUEST, Shape.RESPONSE, Shape.BARE

_parse_request = rpc_pb2.Request.FromString
_parse_response = rpc_pb2.Response.FromString

_MAX_SCANNED_FIELDS: Final = 64
"""How many fields `outline` looks at."""
_MAX_VARINT_BYTES: Final = 10
"""The bytes of the longest number."""


def parse_frame(packet: Packet, limits: Limits) -> Frame:
    """Parse a message and tell its shape; RemoteProtocolError whatever is wrong with it."""
    data = packet.payload
    if len(data) > limits.max_text or packet.blob is not None:
        data = packet_content(packet, limits, "message", "MQRPC-03")
    if len(packet.channel) > limits.max_name:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a topic of {len(packet.channel)} characters", "MQRPC-a08")
    if packet.is_text:
        raise RemoteProtocolError(Fault.MALFORMED, "text, where protobuf is spoken", "MQRPC-03")
    try:
        # To each message, the fields that only the other has are unknown and skipped, so both can be parsed from any
        # bytes. The marks of a Response win: a Request has no field 4 (MQRPC-a12), and an error is never a call.
        answer = _parse_response(data)
        if answer.HasField("eos") or answer.HasField("error_data"):
            return Frame(RESPONSE, packet.channel, answer)
        asked = _parse_request(data)
    except DecodeError as exc:
        # Before the colon stands the name of the message that the library was at.
        text = str(exc).rpartition(": ")[2]
        raise RemoteProtocolError(Fault.MALFORMED, f"not protobuf: {text}", "MQRPC-03") from exc
    if asked.HasField("eos") or asked.HasField("timeout") or asked.HasField("timeout_unit"):
        return Frame(REQUEST, packet.channel, asked)
    return Frame(BARE, packet.channel, asked)


def serialize_frame(topic: str, content: rpc_pb2.Request | rpc_pb2.Response) -> Packet:
    """Write a message. Its shape is in its fields, so there need not be a Frame, which takes a while to make."""
    return Packet(content.SerializeToString(), False, topic)


def scan_undecodable(data: bytes) -> tuple[int | None, bool]:
    """Tell the id of a message that cannot be parsed, if it shows, and whether it is surely a Request.

    Without this its sender, or whom it answers, would wait in vain; but an answer to what may be a Response would be
    an answer to nobody.
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
            case 2, told:
                is_response = is_response or told == 3
                at += content
            case _:
                break
    return number, is_request and not is_response


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number at `at`; where there is none, the place behind it is beyond the data."""
    number = 0
    for shift, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte <= 0x7F:
            return number, at + shift + 1
    return 0, len(data) + 1
