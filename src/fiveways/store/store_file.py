"""Opening and closing the files of a store, with all checks before anything is changed."""

import errno
import os
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from fiveways.store import consistency_check, errors, integrity, marks, schema
from fiveways.store.batch_statement import TEXT_COUNT
from fiveways.store.errors import StoreError
from fiveways.store.state_file import Phase, StateFile, StoreInUse, StoreState

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_MIN_DATABASE_SIZE: Final = 512
"""Size of the smallest database; SQLite treats a smaller file as empty and would overwrite it."""
_CHECKPOINT: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
_CACHED_STATEMENTS: Final = 8 * TEXT_COUNT
_WAL_SIZE: Final = 1 << 26
"""Maximum size of a WAL after a checkpoint. Checkpoints after 1000 pages, the default; more were not faster."""


def connect(path: Path) -> tuple[sqlite3.Connection, StateFile]:
    """Open a store exclusively for this process; StoreError if it is invalid, damaged or in use.

    The locks end with the process, even if it is killed.
    """
    connection = state = own_marks = None
    try:
        state = StateFile.open(path)
        consistency_check.check_files(path, None if state is None else state.state)
        _create_file(path)
        connection = sqlite3.connect(
            path, timeout=0.0, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
        )
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        version = check_version(path, connection)
        if version == schema.VERSION:
            _check_records(path, connection)
        if state is None:
            state = StateFile.create(path)
            _fsync_folder(path.parent)
        # From here on, a new WAL belongs to the database.
        state.write(replace(state.state or StoreState(b"", 0, Phase.OPENING), phase=Phase.OPENING))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE}").fetchone()
        # Only a transaction that writes is certain to take the lock.
        connection.execute("BEGIN EXCLUSIVE")
        make_tables(connection, version)
        own_marks = marks.begin_run(connection)
        connection.execute("COMMIT")
        # From here on, the database itself is marked as open, with a WAL.
        connection.execute(_CHECKPOINT).fetchone()
        state.write(StoreState(own_marks.store_id, own_marks.run, Phase.OPEN))
    except (sqlite3.Error, OSError, StoreError, StoreInUse) as exc:
        if connection is not None:
            _close_failed(connection, state, own_marks)
        if state is not None:
            state.close()
        raise _opening_error(path, exc, is_store=state is not None) from exc
    return connection, state


def close(connection: sqlite3.Connection, state: StateFile) -> None:
    """Close a store and mark it as closed cleanly. If the disk is full, the WAL remains."""
    is_marked, is_checkpointed = _write_end_marks(connection), _checkpoint(connection)
    if not is_marked:  # the checkpoint may have freed space
        _write_end_marks(connection)
        is_checkpointed = _checkpoint(connection)
    if is_checkpointed and state.state is not None:
        with suppress(OSError):
            state.write(StoreState(state.state.store_id, state.state.run, Phase.CLOSED))
    with suppress(sqlite3.Error):
        connection.close()
    state.close()


def _write_end_marks(connection: sqlite3.Connection) -> bool:
    try:
        marks.end_run(connection)
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        return False
    return True


def _checkpoint(connection: sqlite3.Connection) -> bool:
    """Move the WAL into the database; return whether it was moved completely."""
    try:
        return bool(connection.execute(_CHECKPOINT).fetchone()[0] == 0)
    except sqlite3.Error:
        return False


def _close_failed(connection: sqlite3.Connection, state: StateFile | None, own_marks: marks.Marks | None) -> None:
    """Close a store that failed to open. SQLite then deletes the WAL, which the state file must record."""
    with suppress(sqlite3.Error, OSError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if state is not None and state.state is not None and _checkpoint(connection):
            run = state.state if own_marks is None else own_marks
            state.write(StoreState(run.store_id, run.run, Phase.CLOSED))
    with suppress(sqlite3.Error):
        connection.close()


def _opening_error(path: Path, exc: sqlite3.Error | OSError | StoreError | StoreInUse, *, is_store: bool) -> StoreError:
    """Return the error for a store that cannot be opened."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, StoreInUse):
        return errors.in_use_error(path)
    if is_store and isinstance(exc, sqlite3.Error) and exc.sqlite_errorname == "SQLITE_NOTADB":
        return errors.damage_error(path, f"the header of {path} is damaged")
    return errors.opening_error(path, exc)


def _check_records(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a store with a damaged or missing record."""
    own_marks = marks.read_marks(connection)
    expected = own_marks.totals if own_marks is not None and own_marks.is_closed else None
    for damage in integrity.find_damage(connection, expected):
        raise errors.damage_error(path, f"{path} is damaged: {damage}")


def _create_file(path: Path) -> None:
    """Create the file if it is missing. An existing one is not opened: closing it would release SQLite's locks."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: choose a file in it")
    _make_folder(path.parent)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
        _fsync_folder(path.parent)
    # SQLite would open a read-only file, and fail later with a less helpful error.
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    """Sync a new entry of a folder to disk, if the system supports that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_version(path: Path, connection: sqlite3.Connection) -> int:
    """Return the version of a store, 0 for an empty file; StoreError if the file must not be written."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (application or version or tables):
        if path.exists() and 0 < path.stat().st_size < _MIN_DATABASE_SIZE:
            raise StoreError(errors.NOT_A_STORE.format(path=path))
        return 0
    if application != schema.APPLICATION_ID:
        raise StoreError(f"{path} belongs to another program: choose another file, or move this one away")
    if version > schema.VERSION:
        raise StoreError(
            f"{path} was written by a newer Fiveways (store version {version}, this hub supports "
            f"{schema.VERSION}): run the newer version, or choose another file"
        )
    return int(version)


def make_tables(connection: sqlite3.Connection, version: int) -> None:
    """Create the tables of an empty file, or upgrade those of an older version."""
    connection.create_function("sum_of", -1, lambda *fields: integrity.checksum_of(fields), deterministic=True)
    scripts = (
        [schema.UPGRADES[old_version] for old_version in range(version, schema.VERSION)]
        if version
        else [schema.CREATE_TABLES]
    )
    for script in scripts:
        for statement in script.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.VERSION}")
