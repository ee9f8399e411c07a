"""Packets, the unit of data of a link."""

from collections.abc import Sequence
from typing import Final

import msgspec

from fiveways.wire.blob import Blob

NO_OPERATION: Final = "-"
"""Placeholder for a message without an operation, in a packet of several messages."""


class Packet(msgspec.Struct, frozen=True, gc=False):
    """One transport frame: a WebSocket message, an HTTP body, a ZeroMQ part or an MQTT message."""

    payload: bytes
    is_text: bool = True
    channel: str = ""
    """MQTT topic; empty for other transports."""
    retained: bool = False
    """Whether it is a retained message of an MQTT broker."""
    blob: Blob | None = None
    """Content that is too large for memory; `payload` is then empty."""
    op: str = ""
    """Operation ids of its messages in the form of `join_operations`, if known."""


def packet_size(packet: Packet) -> int:
    """Return the size of a packet's content in bytes."""
    return len(packet.payload) if packet.blob is None else len(packet.blob)


def with_operation(packet: Packet, op: str) -> Packet:
    """Return a copy of a packet with an operation id."""
    return Packet(packet.payload, packet.is_text, packet.channel, packet.retained, packet.blob, op)


def join_operations(ops: Sequence[str]) -> str:
    """Return the operation ids of a packet's messages in order, separated by spaces."""
    return " ".join([op or NO_OPERATION for op in ops]) if any(ops) else ""
