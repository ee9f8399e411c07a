"""Conversion between packets and frames: type, identifier, line feed, payload, after an optional `A<count>` line."""

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.umq_family.frames import read_text, write_text
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

_MAX_COUNT_DIGITS = 9
"""Limit for the digits of a count, because int() takes quadratic time."""
_KINDS_WITHOUT_PAYLOAD = frozenset("UZX")

Frame = tuple[str, str, str, int]
"""Type, identifier, payload, number of attachments."""


def parse_frame(packet: Packet, limits: Limits) -> Frame:
    """Parse a text packet; RemoteProtocolError if it is invalid."""
    head, _, payload = read_text(packet, limits, "UMQ1-02").partition("\n")
    count = 0
    if head[:1] == "A":
        count = _parse_count(head[1:])
        head, _, payload = payload.partition("\n")
        if head[:1] == "A":
            raise RemoteProtocolError(Fault.MALFORMED, "an attachment count inside another", "UMQ1-a17")
    if not head:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, "an empty frame", "UMQ1-a11")
    if len(head) > limits.max_id + 1:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"an identifier of {len(head) - 1} characters", "UMQ1-03")
    return head[0], head[1:], payload, count


def serialize_frame(kind: str, identifier: str, payload: str, count: int) -> Packet:
    """Return the packet of a frame. Existing peers need the line feed even before an empty payload (UMQ1-a05)."""
    text = f"{kind}{identifier}" if kind in _KINDS_WITHOUT_PAYLOAD else f"{kind}{identifier}\n{payload}"
    return write_text(f"A{count}\n{text}" if count else text)


def _parse_count(digits: str) -> int:
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _MAX_COUNT_DIGITS:
        raise RemoteProtocolError(Fault.MALFORMED, "the attachment count is not a number", "UMQ1-a11")
    return int(digits)
