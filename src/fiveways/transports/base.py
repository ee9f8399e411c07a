"""Interfaces between transports and the runtime."""

from collections.abc import Sequence
from typing import Protocol

from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet


class Receiver(Protocol):
    """Consumer of the messages and events of a link. Its methods must not raise."""

    def received(self, packet: Packet) -> None:
        """Handle a complete message."""

    def progressed(self, size: int) -> bool:
        """Handle progress of an incomplete large message of `size` bytes; return whether to keep its content."""

    def writable(self) -> None:
        """Handle the end of backpressure: `unsent_bytes` fell below the low-water mark."""

    def lost(self, reason: str) -> None:
        """Handle the end of the link. It is called once, whichever end closed the link."""


class Link(Protocol):
    """One connection at either end. No method blocks."""

    transport: str
    """`ws`, `http`, `zmq`, `mqtt` or `memory`."""
    remote: str
    """Peer address for display."""
    is_loopback: bool
    is_full: bool
    """Backpressure: the peer is a slow consumer, and `unsent_bytes` is above the high-water mark."""
    is_alive: bool
    """Set by each received frame; cleared by the keepalive."""

    def frame(self, packet: Packet) -> bytes:
        """Return a packet as a transport frame. A packet with a `blob` needs `frame_piece` instead."""

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several packets as transport frames. A packet with a `blob` is not allowed."""

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Return a fragment of a binary message as a transport frame."""

    def write(self, data: bytes) -> None:
        """Write one or several frames."""

    def unsent_bytes(self) -> int:
        """Return the number of bytes that were written and are still in this process."""

    def pause_reading(self) -> None:
        """Stop reading from the peer."""

    def resume_reading(self) -> None:
        """Continue to read from the peer."""

    def discard_incoming(self) -> None:
        """Discard an incomplete binary message: no receiver needs its content."""

    def ping(self) -> None:
        """Send a heartbeat request if the transport has one."""

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close the link after all written frames are sent."""

    def abort(self) -> None:
        """Close the link at once."""


class Spool(Protocol):
    """Buffer for one large message that is being received."""

    def write(self, piece: bytes) -> None:
        """Append a fragment. If there is no space, count its size only; `Blob.error` then has the reason."""

    def finish(self) -> Blob:
        """Return the complete content."""


class SpoolFactory(Protocol):
    """Source of spools with a shared size limit."""

    def open(self) -> Spool:
        """Return an empty spool."""
