"""Links within one process: what is written at one end is received at the other, in a later pass of the loop."""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from fiveways.transports.base import Receiver, Spool, SpoolFactory
from fiveways.wire.packet import Packet

HIGH_WATER: Final = 1 << 18
"""Bytes that the other end has not taken yet: above, the link is full; below a quarter of it, it takes more again."""
MAX_WAITING: Final = 1 << 26
"""A writer who goes on though the link is full is cut off here."""
MAX_MESSAGE: Final = 1 << 28
"""A message in pieces may be so large where it is held in memory."""
_HEADER: Final = 5


class _Kind(IntEnum):
    """The first byte of a frame; four bytes of length follow."""

    BINARY = 0
    TEXT = 1
    PIECE = 2
    LAST_PIECE = 3
    PING = 4
    PONG = 5
    CLOSE = 6


class _Pipe:
    """One direction: frames that were written and not taken yet."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.on_put: Callable[[], None] = _nothing
        self.on_taken: Callable[[], None] = _nothing
        self.on_cut: Callable[[str], None] = _nothing

    def __len__(self) -> int:
        return len(self._data)

    def put(self, frames: bytes) -> None:
        """Append, and tell the reader."""
        self._data += frames
        self.on_put()

    def take(self) -> tuple[_Kind, bytes]:
        """Return the first frame, and tell the writer."""
        data = self._data
        end = _HEADER + int.from_bytes(data[1:_HEADER], "big")
        kind, payload = _Kind(data[0]), bytes(data[_HEADER:end])
        del data[:end]
        self.on_taken()
        return kind, payload

    def cut(self, reason: str) -> None:
        """Drop everything, and tell the reader why."""
        self._data.clear()
        self.on_cut(reason)


class MemoryLink:
    """One end of a pair. Fulfils `base.Link`. What comes before there is a receiver waits for it."""

    transport = "memory"
    is_loopback = True

    def __init__(
        self,
        remote: str,
        incoming: _Pipe,
        outgoing: _Pipe,
        high_water: int,
        most_waiting: int,
        spools: SpoolFactory | None,
    ) -> None:
        self.remote = remote
        self.is_full = False
        self.is_alive = True
        self._incoming = incoming
        self._outgoing = outgoing
        self._high_water = high_water
        self._max_waiting = most_waiting
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
        """Let `receiver` have what comes, and what has come."""
        self._receiver = receiver
        self._schedule()
        if self._reason is not None:
            self._loop.call_soon(self._notify_lost)

    # What the runtime asks for.

    def frame(self, packet: Packet) -> bytes:
        """Return a message with its kind and length before it."""
        return _framed(_Kind.TEXT if packet.is_text else _Kind.BINARY, packet.payload)

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return messages, one after the other."""
        return b"".join(map(self.frame, packets))

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Return a piece of a binary message."""
        return _framed(_Kind.LAST_PIECE if last else _Kind.PIECE, piece)

    def write(self, data: bytes) -> None:
        """Let the other end have these frames."""
        if self._is_closing or self._is_gone:
            return
        self._outgoing.put(data)
        waiting = len(self._outgoing)
        self.is_full = self.is_full or waiting > self._high_water
        if waiting > self._max_waiting:
            self._close_both("more was written than the other end takes", "the other end wrote too much")

    def unsent_bytes(self) -> int:
        """Return how much the other end has not taken yet."""
        return len(self._outgoing)

    def pause_reading(self) -> None:
        """Take nothing more from the other end."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Go on."""
        self._is_paused = False
        self._schedule()

    def discard_incoming(self) -> None:
        """Keep nothing of a message in pieces that has not come completely."""
        if self._large.size:
            self._large.discard()

    def ping(self) -> None:
        """Ask for a sign of life, which comes when all that was written before is read."""
        self.write(_framed(_Kind.PING))

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close when the other end has taken what was written."""
        self.write(_framed(_Kind.CLOSE, text.encode()))
        self._is_closing = True

    def abort(self) -> None:
        """Close at once; what was not taken is lost."""
        self._close_both("", "the other end is gone")

    # From end to end.

    def _schedule(self) -> None:
        may_read = not (self._is_scheduled or self._is_paused or self._is_gone)
        if may_read and self._incoming and self._receiver is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver, self._receiver)

    def _deliver(self, receiver: Receiver) -> None:
        """Hand over what has come until now; what is written meanwhile has its turn in the next pass."""
        self._is_scheduled = False
        later = 0 if self._is_gone else len(self._incoming)
        while later and not (self._is_paused or self._is_gone):
            before = len(self._incoming)
            kind, payload = self._incoming.take()
            later -= before - len(self._incoming)
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
        """Know that the other end has taken something."""
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
        """End here. The receiver is told in a later pass, as with a socket."""
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
    """A message that comes in pieces."""

    def __init__(self, spools: SpoolFactory | None) -> None:
        self._spools = spools
        self._spool: Spool | None = None
        self._pieces = bytearray()
        self.size = 0
        self._is_discarded = False

    def add(self, piece: bytes) -> bool:
        """Append; say whether there was room."""
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
        """Return the whole message."""
        if self._spool is not None:
            packet = Packet(b"", is_text=False, blob=self._spool.finish())
        else:
            packet = Packet(bytes(self._pieces), is_text=False)
        self.drop()
        return packet

    def discard(self) -> None:
        """Keep nothing of it, neither of what has come nor of the rest."""
        self._is_discarded = True
        self._spool = None
        self._pieces = bytearray()

    def drop(self) -> None:
        """Forget it."""
        self.discard()
        self.size, self._is_discarded = 0, False


def link_pair(
    *, high_water: int = HIGH_WATER, most_waiting: int = MAX_WAITING, spools: SpoolFactory | None = None
) -> tuple[MemoryLink, MemoryLink]:
    """Return the two ends of a link, each in need of a receiver: `attach` gives it one.

    Args:
        high_water: Bytes on the way to one end above which the other's `is_full` is set.
        most_waiting: Bytes on the way that cut the link: nobody writes on for ever to one who does not read.
        spools: Where messages that come in pieces are put; without it they are held in memory.
    """
    there, back = _Pipe(), _Pipe()
    left = MemoryLink("right", back, there, high_water, most_waiting, spools)
    right = MemoryLink("left", there, back, high_water, most_waiting, spools)
    return left, right


def _framed(kind: _Kind, payload: bytes = b"") -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(_HEADER - 1, "big") + payload


def _nothing(*_: object) -> None: ...
