"""What the hub notes down as things happen: cheap to add to, and taken away in pages."""

from bisect import bisect
from collections.abc import Callable, Sequence
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


Entry = tuple[int, Way, "bytes | Note | list[bytes]", "str | Sequence[str]"]
"""When (ns since 1970), on which way, what, and of which operation; or several that are alike in the first two."""
_WIDTH: Final = 4
_PAGE: Final = 1 << 24
"""Bytes of payloads that go onto one page, or one payload."""
OP_END: Final = "\n"
"""Stands between operations, and in none of them."""


class Page(msgspec.Struct, gc=False, tag="page", array_like=True):
    """Some entries, column by column, as whoever writes them wants to have them: numbers and texts in a row.

    Most entries are one record. Numbers are of 4 bytes, but for times, which have 8.
    """

    first: int
    """The number of the first record, in the run."""
    ways: list[Way]
    way: bytes
    """For each entry, which of the ways it went,"""
    at: bytes
    """and when."""
    several: bytes
    """The places of entries that are several records,"""
    several_lengths: bytes
    """and how many each of them is."""
    payloads: bytes
    """For each record."""
    payload_lengths: bytes
    ops: bytes
    """For each record, with OP_END between them."""
    queued: dict[int, int]
    """How long entries had waited, in ns, by their places; most had not."""
    notes: dict[int, Note]
    """By the place of the record, which has no payload then."""

    def __len__(self) -> int:
        return len(self.payload_lengths) // 4


class Tape:
    """Entries that wait to be passed on."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Make one; `clock` tells the ns since 1970."""
        self.clock = clock
        # Entries lie end to end: a tuple that is kept is one more thing for Python to look after.
        self._cells: list[Any] = []
        self.add: Final[Callable[[Entry], None]] = self._cells.extend
        """Note an entry; the list is one and the same for ever, so that this may be kept."""
        self._several: list[int] = []
        """The places of entries that are several records."""
        self._queued: dict[int, int] = {}
        self._next = 0
        self.turn: Callable[[], None] = _nobody
        """Have what is there taken away; to be called when that is much."""

    def add_several(self, at: int, way: Way, payloads: list[bytes], ops: Sequence[str]) -> None:
        """Note frames that go one way at the same time."""
        self._several.append(len(self._cells) // _WIDTH)
        self.add((at, way, payloads, ops))

    def add_late(self, at: int, way: Way, what: "bytes | Note", op: str, since: int) -> None:
        """Note one frame that had to wait."""
        self._queued[len(self._cells) // _WIDTH] = at - since
        self.add((at, way, what, op))

    def take(self, most: int) -> Page | None:
        """Return the oldest entries."""
        cells = self._cells[: most * _WIDTH]
        if not cells:
            return None
        places = self._several[: bisect(self._several, len(cells) // _WIDTH - 1)]
        whats, ops, lengths = _one_by_one(cells[2::_WIDTH], cells[3::_WIDTH], places)
        notes: dict[int, Note] = {}
        try:
            sizes = list(map(len, whats))
        except TypeError:
            notes = {place: what for place, what in enumerate(whats) if type(what) is Note}
            whats = [b"" if type(what) is Note else what for what in whats]
            sizes = list(map(len, whats))
        payloads = b"".join(whats)
        if len(payloads) > _PAGE and len(cells) > _WIDTH:
            return self.take(_fitting(cells[2::_WIDTH]))
        count, records, ways = len(cells) // _WIDTH, len(whats), cells[1::_WIDTH]
        numbers = {way: number for number, way in enumerate(set(ways))}
        first, self._next = self._next, self._next + records
        return Page(
            first,
            list(numbers),
            pack(f"{count}i", *map(numbers.__getitem__, ways)),
            pack(f"{count}n", *cells[::_WIDTH]),  # of 8 bytes as q is, but quicker
            pack(f"{len(places)}i", *places),
            pack(f"{len(places)}i", *lengths),
            payloads,
            pack(f"{records}i", *sizes),
            OP_END.join(ops).encode(),
            self._cut(count),
            notes,
        )

    def _cut(self, count: int) -> dict[int, int]:
        """Forget the oldest entries; return how long they had waited."""
        del self._cells[: count * _WIDTH]
        queued, self._queued = self._queued, {}
        if not self._cells:
            self._several.clear()
            return queued
        self._several[:] = [place - count for place in self._several if place >= count]
        self._queued = {place - count: waited for place, waited in queued.items() if place >= count}
        return {place: waited for place, waited in queued.items() if place < count}

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH


def _one_by_one(whats: list[Any], ops: list[Any], several: list[int]) -> tuple[list[Any], list[str], list[int]]:
    """Return entries record by record, and how many each of `several` is."""
    if not several:
        return whats, ops, []
    flat, flat_ops, lengths, start = list[Any](), list[str](), list[int](), 0
    for place in several:
        flat += whats[start:place]
        flat += whats[place]
        flat_ops += ops[start:place]
        flat_ops += ops[place]
        lengths.append(len(whats[place]))
        start = place + 1
    return flat + whats[start:], flat_ops + ops[start:], lengths


def _fitting(whats: list[Any]) -> int:
    """Return how many entries go onto one page; one does, however large it is."""
    sizes = [0 if type(what) is Note else len(what) if type(what) is bytes else sum(map(len, what)) for what in whats]
    return max(1, bisect(list(accumulate(sizes)), _PAGE))


def _nobody() -> None:
    """Nobody takes anything away."""


class Track:
    """One link on the tape."""

    __slots__ = ("_tape", "_ways", "add", "clock", "in_binary", "in_text", "out_binary", "out_text")

    def __init__(self, tape: Tape, session: str, peer: str, protocol: str, transport: str, channel: str = "") -> None:
        self._tape = tape
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
        self.add((at, self.in_text if packet.is_text else self.in_binary, what, op))

    def said(self, at: int, packet: Packet, op: str, since: int = 0) -> None:
        """Note what the socket got at a time, and had to wait for it since another."""
        what = packet.payload if packet.blob is None else Note(size=len(packet.blob))
        way = self.out_text if packet.is_text else self.out_binary
        if since:
            self._tape.add_late(at, way, what, op, since)
        else:
            self.add((at, way, what, op))

    def said_all(self, packets: Sequence[Packet], ops: Sequence[str], since: int = 0) -> None:
        """Note what the socket got now, and to which operations that belongs."""
        at = self.clock()
        if len(packets) > 1 and not since:
            way, alike = self.out_text, [packet.payload for packet in packets if packet.is_text]
            if not alike:
                way, alike = self.out_binary, [packet.payload for packet in packets if packet.blob is None]
            if len(alike) == len(packets) == len(ops):  # nearly always
                self._tape.add_several(at, way, alike, ops)
                return
        for packet, op in zip(packets, ops, strict=True):
            self.said(at, packet, op, since)

    def mark(self, kind: str, direction: str, reason: str = "", op: str = "", channel: str = "") -> None:
        """Note that something happened now: open, close, drop or deny."""
        way = self.in_text
        marked = Way(way.session, way.peer, way.protocol, way.transport, direction, kind, way.channel)
        self.add((self.clock(), marked, Note(reason, channel), op))
