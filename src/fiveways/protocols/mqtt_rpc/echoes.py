"""What we have said, and a broker sends back to us: known again by its bytes, without parsing them (MQRPC-a01)."""

from typing import Final

from fiveways.protocols.mqtt_rpc.streams import Key
from fiveways.wire.packet import Packet

_MOST: Final = 1024
"""How many are known at least. Others are known by their ids, which takes longer."""


class Echoes:
    """The messages that we said last, each until it comes back. There are two generations, as in `Recent`."""

    __slots__ = ("_elder", "_younger")

    def __init__(self) -> None:
        self._younger: dict[bytes, tuple[str, Key | None]] = {}
        self._elder: dict[bytes, tuple[str, Key | None]] = {}

    def said(self, packet: Packet, key: Key | None) -> None:
        """Know that a message was said; `key` if it is an answer to that request."""
        if len(self._younger) >= _MOST:
            self._elder, self._younger = self._younger, {}
        self._younger[packet.payload] = packet.channel, key

    def take(self, packet: Packet) -> tuple[str, Key | None] | None:
        """Return where we said this very message, and what it answers, once; None if it is not ours."""
        found = self._younger.pop(packet.payload, None) or self._elder.pop(packet.payload, None)
        return found if found is not None and found[0] == packet.channel else None
