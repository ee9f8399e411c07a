"""State file beside a store: whether the store is open, and up to which frame its WAL is known to be on disk.

It is written in place, in one sector, without fsync, after its commit has reached the disk. It therefore never claims
more than the store has. After a killed process it is exact. After a power cut it may be some seconds old and claim
less.
"""

import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Self
from zlib import crc32

from fiveways.store import wal

_MODE: Final = 0o600
_MAGIC: Final = b"5way-st1"
_LAYOUT: Final = struct.Struct("<8s16sQ6I")
_CHECKSUM: Final = struct.Struct("<I")
_FRAME_BYTES: Final = wal.FRAME_STRUCT.size + wal.PAGE_BYTES
STATE_BYTES: Final = _LAYOUT.size + _CHECKSUM.size


class Phase(IntEnum):
    """Phase of a hub, or the phase in which it was killed."""

    OPEN = 0
    CLOSED = 1
    """The store has no WAL: the database has all records."""
    OPENING = 2
    """Nothing is acknowledged so far; all other fields are of the last run."""


@dataclass(frozen=True, slots=True)
class StoreState:
    """Content of a state file."""

    store_id: bytes
    """Random id of the store, 16 bytes."""
    run: int
    """Number of the run, counted from 1; each start of a hub is a run."""
    phase: Phase
    salts: wal.Salts = (0, 0)
    frames: int = 0
    """Number of frames with these salts that are on disk; 0 if nothing is known about the WAL."""
    last_checksum: wal.Checksum = (0, 0)
    """Checksum of the last of these frames."""

    def pack(self) -> bytes:
        """Return the content as bytes."""
        numbers = (self.phase, *self.salts, self.frames, *self.last_checksum)
        data = _LAYOUT.pack(_MAGIC, self.store_id, self.run, *numbers)
        return data + _CHECKSUM.pack(crc32(data))


def state_path(store: Path) -> Path:
    """Return the path of a store's state file."""
    return store.with_name(f"{store.name}-state")


def wal_path(store: Path) -> Path:
    """Return the path of a store's WAL."""
    return store.with_name(f"{store.name}-wal")


def parse_state(data: bytes) -> StoreState | None:
    """Return the content of a state file; None if it is damaged."""
    if len(data) < STATE_BYTES or _CHECKSUM.unpack_from(data, _LAYOUT.size) != (crc32(data[: _LAYOUT.size]),):
        return None
    magic, store, run, phase, one, other, frames, first, second = _LAYOUT.unpack_from(data)
    if magic != _MAGIC or phase not in set(Phase):
        return None
    return StoreState(store, run, Phase(phase), (one, other), frames, (first, second))


class StoreInUse(Exception):
    """Another process, or another store of this process, has opened the state file."""


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreInUse from None


class StateFile:
    """Open state file, locked for one store. The lock ends with the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        self._wal: int | None = None
        self._distrusted_salts: wal.Salts | None = None
        """Salts of a WAL with frames of a failed transaction, which look like committed ones."""
        try:
            # On file systems without such locks, SQLite's lock of the database remains.
            with suppress(OSError):
                _lock(handle)
        except StoreInUse:
            os.close(handle)
            raise
        self.state = parse_state(os.pread(handle, STATE_BYTES, 0))

    @classmethod
    def open(cls, store: Path) -> Self | None:
        """Open the state file of a store; None if it is missing."""
        try:
            return cls(store, os.open(state_path(store), os.O_RDWR))
        except FileNotFoundError:
            return None

    @classmethod
    def create(cls, store: Path) -> Self:
        """Create a state file; the caller writes it."""
        return cls(store, os.open(state_path(store), os.O_CREAT | os.O_RDWR, _MODE))

    def write(self, state: StoreState) -> None:
        """Write a state and sync it to disk."""
        os.pwrite(self._handle, state.pack(), 0)
        os.fsync(self._handle)
        self.state = state

    def record_commit(self) -> None:
        """Write the last frame on disk after a commit. If that fails, the file claims less."""
        with suppress(OSError):
            self._record_commit()

    def distrust(self) -> None:
        """Ignore this WAL after a failed transaction; the next one has other salts."""
        with suppress(OSError), wal_path(self._path).open("rb") as file:
            self._distrusted_salts = wal.parse_salts(file.read(wal.HEADER_STRUCT.size))

    def close(self) -> None:
        """Close the file, which releases the lock."""
        for handle in (self._handle, self._wal):
            if handle is not None:
                os.close(handle)

    def _record_commit(self) -> None:
        if (previous := self.state) is None:
            return
        if self._wal is None:
            self._wal = os.open(wal_path(self._path), os.O_RDONLY)
        log = self._wal
        salts, frame_number = previous.salts, previous.frames
        if _read_frame_header(log, frame_number + 1, salts) is None:
            # Nothing was written, or the WAL was reset.
            header = os.pread(log, wal.HEADER_STRUCT.size, 0)
            if len(header) < wal.HEADER_STRUCT.size:
                return
            salts, frame_number = wal.HEADER_STRUCT.unpack(header)[4:6], 0
            if salts in (previous.salts, self._distrusted_salts):
                return
        last_header, step = None, 1
        # All frames with these salts are at the beginning: galloping search finds the last one.
        while (next_header := _read_frame_header(log, frame_number + step, salts)) is not None:
            last_header, frame_number, step = next_header, frame_number + step, step * 2
        while (step := step // 2) > 0:
            if (next_header := _read_frame_header(log, frame_number + step, salts)) is not None:
                last_header, frame_number = next_header, frame_number + step
        if last_header is None or not last_header[1] or salts == self._distrusted_salts:
            return  # the last frame ends no transaction
        self.state = StoreState(
            previous.store_id, previous.run, Phase.OPEN, salts, frame_number, (last_header[4], last_header[5])
        )
        os.pwrite(self._handle, self.state.pack(), 0)
        if not previous.frames:
            # From now on a missing WAL is detected, also after a power cut.
            os.fsync(self._handle)


def _read_frame_header(log: int, frame_number: int, salts: wal.Salts) -> tuple[int, ...] | None:
    """Return the header of a WAL frame; None if it has other salts."""
    data = os.pread(log, wal.FRAME_STRUCT.size, wal.HEADER_STRUCT.size + (frame_number - 1) * _FRAME_BYTES)
    if len(data) < wal.FRAME_STRUCT.size:
        return None
    header = wal.FRAME_STRUCT.unpack(data)
    return header if header[2:4] == salts else None
