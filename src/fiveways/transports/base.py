"""What every transport gives to the runtime, and what it expects from it."""

from collections.abc import Sequence
from typing import Protocol

from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet


class Receiver(Protocol):
    """Who gets what a link brings. None of these may raise."""

    def received(self, packet: Packet) -> None:
        """Take a whole message."""

    def progressed(self, size: int) -> bool:
        """Note that `size` bytes of an incomplete large message have come; return whether its content is wanted."""

    def writable(self) -> None:
        """Know that the link takes more again: `waiting` has fallen below its low-water mark."""

    def lost(self, reason: str) -> None:
        """Know that the link is gone; called once, whoever closed it."""


class Link(Protocol):
    """One connection, in either direction. All methods return at once."""

    transport: str
    """ws, http, zmq, mqtt or memory."""
    remote: str
    """Where the other end is, for people."""
    is_loopback: bool
    is_full: bool
    """The peer reads more slowly than we write: `waiting` is above its high-water mark."""
    is_alive: bool
    """Set with whatever comes, cleared by who watches over it."""

    def frame(self, packet: Packet) -> bytes:
        """Return a packet as it goes over the wire; a packet with a `blob` cannot be framed, but in pieces."""

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several packets as they go over the wire; what is true of `frame` is true here."""

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Return a piece of a binary message as it goes over the wire."""

    def write(self, data: bytes) -> None:
        """Write frames, as many at once as there are."""

    def unsent_bytes(self) -> int:
        """Return how many bytes were written and have not left this process."""

    def pause_reading(self) -> None:
        """Take nothing more from the peer."""

    def resume_reading(self) -> None:
        """Go on reading."""

    def discard_incoming(self) -> None:
        """Keep nothing of a binary message that has not come completely: its content is not wanted."""

    def ping(self) -> None:
        """Ask for a sign of life, where the transport knows how."""

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close in good order, after what was written."""

    def abort(self) -> None:
        """Close at once."""


class Spool(Protocol):
    """Where a large message is put while it comes."""

    def write(self, piece: bytes) -> None:
        """Append. What finds no room is only counted: the blob then says why it cannot be read."""

    def finish(self) -> Blob:
        """Return all that was written."""


class SpoolFactory(Protocol):
    """Makes spools, and bounds what they hold together."""

    def open(self) -> Spool:
        """Return an empty one."""
