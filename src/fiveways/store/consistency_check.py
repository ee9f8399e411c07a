"""Checks for missing, truncated or exchanged files of a store, before SQLite opens it.

SQLite would create an empty database beside a WAL, use a WAL up to its first bad frame, and delete it when it closes.
These checks change no file.
"""

from pathlib import Path
from typing import Final

from fiveways.store import marks, wal
from fiveways.store.errors import StoreError, damage_error
from fiveways.store.marks import Marks
from fiveways.store.state_file import Phase, StoreState, state_path, wal_path

_MAX_WAL_RESETS: Final = 1 << 20
"""Maximum number of WAL resets since the state file was synced to disk."""
_BACKUP_HINT: Final = (
    "; if the store was restored from a backup, delete {state} and files without a copy in the backup, and restart"
)


class ForeignWal(StoreError):
    """WAL that belongs to another store: its frames would make pages of this one unreadable."""


def check_files(path: Path, state: StoreState | None) -> None:
    """Check the files of a store; StoreError names the file that is not as the last hub left it."""
    if not path.exists() or not path.stat().st_size:
        _check_empty(path)
        return
    (is_readable, own_marks), log = marks.read_marks_without_wal(path), _read_wal(path)
    if state is not None and state.run and is_readable:
        _check_same_run(path, state, own_marks)
    if log is None or not log.size:
        if own_marks is not None:
            _check_missing_wal(path, state, own_marks, is_there=log is not None)
        return
    if own_marks is not None and (state is None or state.phase is Phase.CLOSED) and own_marks.is_closed:
        text = f"{wal_path(path)} does not belong to {path}, which was closed without a WAL"
        other = "; if it is left from another store, move it away and start again"
        raise damage_error(path, text, other, kind=ForeignWal)
    _check_wal(path, state, log)


def _read_wal(path: Path) -> wal.Wal | None:
    try:
        return wal.read_wal(wal_path(path))
    except FileNotFoundError:
        return None


def _check_empty(path: Path) -> None:
    """Refuse to create a store beside remains of one."""
    suffixes = ["-wal", "-state", "-shm", *([] if path.exists() else ["-journal"])]
    candidates = [path.with_name(f"{path.name}{suffix}") for suffix in suffixes]
    remains = [file for file in candidates if file.exists() and (file.stat().st_size or file == state_path(path))]
    if remains:
        names = " and ".join(map(str, remains))
        text = f"{path} is {'empty' if path.exists() else 'missing'}, but it had records: {names} still exist"
        hint = f"; to begin with an empty store, move {names} away"
        raise damage_error(path, text, hint)


def _check_same_run(path: Path, state: StoreState, own_marks: Marks | None) -> None:
    """Refuse a database that is of another store than the state file, or older."""
    hint = _BACKUP_HINT.format(state=state_path(path))
    if own_marks is not None and state.store_id != own_marks.store_id:
        raise damage_error(path, f"{path} and {state_path(path)} belong to different stores", hint)
    run = 0 if own_marks is None else own_marks.run
    if run < state.run:
        text = (
            f"{path} is older than {state_path(path)} (run {run} of the store, not run {state.run}): records are lost"
        )
        raise damage_error(path, text, hint)


def _check_missing_wal(path: Path, state: StoreState | None, own_marks: Marks, *, is_there: bool) -> None:
    """Refuse a database with a missing WAL, unless the database has all records."""
    is_current = state is not None and state.run == own_marks.run
    if own_marks.is_closed or (state is not None and is_current and state.phase is Phase.CLOSED):
        return
    # A hub that was killed before its first commit leaves an empty WAL.
    if is_there and not (state is not None and is_current and state.frames):
        return
    problem = "empty" if is_there else "missing"
    text = f"{wal_path(path)} is {problem}, and {path} was not closed cleanly: the last records are lost"
    raise damage_error(path, text, _BACKUP_HINT.format(state=state_path(path)))


def _check_wal(path: Path, state: StoreState | None, log: wal.Wal) -> None:
    """Refuse a WAL with less than the acknowledged records."""
    file, hint = wal_path(path), _BACKUP_HINT.format(state=state_path(path))
    acknowledged = 0 if state is None else state.frames
    if log.salts is None:
        if acknowledged or log.size > wal.HEADER_STRUCT.size + wal.FRAME_STRUCT.size:
            raise damage_error(path, f"the header of {file} is damaged: its records cannot be read")
        return
    if log.first_bad_frame:
        text = f"frame {log.first_bad_frame} of {file} is damaged, and {log.lost_commits} commits follow it"
        raise damage_error(path, text)
    if state is None or not acknowledged:
        return
    if log.salts != state.salts:
        if not 0 < (log.salts[0] - state.salts[0]) % (1 << 32) < _MAX_WAL_RESETS:
            text = f"{file} does not belong to {path}: the last records are lost"
            raise damage_error(path, text, hint, kind=ForeignWal)
    elif log.frames < acknowledged:
        text = f"{file} ends at frame {log.frames}, or is damaged after it, but {acknowledged} frames were written"
        raise damage_error(path, f"{text}: the last records are lost", hint)
    elif log.checksums[acknowledged - 1] != state.last_checksum:
        raise damage_error(path, f"frame {acknowledged} of {file} is not the frame that was written", hint)
