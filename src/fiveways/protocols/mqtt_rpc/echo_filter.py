"""Detection of our own messages that the broker sends back, by their bytes without parsing (MQRPC-a01)."""

from typing import Final

from fiveways.protocols.mqtt_rpc.requests import RequestKey
from fiveways.wire.packet import Packet

_GENERATION_SIZE: Final = 1024
"""Minimum number of messages to detect. Others are detected by their ids, which takes longer."""


class EchoFilter:
    """Our last messages until they return, in two generations as in `RecentRequests`."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current: dict[bytes, tuple[str, RequestKey | None]] = {}
        self._previous: dict[bytes, tuple[str, RequestKey | None]] = {}

    def add_sent(self, packet: Packet, key: RequestKey | None) -> None:
        """Record a message that was sent; `key` is the request that it answers."""
        if len(self._current) >= _GENERATION_SIZE:
            self._previous, self._current = self._current, {}
        self._current[packet.payload] = packet.channel, key

    def take(self, packet: Packet) -> tuple[str, RequestKey | None] | None:
        """Return the topic of our message and the request that it answers, once; None for messages of others."""
        entry = self._current.pop(packet.payload, None) or self._previous.pop(packet.payload, None)
        return entry if entry is not None and entry[0] == packet.channel else None
