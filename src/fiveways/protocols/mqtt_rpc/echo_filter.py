"""What we have said, and a broker sends back to us: known again by its bytes, without parsing them (MQRPC-a01)."""

from typing import Final

from fiveways.protocols.mqtt_rpc.requests import RequestKey
from fiveways.wire.packet import Packet

_GENERATION_SIZE: Final = 1024
"""How many are known at least. Others are known by their ids, which takes longer."""


class EchoFilter:
    """The messages that we said last, each until it comes back. There are two generations, as in `Recent`."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current: dict[bytes, tuple[str, RequestKey | None]] = {}
        self._previous: dict[bytes, tuple[str, RequestKey | None]] = {}

    def add_sent(self, packet: Packet, key: RequestKey | None) -> None:
        """Know that a message was said; `key` if it is an answer to that request."""
        if len(self._current) >= _GENERATION_SIZE:
            self._previous, self._current = self._current, {}
        self._current[packet.payload] = packet.channel, key

    def take(self, packet: Packet) -> tuple[str, RequestKey | None] | None:
        """Return where we said this very message, and what it answers, once; None if it is not ours."""
        found = self._current.pop(packet.payload, None) or self._previous.pop(packet.payload, None)
        return found if found is not None and found[0] == packet.channel else None
