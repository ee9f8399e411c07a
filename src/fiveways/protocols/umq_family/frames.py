"""What both dialects of UMQ do alike: text frames before and after their grammar, and binary frames."""

from fiveways.errors import Fault, RemoteProtocolError, Unrepresentable
from fiveways.protocols.base import packet_content
from fiveways.protocols.umq_family.messages import Data
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def read_text(packet: Packet, limits: Limits, rule: str) -> str:
    """The text of a packet; RemoteProtocolError if it is too long or not UTF-8."""
    raw = packet.payload
    if len(raw) > limits.max_text or packet.blob is not None:
        raw = packet_content(packet, limits, "text frame", rule)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(Fault.MALFORMED, "a text frame is not UTF-8", rule) from None


def write_text(text: str) -> Packet:
    """The packet that carries a text."""
    try:
        return Packet(text.encode())
    except UnicodeEncodeError as exc:
        raise Unrepresentable("half of a surrogate pair is no text") from exc


def read_binary(packet: Packet) -> Data:
    """The attachment that a binary packet is."""
    return Data(packet.payload if packet.blob is None else packet.blob)


def write_binary(message: Data) -> Packet:
    """The packet that carries an attachment; one that is too large for memory goes as it lies."""
    data = message.data
    return Packet(data, is_text=False) if isinstance(data, bytes) else Packet(b"", is_text=False, blob=data)
