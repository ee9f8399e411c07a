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
_TABLES: Final = """
CREATE TABLE request (
    id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT NOT NULL,
    word BLOB NOT NULL, expires_at REAL NOT NULL, state INTEGER NOT NULL,
    UNIQUE (peer, key)
);
CREATE TABLE tomb (id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT, until REAL NOT NULL);
"""
_PUT: Final = (
    "INSERT INTO request (peer, key, word, expires_at, state) VALUES (?,?,?,?,{}) ON CONFLICT (peer, key) DO UPDATE"
    " SET word = excluded.word, expires_at = excluded.expires_at, state = excluded.state"
)
_REQUEST: Final = _PUT.format(0)
_ANSWER: Final = _PUT.format(1)
_DROP: Final = "DELETE FROM request WHERE peer = ? AND key = ?"
_TOMB: Final = "INSERT INTO tomb (peer, key, until) VALUES (?,?,?)"
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
        connection.executescript(_TABLES)
        source, finished, start = names(), 0, perf_counter()
        while (passed := perf_counter() - start) < seconds:
            _round(connection, [next(source) for _ in range(in_flight)])
            finished += in_flight
        return finished / passed
    finally:
        connection.close()


def _round(connection: sqlite3.Connection, names: Names) -> None:
    words = [(peer, key, WORD, FAR) for peer, key in names]
    for sql in (_REQUEST, _ANSWER):
        connection.execute("BEGIN")
        connection.executemany(sql, words)
        connection.execute("COMMIT")
    connection.execute("BEGIN")
    connection.executemany(_DROP, names)
    connection.executemany(_TOMB, [(peer, key, FAR) for peer, key in names])
    connection.execute("COMMIT")
