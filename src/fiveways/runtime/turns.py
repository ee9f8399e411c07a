"""The connection of a peer that is answered packet by packet, such as a ZeroMQ REQ."""

from collections.abc import Callable

from fiveways.runtime.standing import Standing
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet


class Turns:
    """A peer that hears one packet for each it sends, and nothing else. Fulfils `transports.base.Receiver`."""

    has_begun = True

    def __init__(self, standing: Standing, link: Link, gone: Callable[[Standing], None]) -> None:
        """Make it; `gone` is told when the link is lost."""
        self._standing = standing
        self._link = link
        self._gone = gone
        self._track = standing.track_of(link.transport)
        standing.turns += 1

    def received(self, packet: Packet) -> None:
        """Answer with what is due."""
        due = self._standing.turn(packet, self._track)
        self._link.write(self._link.frame(due))
        if self._track is not None:
            self._track.said(self._track.clock(), due, due.op)

    def progressed(self, _size: int) -> bool:
        """Nothing large comes by itself."""
        return True

    def writable(self) -> None:
        """Nothing waits: it is the peer's turn."""

    def lost(self, reason: str) -> None:
        """Let the conversation wait for its next link."""
        if self._track is not None:
            self._track.mark("close", "in", reason)
        self._standing.turns -= 1
        self._gone(self._standing)
