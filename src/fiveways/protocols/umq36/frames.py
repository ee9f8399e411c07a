"""Conversion between packets and frames: `['A' count ':'] command id ':' payload`."""

from fiveways.errors import Fault, Malformed, RemoteProtocolError
from fiveways.protocols.umq_family.frames import read_text, write_text
from fiveways.wire import base36
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

Frame = tuple[str, str, str, int]
"""Command, identifier, payload, number of attachments. Equal identifiers are equal strings."""


def parse_frame(packet: Packet, limits: Limits) -> Frame:
    """Parse a text packet; RemoteProtocolError if it is invalid."""
    head, colon, payload = read_text(packet, limits, "UMQ36-01").partition(":")
    count = 0
    if head[:1] == "A":
        count = _parse_number(head[1:])
        head, colon, payload = payload.partition(":")
        if head[:1] == "A":
            raise RemoteProtocolError(Fault.MALFORMED, "an attachment count inside another", "UMQ36-a17")
    if not colon or not head:
        raise RemoteProtocolError(Fault.MALFORMED, "no command before ':'", "UMQ36-a07")
    return head[0], canonical_id(head[1:]), payload, count


def serialize_frame(command: str, identifier: str, payload: str, count: int) -> Packet:
    """Return the packet of a frame; the identifier is not changed."""
    prefix = f"A{base36.write(count)}:" if count else ""
    return write_text(f"{prefix}{command}{identifier}:{payload}")


def _parse_number(digits: str) -> int:
    try:
        return base36.parse(digits)
    except Malformed as exc:
        raise RemoteProtocolError(Fault.MALFORMED, str(exc), _broken_rule(digits)) from exc


def _broken_rule(digits: str) -> str:
    if not (digits.isascii() and digits.isalnum()):
        return "UMQ36-a07"
    return "UMQ36-a05" if digits != digits.upper() else "UMQ36-a04"


def canonical_id(digits: str) -> str:
    """Return a peer's number without leading zeros; an empty text is zero (UMQ36-a02, -a03)."""
    number = _parse_number(digits)
    return digits if digits[:1] > "0" else base36.write(number)
