"""The least that could keep requests: one thread, one connection, one commit for all that are in flight."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final

WORD: Final = b"x" * 100
FAR: Final = 1e11
"""A time that does not come while this runs."""
PEERS: Final = 8
_TABLE: Final = (
    "CREATE TABLE log (line INTEGER PRIMARY KEY, state INTEGER NOT NULL, peer TEXT NOT NULL, key TEXT,"
    " until REAL NOT NULL, word BLOB)"
)
_LINE: Final = "INSERT INTO log (line, state, peer, key, until, word) VALUES (?,?,?,?,?,?)"
_USELESS: Final = "DELETE FROM log WHERE line = ?"
Names = list[tuple[str, str]]


def names() -> Iterator[tuple[str, str]]:
    """Return peers and keys that were never used, in no order that a table could profit from."""
    number = 0
    while True:
        number += 1
        yield f"peer-{number % PEERS}", f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def measure(path: Path, in_flight: int, seconds: float) -> float:
    """Return how many requests in a second are put down, answered and forgotten, with a commit for each step."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(_TABLE)
        source, finished, start = names(), 0, perf_counter()
        while (passed := perf_counter() - start) < seconds:
            _round(connection, [next(source) for _ in range(in_flight)], 3 * finished)
            finished += in_flight
        return finished / passed
    finally:
        connection.close()


def _round(connection: sqlite3.Connection, names: Names, line: int) -> None:
    """Put requests down, then their answers, then that they are over; what is no use any more goes with that."""
    size = len(names)
    for state, word in enumerate((WORD, WORD, None)):
        first = line + 1 + state * size
        connection.execute("BEGIN")
        connection.executemany(
            _LINE, [(number, state, peer, key, FAR, word) for number, (peer, key) in enumerate(names, first)]
        )
        if word is None:
            connection.executemany(_USELESS, [(number,) for number in range(line + 1, first)])
        connection.execute("COMMIT")
