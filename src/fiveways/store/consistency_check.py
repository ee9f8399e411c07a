"""Signs that files of a store are missing, cut or exchanged, looked for before SQLite opens it.

SQLite would begin an empty database beside a WAL, use a WAL up to its first bad frame, and delete it when it closes.
Nothing here changes a file.
"""

from pathlib import Path
from typing import Final

from fiveways.store import marks, wal
from fiveways.store.errors import StoreError, damage_error
from fiveways.store.marks import Marks
from fiveways.store.state_file import Phase, StoreState, state_path, wal_path

_MAX_WAL_RESETS: Final = 1 << 20
"""So many times at most a WAL was begun anew since the state file reached the disk."""
_BACKUP_HINT: Final = (
    "; if the store was restored from a backup, delete {state} and what the backup has no copy of, and start again"
)


class ForeignWal(StoreError):
    """A WAL beside a store that it does not belong to: its frames would make pages of the store unreadable."""


def check_files(path: Path, state: StoreState | None) -> None:
    """Check the files of a store; StoreError says which of them is not as it was left."""
    if not path.exists() or not path.stat().st_size:
        _check_empty(path)
        return
    (is_readable, own), found = marks.read_marks_without_wal(path), _read_wal(path)
    if state is not None and state.run and is_readable:
        _check_same_run(path, state, own)
    if found is None or not found.size:
        if own is not None:
            _check_missing_wal(path, state, own, is_there=found is not None)
        return
    if own is not None and (state is None or state.phase is Phase.CLOSED) and own.is_closed:
        text = f"{wal_path(path)} does not belong to {path}, which was closed without one"
        other = "; if it was left from another store, move it away and start again"
        raise damage_error(path, text, other, kind=ForeignWal)
    _check_wal(path, state, found)


def _read_wal(path: Path) -> wal.Wal | None:
    try:
        return wal.read_wal(wal_path(path))
    except FileNotFoundError:
        return None


def _check_empty(path: Path) -> None:
    """Refuse to begin a store beside what is left of one."""
    suffixes = ["-wal", "-state", "-shm", *([] if path.exists() else ["-journal"])]
    beside = [path.with_name(f"{path.name}{suffix}") for suffix in suffixes]
    left = [each for each in beside if each.exists() and (each.stat().st_size or each == state_path(path))]
    if left:
        names = " and ".join(map(str, left))
        text = f"{path} is {'empty' if path.exists() else 'missing'}, and there were records in it, because of {names}"
        way_out = f"; to begin with an empty store, move {names} away"
        raise damage_error(path, text, way_out)


def _check_same_run(path: Path, state: StoreState, own: Marks | None) -> None:
    """Refuse a database that the state file does not belong to, or that is older."""
    backup = _BACKUP_HINT.format(state=state_path(path))
    if own is not None and state.store_id != own.store_id:
        raise damage_error(path, f"{path} and {state_path(path)} are of different stores", backup)
    run = 0 if own is None else own.run
    if run < state.run:
        text = (
            f"{path} is older than {state_path(path)} (run {run} of the store, and run {state.run}): records are lost"
        )
        raise damage_error(path, text, backup)


def _check_missing_wal(path: Path, state: StoreState | None, own: Marks, *, is_there: bool) -> None:
    """Refuse a database whose WAL is gone, unless all of it is in the database."""
    is_current = state is not None and state.run == own.run
    if own.is_closed or (state is not None and is_current and state.phase is Phase.CLOSED):
        return
    # A hub that was killed before its first commit leaves an empty WAL.
    if is_there and not (state is not None and is_current and state.frames):
        return
    what = "empty" if is_there else "missing"
    text = f"{wal_path(path)} is {what}, and {path} was not closed in good order: the last records are lost"
    raise damage_error(path, text, _BACKUP_HINT.format(state=state_path(path)))


def _check_wal(path: Path, state: StoreState | None, found: wal.Wal) -> None:
    """Refuse a WAL that holds less than was acknowledged."""
    file, backup = wal_path(path), _BACKUP_HINT.format(state=state_path(path))
    promised = 0 if state is None else state.frames
    if found.salts is None:
        if promised or found.size > wal.HEADER_STRUCT.size + wal.FRAME_STRUCT.size:
            raise damage_error(path, f"the header of {file} is damaged: its records cannot be read")
        return
    if found.first_bad_frame:
        text = f"frame {found.first_bad_frame} of {file} is damaged, and {found.lost_commits} commits are behind it"
        raise damage_error(path, text)
    if state is None or not promised:
        return
    if found.salts != state.salts:
        if not 0 < (found.salts[0] - state.salts[0]) % (1 << 32) < _MAX_WAL_RESETS:
            text = f"{file} does not belong to {path}: the last records are lost"
            raise damage_error(path, text, backup, kind=ForeignWal)
    elif found.frames < promised:
        text = f"{file} ends at frame {found.frames}, or is damaged behind it, and {promised} frames were written"
        raise damage_error(path, f"{text}: the last records are lost", backup)
    elif found.checksums[promised - 1] != state.last_checksum:
        raise damage_error(path, f"frame {promised} of {file} is not the one that was written", backup)
