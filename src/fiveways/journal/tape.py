"""What the hub notes down as things happen: cheap to add to, and taken away in pages."""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from struct import pack
from typing import Any, Final

import msgspec

from fiveways.wire.packet import Packet


class Way(msgspec.Struct, eq=False, gc=False, array_like=True):
    """What all frames have in common that go one way over one link, in text or in binary."""

    session: str
    peer: str
    """Empty while it is not known."""
    protocol: str
    transport: str
    direction: str
    kind: str
    channel: str = ""


class Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What stands in a record that is no frame, where a frame has its payload; or a frame that is not in memory."""

    reason: str = ""
    channel: str = ""
    size: int | None = None


Entry = tuple[int, Way, "bytes | Note", str, int]
"""When, on which way, what, of which operation, and for how long it had waited, both in ns."""
_WIDTH: Final = 5
_PAGE: Final = 1 << 24
"""Bytes of payloads that go onto one page, or one payload."""


class Page(msgspec.Struct, gc=False, array_like=True):
    """Some entries, column by column, as whoever writes them wants to have them: numbers and texts in a row."""

    first: int
    """The number of the first record, in the run."""
    ways: list[Way]
    way: bytes
    """For each record, which of the ways it went; numbers of 4 bytes, as are lengths."""
    at: bytes
    """Numbers of 8 bytes."""
    payloads: bytes
    payload_lengths: bytes
    ops: bytes
    op_lengths: bytes
    queued: bytes
    """Numbers of 8 bytes."""
    notes: dict[int, Note]
    """By the place of the record, which has no payload then."""

    def __len__(self) -> int:
        return len(self.at) // 8


class Tape:
    """Entries that wait to be passed on."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Make one; `clock` tells the ns since 1970."""
        self.clock = clock
        # Entries lie end to end: a tuple that is kept is one more thing for Python to look after.
        self._cells: list[Any] = []
        self.add: Final[Callable[[Entry], None]] = self._cells.extend
        """Note an entry; the list is one and the same for ever, so that this may be kept."""
        self._next = 0
        self.turn: Callable[[], None] = _nobody
        """Have what is there taken away; to be called when that is much."""

    def take(self, most: int) -> Page | None:
        """Return the oldest entries."""
        cells = self._cells[: most * _WIDTH]
        if not cells:
            return None
        whats, notes = cells[2::_WIDTH], {}
        try:
            lengths = list(map(len, whats))
        except TypeError:
            notes = {place: what for place, what in enumerate(whats) if type(what) is Note}
            whats = [b"" if type(what) is Note else what for what in whats]
            lengths = list(map(len, whats))
        if sum(lengths) > _PAGE and len(lengths) > 1:
            return self.take(max(1, bisect(list(accumulate(lengths)), _PAGE)))
        del self._cells[: len(cells)]
        count, ways, ops = len(whats), cells[1::_WIDTH], cells[3::_WIDTH]
        numbers = {way: number for number, way in enumerate(dict.fromkeys(ways))}
        first, self._next = self._next, self._next + count
        return Page(
            first,
            list(numbers),
            pack(f"{count}i", *map(numbers.__getitem__, ways)),
            pack(f"{count}q", *cells[::_WIDTH]),
            b"".join(whats),
            pack(f"{count}i", *lengths),
            "".join(ops).encode(),
            pack(f"{count}i", *map(len, ops)),
            pack(f"{count}q", *cells[4::_WIDTH]),
            notes,
        )

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH


def _nobody() -> None:
    """Nobody takes anything away."""


class Track:
    """One link on the tape."""

    __slots__ = ("_ways", "add", "clock", "in_binary", "in_text", "out_binary", "out_text")

    def __init__(self, tape: Tape, session: str, peer: str, protocol: str, transport: str, channel: str = "") -> None:
        self.add = tape.add
        self.clock = tape.clock
        self._ways = [
            Way(session, peer, protocol, transport, direction, kind, channel)
            for direction in ("in", "out")
            for kind in ("text", "binary")
        ]
        self.in_text, self.in_binary, self.out_text, self.out_binary = self._ways

    def know(self, peer: str) -> None:
        """Know whose it is."""
        for way in self._ways:
            way.peer = peer

    def heard(self, at: int, packet: Packet, op: str) -> None:
        """Note what came at a time."""
        what = packet.payload if packet.blob is None else Note(size=len(packet.blob))
        self.add((at, self.in_text if packet.is_text else self.in_binary, what, op, 0))

    def said(self, at: int, packet: Packet, op: str, since: int = 0) -> None:
        """Note what the socket got at a time, and had to wait for it since another."""
        what = packet.payload if packet.blob is None else Note(size=len(packet.blob))
        self.add((at, self.out_text if packet.is_text else self.out_binary, what, op, at - since if since else 0))

    def mark(self, kind: str, direction: str, reason: str = "", op: str = "", channel: str = "") -> None:
        """Note that something happened now: open, close, drop or deny."""
        way = self.in_text
        marked = Way(way.session, way.peer, way.protocol, way.transport, direction, kind, way.channel)
        self.add((self.clock(), marked, Note(reason, channel), op, 0))
