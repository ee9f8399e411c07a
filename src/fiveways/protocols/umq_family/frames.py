"""Text frames: what both dialects of UMQ do before and after their grammar."""

from fiveways.errors import Fault, RemoteProtocolError, Unrepresentable
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def read_text(packet: Packet, limits: Limits, rule: str) -> str:
    """The text of a packet; RemoteProtocolError if it is too long or not UTF-8."""
    raw = packet.payload
    if len(raw) > limits.max_text:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a text frame of {len(raw)} bytes", rule)
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
