"""The state file beside a store: whether the store is open, and up to where its WAL is known to be on disk.

It is written in place, in one sector, without fsync, after the commit that it tells of has reached the disk. So it
never tells of more than the store holds. After a killed process it is exact; after a power cut it may be some seconds
old, and then it tells of less.
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
    """The phase of a hub, or its phase when it was killed."""

    OPEN = 0
    CLOSED = 1
    """The store has no WAL: all of it is in the database."""
    OPENING = 2
    """Nothing is acknowledged; everything else is as it was in the last run."""


@dataclass(frozen=True, slots=True)
class StoreState:
    """The content of a state file."""

    store_id: bytes
    """The random id of the store, 16 bytes."""
    run: int
    """The number of the run, counted from 1; each start of a hub is one."""
    phase: Phase
    salts: wal.Salts = (0, 0)
    frames: int = 0
    """Frames of the WAL with these salts that are on disk; 0 if nothing is known of the WAL."""
    last_checksum: wal.Checksum = (0, 0)
    """The checksum of the last of them."""

    def pack(self) -> bytes:
        """Return it as it is in the file."""
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
    """Another process, or another store of this one, has the state file open."""


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreInUse from None


class StateFile:
    """An open state file, locked for this store alone. The lock ends with the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        self._wal: int | None = None
        self._distrusted_salts: wal.Salts | None = None
        """The salts of a WAL with frames of a transaction that failed: they look like those of a commit."""
        try:
            # Where files cannot be locked so, SQLite's lock of the database remains.
            with suppress(OSError):
                _lock(handle)
        except StoreInUse:
            os.close(handle)
            raise
        self.state = parse_state(os.pread(handle, STATE_BYTES, 0))

    @classmethod
    def open(cls, store: Path) -> Self | None:
        """Open the state file of a store; None if there is none."""
        try:
            return cls(store, os.open(state_path(store), os.O_RDWR))
        except FileNotFoundError:
            return None

    @classmethod
    def create(cls, store: Path) -> Self:
        """Make a state file; the caller writes it."""
        return cls(store, os.open(state_path(store), os.O_CREAT | os.O_RDWR, _MODE))

    def write(self, state: StoreState) -> None:
        """Write a state, and have it survive a power cut."""
        os.pwrite(self._handle, state.pack(), 0)
        os.fsync(self._handle)
        self.state = state

    def record_commit(self) -> None:
        """Write down up to where the WAL is on disk, after a commit. Where that fails, the file tells of less."""
        with suppress(OSError):
            self._record_commit()

    def distrust(self) -> None:
        """Tell nothing of this WAL any more, after a transaction that failed; the next one has other salts."""
        with suppress(OSError), wal_path(self._path).open("rb") as file:
            self._distrusted_salts = wal.parse_salts(file.read(wal.HEADER_STRUCT.size))

    def close(self) -> None:
        """Close the file; the lock is gone."""
        for handle in (self._handle, self._wal):
            if handle is not None:
                os.close(handle)

    def _record_commit(self) -> None:
        if (before := self.state) is None:
            return
        if self._wal is None:
            self._wal = os.open(wal_path(self._path), os.O_RDONLY)
        log = self._wal
        salts, number = before.salts, before.frames
        if _read_frame_header(log, number + 1, salts) is None:
            # Nothing was written, or the WAL was begun anew.
            header = os.pread(log, wal.HEADER_STRUCT.size, 0)
            if len(header) < wal.HEADER_STRUCT.size:
                return
            salts, number = wal.HEADER_STRUCT.unpack(header)[4:6], 0
            if salts in (before.salts, self._distrusted_salts):
                return
        last, step = None, 1
        # All frames with these salts stand at the beginning: the last of them is found in steps that double and halve.
        while (found := _read_frame_header(log, number + step, salts)) is not None:
            last, number, step = found, number + step, step * 2
        while (step := step // 2) > 0:
            if (found := _read_frame_header(log, number + step, salts)) is not None:
                last, number = found, number + step
        if last is None or not last[1] or salts == self._distrusted_salts:
            return  # it ends no transaction
        self.state = StoreState(before.store_id, before.run, Phase.OPEN, salts, number, (last[4], last[5]))
        os.pwrite(self._handle, self.state.pack(), 0)
        if not before.frames:
            # From now on a missing WAL is missed, also after a power cut.
            os.fsync(self._handle)


def _read_frame_header(log: int, number: int, salts: wal.Salts) -> tuple[int, ...] | None:
    """Return the header of a frame of the WAL; None if it has other salts."""
    data = os.pread(log, wal.FRAME_STRUCT.size, wal.HEADER_STRUCT.size + (number - 1) * _FRAME_BYTES)
    if len(data) < wal.FRAME_STRUCT.size:
        return None
    found = wal.FRAME_STRUCT.unpack(data)
    return found if found[2:4] == salts else None
