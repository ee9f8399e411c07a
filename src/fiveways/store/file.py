"""The file of a store: made, or checked before anything in it is touched."""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from fiveways.store import errors, schema
from fiveways.store.errors import StoreError
from fiveways.store.statement import TEXTS

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_LEAST: Final = 512
"""Bytes of the smallest database; SQLite takes a file with less for an empty one, and would write over it."""
_STATEMENTS: Final = 8 * TEXTS
_WAL_SIZE: Final = 1 << 26
"""What a checkpoint leaves of a WAL that was larger. One comes after 1000 pages, as usual; more were not faster."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the store for this process alone; StoreError if it is none, or cannot be had.

    The lock is SQLite's own: unlike a lock file, it goes with the process, however that ends.
    """
    connection = None
    try:
        _create(path)
        connection = sqlite3.connect(
            path, timeout=0.0, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
        )
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        version = _check(path, connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE}").fetchone()
        # Only a transaction that writes takes the lock for certain.
        connection.execute("BEGIN EXCLUSIVE")
        _make_tables(connection, version)
        connection.execute("COMMIT")
    except (sqlite3.Error, OSError, StoreError) as exc:
        if connection is not None:
            connection.close()
        raise exc if isinstance(exc, StoreError) else errors.opening(path, exc) from exc
    return connection


def _create(path: Path) -> None:
    """Make the file if it is not there. One that is there is not opened: to close it would end SQLite's locks on it."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: a store is a file, name one in it")
    _make_folder(path.parent)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
        _sync(path.parent)
    # SQLite would open what it may only read, and fail later with less to say.
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Have a folder's new entry survive a power cut, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _check(path: Path, connection: sqlite3.Connection) -> int:
    """Return the version of a store, 0 of an empty file; StoreError if it is not ours to write to."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (application or version or tables):
        if 0 < path.stat().st_size < _LEAST:
            raise StoreError(errors.NO_STORE.format(path=path))
        return 0
    if application != schema.APPLICATION:
        raise StoreError(f"{path} belongs to another program: name another file, or move this one away")
    if version > schema.VERSION:
        raise StoreError(
            f"{path} was written by a newer Fiveways (version {version} of the store, this one knows "
            f"{schema.VERSION}): run the newer one, or name another file"
        )
    return int(version)


def _make_tables(connection: sqlite3.Connection, version: int) -> None:
    """Make the tables of an empty file, or of those in a store of an older version what they are now."""
    scripts = [schema.UPGRADES[older] for older in range(version, schema.VERSION)] if version else [schema.TABLES]
    for script in scripts:
        for statement in script.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
    connection.execute(f"PRAGMA user_version = {schema.VERSION}")
