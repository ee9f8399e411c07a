"""A minimal store: one thread, one connection, one commit for all requests in flight."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final

MESSAGE: Final = b"x" * 100
FAR: Final = 1e11
"""An expiry time that is not reached."""
PEERS: Final = 8
_TABLE: Final = (
    "CREATE TABLE log (line INTEGER PRIMARY KEY, state INTEGER NOT NULL, peer TEXT NOT NULL, key TEXT,"
    " until REAL NOT NULL, word BLOB)"
)
_INSERT: Final = "INSERT INTO log (line, state, peer, key, until, word) VALUES (?,?,?,?,?,?)"
_DELETE: Final = "DELETE FROM log WHERE line = ?"
Names = list[tuple[str, str]]


def names() -> Iterator[tuple[str, str]]:
    """Yield unused peers and keys, in an order from which no index profits."""
    number = 0
    while True:
        number += 1
        yield f"peer-{number % PEERS}", f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def measure(path: Path, in_flight: int, seconds: float) -> float:
    """Return the requests per second that are written, answered and forgotten, with a commit per step."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(_TABLE)
        source, finished, start = names(), 0, perf_counter()
        while (elapsed := perf_counter() - start) < seconds:
            _round(connection, [next(source) for _ in range(in_flight)], 3 * finished)
            finished += in_flight
        return finished / elapsed
    finally:
        connection.close()


def _round(connection: sqlite3.Connection, names: Names, line: int) -> None:
    """Write requests, then answers, then tombstones; the last step also deletes the obsolete rows."""
    size = len(names)
    for state, message in enumerate((MESSAGE, MESSAGE, None)):
        first = line + 1 + state * size
        connection.execute("BEGIN")
        connection.executemany(
            _INSERT, [(number, state, peer, key, FAR, message) for number, (peer, key) in enumerate(names, first)]
        )
        if message is None:
            connection.executemany(_DELETE, [(number,) for number in range(line + 1, first)])
        connection.execute("COMMIT")
