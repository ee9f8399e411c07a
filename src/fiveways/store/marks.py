"""Table `mark` of a store: its id, its runs, and the totals of its tables at the end of a run."""

import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fiveways.store import integrity

_SET_MARK: Final = "REPLACE INTO mark (name, value) VALUES (?, ?)"
_TOTALS_PREFIX: Final = "records in "


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of a store."""

    store_id: bytes
    """Random id."""
    run: int
    """Last run that opened the store."""
    closed_run: int
    """Last run that closed the store cleanly: the database has all records of that run."""
    totals: Mapping[str, str]
    """Number of records and sum of their checksums for each table, at the last close."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed cleanly and not opened since."""
        return self.run == self.closed_run


def read_marks(connection: sqlite3.Connection) -> Marks | None:
    """Return the marks; None if no hub of this version has opened the store. sqlite3.Error if they are damaged."""
    values: dict[str, Any] = dict(connection.execute("SELECT name, value FROM mark"))
    store, run, closed = values.get("store"), values.get("run"), values.get("closed", 0)
    if store is None and run is None:
        return None
    if not (isinstance(store, bytes) and isinstance(run, int) and isinstance(closed, int)):
        raise sqlite3.DatabaseError("the marks of the store are damaged")
    totals = {
        name.removeprefix(_TOTALS_PREFIX): str(value)
        for name, value in values.items()
        if name.startswith(_TOTALS_PREFIX)
    }
    return Marks(store, run, closed, totals)


def read_marks_without_wal(path: Path) -> tuple[bool, Marks | None]:
    """Return whether a database is readable without its WAL and without a lock, and its marks."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'mark'").fetchone() == (0,):
                return True, None
            return True, read_marks(connection)
        finally:
            connection.close()
    except sqlite3.Error:
        return False, None


def begin_run(connection: sqlite3.Connection) -> Marks:
    """Write the start of a run, within the caller's transaction."""
    before = read_marks(connection) or Marks(secrets.token_bytes(16), 0, 0, {})
    connection.executemany(_SET_MARK, [("store", before.store_id), ("run", before.run + 1)])
    return Marks(before.store_id, before.run + 1, before.closed_run, before.totals)


def end_run(connection: sqlite3.Connection) -> None:
    """Write the clean end of a run, with the totals of all tables."""
    connection.execute("BEGIN")
    totals = [(f"{_TOTALS_PREFIX}{name}", text) for name, text in integrity.read_totals(connection).items()]
    connection.executemany(_SET_MARK, totals)
    connection.execute("REPLACE INTO mark (name, value) SELECT 'closed', value FROM mark WHERE name = 'run'")
    connection.execute("COMMIT")
