"""Reads SQLite's write-ahead log (WAL) without SQLite.

SQLite uses the frames before the first bad one, up to the last commit among them, and says nothing of the others. It
writes the frames of a transaction only after those of the transaction before are fsynced. So behind a bad frame there
can be frames of one transaction, which was under way when the power went; frames of a second one show damage.

The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import byteorder
from typing import BinaryIO, Final

HEADER_STRUCT: Final = struct.Struct(">8I")
FRAME_STRUCT: Final = struct.Struct(">6I")
PAGE_BYTES: Final = 4096
"""Bytes of a page of a store."""
_MAGIC: Final = 0x377F0682
_FORMAT: Final = 3007000
_WORD_MASK: Final = 0xFFFFFFFF
Checksum = tuple[int, int]
Salts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wal:
    """The frames of a WAL, as SQLite would find them."""

    size: int
    salts: Salts | None = None
    """None if the header is damaged, or was never written."""
    page_size: int = 0
    frames: int = 0
    """Up to the last commit that SQLite finds."""
    checksums: tuple[Checksum, ...] = ()
    """The checksums in these frames."""
    first_bad_frame: int = 0
    """The number of the first bad frame, counted from 1, if frames of a later transaction are behind it."""
    lost_commits: int = 0
    """The commits behind the bad frame."""


@dataclass(frozen=True, slots=True)
class WalFrame:
    """A frame of the current generation."""

    number: int
    page: int
    database_pages: int
    """Pages of the database after the transaction that ends here; 0 of other frames."""
    is_chained: bool
    """This frame and all before it match their checksums."""
    is_checksum_valid: bool
    """It matches its checksum, if the one before has the checksum that it is said to have."""
    checksum: Checksum
    data: bytes


def parse_salts(header: bytes) -> Salts | None:
    """Return the salts in the header of a WAL; None if it is damaged or incomplete."""
    if len(header) < HEADER_STRUCT.size:
        return None
    magic, version, _, _, *salts, first, second = HEADER_STRUCT.unpack_from(header)
    if magic & ~1 != _MAGIC or version != _FORMAT or _checksum(header[:24], (0, 0), magic & 1) != (first, second):
        return None
    return salts[0], salts[1]


def build_header(frame: bytes, page_size: int = PAGE_BYTES) -> bytes:
    """Return a header for a WAL that begins with a frame; it does not match the checksum of that frame."""
    if len(frame) < FRAME_STRUCT.size:
        return b""
    _, _, *salts, _, _ = FRAME_STRUCT.unpack(frame)
    magic = _MAGIC | (byteorder == "big")
    data = struct.pack(">6I", magic, _FORMAT, page_size, 0, *salts)
    return data + struct.pack(">2I", *_checksum(data, (0, 0), magic & 1))


def read_frames(file: BinaryIO) -> Iterator[WalFrame]:
    """Yield the frames that have the salts of the header, whether or not their checksums match."""
    header = file.read(HEADER_STRUCT.size)
    if (salts := parse_salts(header)) is None:
        return
    magic, _, page_size, *_, first, second = HEADER_STRUCT.unpack(header)
    chain: Checksum | None = (first, second)
    before: Checksum = first, second
    number = 0
    while len(data := file.read(FRAME_STRUCT.size + page_size)) == FRAME_STRUCT.size + page_size:
        number += 1
        page, commit, salt, other, first, second = FRAME_STRUCT.unpack_from(data)
        if (salt, other) != salts:
            chain, before = None, (first, second)
            continue
        body = data[FRAME_STRUCT.size :]
        found = _checksum(body, _checksum(data[:8], before, magic & 1), magic & 1)
        matches = found == (first, second)
        chain = found if chain == before and matches else None
        before = first, second
        yield WalFrame(number, page, commit, chain is not None, matches, before, body)


def read_wal(path: Path) -> Wal:
    """Read a WAL; OSError if that is impossible."""
    with path.open("rb") as file:
        header = file.read(HEADER_STRUCT.size)
        size = path.stat().st_size
        if (salts := parse_salts(header)) is None:
            return Wal(size)
        (page_size,) = struct.unpack_from(">I", header, 8)
        file.seek(0)
        sums: list[Checksum] = []
        committed = bad = commits = behind = 0
        for frame in read_frames(file):
            if frame.is_chained:
                sums.append(frame.checksum)
                if frame.database_pages:
                    committed = frame.number
                continue
            bad = bad or len(sums) + 1
            # Frames behind a commit are of another transaction.
            behind += commits > 0
            commits += frame.database_pages > 0
    return Wal(size, salts, page_size, committed, tuple(sums[:committed]), bad if behind else 0, commits)


def _checksum(data: bytes, start: Checksum, big_endian: int) -> Checksum:
    """Continue the checksum of a WAL over whole pairs of 32-bit words."""
    words = array("I", data)
    if (byteorder == "big") != bool(big_endian):
        words.byteswap()
    first, second = start
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD_MASK
        second = (second + other + first) & _WORD_MASK
    return first, second
