"""Text frames before and after their grammar, and binary frames, in both UMQ dialects."""

from fiveways.errors import Fault, RemoteProtocolError, Unrepresentable
from fiveways.protocols.base import packet_content
from fiveways.protocols.umq_family.messages import Data
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def read_text(packet: Packet, limits: Limits, rule: str) -> str:
    """Return the text of a packet; RemoteProtocolError if it is too long or not UTF-8."""
    raw = packet.payload
    if len(raw) > limits.max_text or packet.blob is not None:
        raw = packet_content(packet, limits, "text frame", rule)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(Fault.MALFORMED, "a text frame is not UTF-8", rule) from None


def write_text(text: str) -> Packet:
    """Return the packet for a text."""
    try:
        return Packet(text.encode())
    except UnicodeEncodeError as exc:
        raise Unrepresentable("the text contains an unpaired surrogate") from exc


def read_binary(packet: Packet) -> Data:
    """Return the attachment in a binary packet."""
    return Data(packet.payload if packet.blob is None else packet.blob)


def write_binary(message: Data) -> Packet:
    """Return the packet for an attachment; a blob is not loaded into memory."""
    data = message.data
    return Packet(data, is_text=False) if isinstance(data, bytes) else Packet(b"", is_text=False, blob=data)
