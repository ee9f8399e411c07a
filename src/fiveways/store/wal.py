"""Reader for SQLite's write-ahead log (WAL), without SQLite.

SQLite uses the frames before the first bad one, up to the last commit among them, and ignores the others silently. It
writes the frames of a transaction only after those of the previous one are synced. After a bad frame there can thus be
frames of one transaction, which was in progress at a power cut. Frames of a second one indicate damage.

File format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
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
"""Page size of a store in bytes."""
_MAGIC: Final = 0x377F0682
_FORMAT: Final = 3007000
_WORD_MASK: Final = 0xFFFFFFFF
Checksum = tuple[int, int]
Salts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wal:
    """Frames of a WAL as SQLite would use them."""

    size: int
    salts: Salts | None = None
    """None if the header is damaged or was never written."""
    page_size: int = 0
    frames: int = 0
    """Number of frames up to the last commit that SQLite uses."""
    checksums: tuple[Checksum, ...] = ()
    """Checksums of these frames."""
    first_bad_frame: int = 0
    """Number of the first bad frame, counted from 1, if frames of a later transaction follow it; else 0."""
    lost_commits: int = 0
    """Number of commits after the bad frame."""


@dataclass(frozen=True, slots=True)
class WalFrame:
    """Frame of the current generation."""

    number: int
    page: int
    database_pages: int
    """Pages of the database after the transaction that this frame ends; 0 if it ends none."""
    is_chained: bool
    """Whether this frame and all before it match their checksums."""
    is_checksum_valid: bool
    """Whether it matches its checksum, given the stored checksum of the frame before."""
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
    """Return a header for a WAL that begins with this frame. It does not match the checksum of the frame."""
    if len(frame) < FRAME_STRUCT.size:
        return b""
    _, _, *salts, _, _ = FRAME_STRUCT.unpack(frame)
    magic = _MAGIC | (byteorder == "big")
    data = struct.pack(">6I", magic, _FORMAT, page_size, 0, *salts)
    return data + struct.pack(">2I", *_checksum(data, (0, 0), magic & 1))


def read_frames(file: BinaryIO) -> Iterator[WalFrame]:
    """Yield the frames with the salts of the header, also those with wrong checksums."""
    header = file.read(HEADER_STRUCT.size)
    if (salts := parse_salts(header)) is None:
        return
    magic, _, page_size, *_, first, second = HEADER_STRUCT.unpack(header)
    chain: Checksum | None = (first, second)
    previous: Checksum = first, second
    number = 0
    while len(data := file.read(FRAME_STRUCT.size + page_size)) == FRAME_STRUCT.size + page_size:
        number += 1
        page, commit, first_salt, second_salt, first, second = FRAME_STRUCT.unpack_from(data)
        if (first_salt, second_salt) != salts:
            chain, previous = None, (first, second)
            continue
        body = data[FRAME_STRUCT.size :]
        computed = _checksum(body, _checksum(data[:8], previous, magic & 1), magic & 1)
        matches = computed == (first, second)
        chain = computed if chain == previous and matches else None
        previous = first, second
        yield WalFrame(number, page, commit, chain is not None, matches, previous, body)


def read_wal(path: Path) -> Wal:
    """Read a WAL; raise OSError if it is not readable."""
    with path.open("rb") as file:
        header = file.read(HEADER_STRUCT.size)
        size = path.stat().st_size
        if (salts := parse_salts(header)) is None:
            return Wal(size)
        (page_size,) = struct.unpack_from(">I", header, 8)
        file.seek(0)
        sums: list[Checksum] = []
        committed = first_bad = commits = commits_passed = 0
        for frame in read_frames(file):
            if frame.is_chained:
                sums.append(frame.checksum)
                if frame.database_pages:
                    committed = frame.number
                continue
            first_bad = first_bad or len(sums) + 1
            # Frames after a commit belong to another transaction.
            commits_passed += commits > 0
            commits += frame.database_pages > 0
    return Wal(size, salts, page_size, committed, tuple(sums[:committed]), first_bad if commits_passed else 0, commits)


def _checksum(data: bytes, start: Checksum, big_endian: int) -> Checksum:
    """Continue the checksum of a WAL over pairs of 32-bit words."""
    words = array("I", data)
    if (byteorder == "big") != bool(big_endian):
        words.byteswap()
    first, second = start
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD_MASK
        second = (second + other + first) & _WORD_MASK
    return first, second
