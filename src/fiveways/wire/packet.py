"""What a link delivers whole, and takes whole."""

from collections.abc import Sequence
from typing import Final

import msgspec

from fiveways.wire.blob import Blob

NO_OPERATION: Final = "-"
"""Stands, in a packet of several messages, for one that belongs to no operation."""


class Packet(msgspec.Struct, frozen=True, gc=False):
    """One frame of a transport: a WebSocket message, an HTTP body, a ZeroMQ part, an MQTT message."""

    payload: bytes
    is_text: bool = True
    channel: str = ""
    """The MQTT topic it came or goes by; empty where the link itself is the channel."""
    retained: bool = False
    """An MQTT broker's stored copy of an earlier message, not a fresh one."""
    blob: Blob | None = None
    """The content itself where it is too large for memory; `payload` is empty then."""
    op: str = ""
    """The hub's operations that its messages belong to, as `join_ops` writes them, where that is known here."""


def packet_size(packet: Packet) -> int:
    """Return how many bytes a packet brings, wherever they are."""
    return len(packet.payload) if packet.blob is None else len(packet.blob)


def with_operation(packet: Packet, op: str) -> Packet:
    """Return a packet that belongs to an operation."""
    return Packet(packet.payload, packet.is_text, packet.channel, packet.retained, packet.blob, op)


def join_operations(ops: Sequence[str]) -> str:
    """Return the operations of a packet's messages as one text: in their order, with a blank between them."""
    return " ".join([op or NO_OPERATION for op in ops]) if any(ops) else ""
