"""In-process links: the other end receives each frame in a later event loop iteration."""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from fiveways.transports.base import Receiver, Spool, SpoolFactory
from fiveways.wire.packet import Packet

HIGH_WATER: Final = 1 << 18
"""Unread bytes at the other end above which the link is full; below a quarter of it the link is writable again."""
MAX_WAITING: Final = 1 << 26
"""Unread bytes at which a link is closed if its writer ignores `is_full`."""
MAX_MESSAGE: Final = 1 << 28
"""Maximum size of a fragmented message in memory."""
_HEADER: Final = 5


class _Kind(IntEnum):
    """First byte of a frame; four bytes of length follow."""

    BINARY = 0
    TEXT = 1
    PIECE = 2
    LAST_PIECE = 3
    PING = 4
    PONG = 5
    CLOSE = 6


class _Pipe:
    """One direction: frames that were written and not read."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.on_put: Callable[[], None] = _nothing
        self.on_taken: Callable[[], None] = _nothing
        self.on_cut: Callable[[str], None] = _nothing

    def __len__(self) -> int:
        return len(self._data)

    def put(self, frames: bytes) -> None:
        """Append frames and notify the reader."""
        self._data += frames
        self.on_put()

    def take(self) -> tuple[_Kind, bytes]:
        """Remove and return the first frame, and notify the writer."""
        data = self._data
        end = _HEADER + int.from_bytes(data[1:_HEADER], "big")
        kind, payload = _Kind(data[0]), bytes(data[_HEADER:end])
        del data[:end]
        self.on_taken()
        return kind, payload

    def cut(self, reason: str) -> None:
        """Drop all frames and give the reader the reason."""
        self._data.clear()
        self.on_cut(reason)


class MemoryLink:
    """One end of a pair. Implements `base.Link`. Frames wait until a receiver is attached."""

    transport = "memory"
    is_loopback = True

    def __init__(
        self,
        remote: str,
        incoming: _Pipe,
        outgoing: _Pipe,
        high_water: int,
        max_waiting: int,
        spools: SpoolFactory | None,
    ) -> None:
        self.remote = remote
        self.is_full = False
        self.is_alive = True
        self._incoming = incoming
        self._outgoing = outgoing
        self._high_water = high_water
        self._max_waiting = max_waiting
        self._large = _Large(spools)
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._is_scheduled = False
        self._is_paused = False
        self._is_closing = False
        self._is_gone = False
        self._reason: str | None = None
        incoming.on_put = self._schedule
        incoming.on_cut = self._on_lost
        outgoing.on_taken = self._on_taken

    def attach(self, receiver: Receiver) -> None:
        """Set the receiver and deliver waiting frames to it."""
        self._receiver = receiver
        self._schedule()
        if self._reason is not None:
            self._loop.call_soon(self._notify_lost)

    # Methods of base.Link.

    def frame(self, packet: Packet) -> bytes:
        """Return a message with its kind and length before it."""
        return _framed(_Kind.TEXT if packet.is_text else _Kind.BINARY, packet.payload)

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several framed messages."""
        return b"".join(map(self.frame, packets))

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Return a framed fragment of a binary message."""
        return _framed(_Kind.LAST_PIECE if last else _Kind.PIECE, piece)

    def write(self, data: bytes) -> None:
        """Append frames to the input of the other end."""
        if self._is_closing or self._is_gone:
            return
        self._outgoing.put(data)
        waiting = len(self._outgoing)
        self.is_full = self.is_full or waiting > self._high_water
        if waiting > self._max_waiting:
            self._close_both("the other end does not read what was written to it", "the other end wrote too much")

    def unsent_bytes(self) -> int:
        """Return the number of bytes that the other end has not read."""
        return len(self._outgoing)

    def pause_reading(self) -> None:
        """Stop reading from the other end."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Continue to read."""
        self._is_paused = False
        self._schedule()

    def discard_incoming(self) -> None:
        """Discard an incomplete fragmented message."""
        if self._large.size:
            self._large.discard()

    def ping(self) -> None:
        """Send a ping; the pong follows when all earlier frames are read."""
        self.write(_framed(_Kind.PING))

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close after the other end has read all written frames."""
        self.write(_framed(_Kind.CLOSE, text.encode()))
        self._is_closing = True

    def abort(self) -> None:
        """Close at once; unread frames are lost."""
        self._close_both("", "the other end is gone")

    # Internals.

    def _schedule(self) -> None:
        may_read = not (self._is_scheduled or self._is_paused or self._is_gone)
        if may_read and self._incoming and self._receiver is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver, self._receiver)

    def _deliver(self, receiver: Receiver) -> None:
        """Deliver the frames received until now; frames written meanwhile wait for the next event loop iteration."""
        self._is_scheduled = False
        remaining = 0 if self._is_gone else len(self._incoming)
        while remaining and not (self._is_paused or self._is_gone):
            before = len(self._incoming)
            kind, payload = self._incoming.take()
            remaining -= before - len(self._incoming)
            self.is_alive = True
            self._handle_frame(kind, payload, receiver)
        self._schedule()

    def _handle_frame(self, kind: _Kind, payload: bytes, receiver: Receiver) -> None:
        if kind == _Kind.CLOSE:
            reason = payload.decode()
            self._close_both(reason, reason)
        elif kind == _Kind.PING:
            self.write(_framed(_Kind.PONG))
        elif self._is_closing or kind == _Kind.PONG:
            pass
        elif kind <= _Kind.TEXT:
            receiver.received(Packet(payload, kind == _Kind.TEXT))
        elif not self._large.add(payload):
            self._close_both("a message is too large", "a message was too large")
        elif kind == _Kind.PIECE:
            if not receiver.progressed(self._large.size):
                self._large.discard()
        else:
            receiver.received(self._large.finish())

    def _on_taken(self) -> None:
        """Handle that the other end has read a frame."""
        if self.is_full and len(self._outgoing) < self._high_water // 4:
            self.is_full = False
            if self._receiver is not None and not self._is_closing:
                self._loop.call_soon(self._notify_writable, self._receiver)

    def _notify_writable(self, receiver: Receiver) -> None:
        if not (self.is_full or self._is_gone):
            receiver.writable()

    def _close_both(self, reason: str, reason_there: str) -> None:
        self._on_lost(reason)
        self._outgoing.cut(reason_there)

    def _on_lost(self, reason: str) -> None:
        """End this link. The receiver is notified in a later event loop iteration, as with a socket."""
        if self._is_gone:
            return
        self._is_gone = True
        self.is_full = False
        self._reason = reason
        self._large.drop()
        self._incoming.cut(reason)
        self._loop.call_soon(self._notify_lost)

    def _notify_lost(self) -> None:
        if self._receiver is not None and self._reason is not None:
            reason, self._reason = self._reason, None
            self._receiver.lost(reason)


class _Large:
    """Message that arrives in fragments."""

    def __init__(self, spools: SpoolFactory | None) -> None:
        self._spools = spools
        self._spool: Spool | None = None
        self._pieces = bytearray()
        self.size = 0
        self._is_discarded = False

    def add(self, piece: bytes) -> bool:
        """Append a fragment; return whether there was space."""
        self.size += len(piece)
        if self._is_discarded:
            return True
        if self._spools is None:
            self._pieces += piece
            return len(self._pieces) <= MAX_MESSAGE
        if self._spool is None:
            self._spool = self._spools.open()
        self._spool.write(piece)
        return True

    def finish(self) -> Packet:
        """Return the complete message."""
        if self._spool is not None:
            packet = Packet(b"", is_text=False, blob=self._spool.finish())
        else:
            packet = Packet(bytes(self._pieces), is_text=False)
        self.drop()
        return packet

    def discard(self) -> None:
        """Discard the content received so far and all further fragments."""
        self._is_discarded = True
        self._spool = None
        self._pieces = bytearray()

    def drop(self) -> None:
        """Reset for the next message."""
        self.discard()
        self.size, self._is_discarded = 0, False


def link_pair(
    *, high_water: int = HIGH_WATER, max_waiting: int = MAX_WAITING, spools: SpoolFactory | None = None
) -> tuple[MemoryLink, MemoryLink]:
    """Return the two ends of a link; `attach` gives each its receiver.

    Args:
        high_water: Unread bytes at one end above which `is_full` is set at the other.
        max_waiting: Unread bytes at which the link is closed because its writer ignores `is_full`.
        spools: Storage for fragmented messages; without it they stay in memory.
    """
    there, back = _Pipe(), _Pipe()
    left = MemoryLink("right", back, there, high_water, max_waiting, spools)
    right = MemoryLink("left", there, back, high_water, max_waiting, spools)
    return left, right


def _framed(kind: _Kind, payload: bytes = b"") -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(_HEADER - 1, "big") + payload


def _nothing(*_: object) -> None: ...
