"""What a link delivers whole, and takes whole."""

import msgspec

from fiveways.wire.blob import Blob


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
