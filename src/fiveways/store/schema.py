"""The tables of a store, and what each record does to them.

A request and its answer share a row, so that the answer takes the request's place. Keys that are over are a log: they
are appended, so that any number of them costs one page, and they go from the front when their time is over. In it the
last line for a key holds; until 0 takes back what was said of the key, and no key at all what was said of the peer. A
key that has a row among the requests is not over, whatever the log says of it.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import astuple

from fiveways.model.records import (
    BuryItem,
    DropItem,
    DropPeer,
    DropRetained,
    Forget,
    PutAnswer,
    PutItem,
    PutPeer,
    PutRequest,
    PutRetained,
    Record,
)

APPLICATION: Final = 0x35776179
"""Tells a store from other SQLite files: "5way"."""
VERSION: Final = 1
REQUEST: Final = 0
ANSWER: Final = 1
TABLES: Final = """
CREATE TABLE peer (peer TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL, seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE request (
    id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT NOT NULL,
    word BLOB NOT NULL, expires_at REAL NOT NULL, state INTEGER NOT NULL,
    UNIQUE (peer, key)
);
CREATE TABLE tomb (id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT, until REAL NOT NULL);
CREATE TABLE item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL,
    word BLOB NOT NULL, tries INTEGER NOT NULL, why TEXT, at REAL,
    UNIQUE (queue, number)
);
CREATE TABLE retained (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, word BLOB NOT NULL, publication INTEGER NOT NULL
);
"""

TRIGGER: Final = """
CREATE TEMP TRIGGER over AFTER INSERT ON main.tomb WHEN NEW.key IS NOT NULL BEGIN
    DELETE FROM request WHERE peer = NEW.peer AND key = NEW.key;
END
"""
"""Made anew for each connection: a key that is over has no row among the requests."""
MOST_ROWS: Final = 64
"""Rows that one execution takes at most.

Python's lock is given away with each, and a busy loop is slow to give it back; so there is a text for each number.
"""


class Statement:
    """SQL with a list of rows in it, each as wide as the record."""

    __slots__ = ("_texts", "_width")

    def __init__(self, head: str, row: str, tail: str = "", most: int = MOST_ROWS) -> None:
        self._texts = [head + ",".join([row] * size) + tail for size in range(1, most + 1)]
        self._width = row.count("?")

    def run(self, connection: sqlite3.Connection, values: list[Any]) -> None:
        """Have it done for all rows, whose values stand one behind the other."""
        width, texts = self._width, self._texts
        step = width * len(texts)
        for start in range(0, len(values), step):
            some = values[start : start + step]
            connection.execute(texts[len(some) // width - 1], some)


def _drop_pair(table: str, one: str, other: str, row: str) -> Statement:
    """Delete by a key of two columns. The join says how: by the index, which row values in IN do not always use."""
    return Statement(
        f"DELETE FROM {table} WHERE id IN (SELECT id FROM (SELECT column1 AS one, column2 AS other FROM (VALUES ",  # noqa: S608
        row,
        f")) AS gone CROSS JOIN {table} ON {one} = gone.one AND {other} = gone.other)",
    )


_STATEMENTS: Final[dict[type[Record], tuple[Statement, ...]]] = {
    PutPeer: (Statement("REPLACE INTO peer (peer, identity, seen_at) VALUES ", "(?,?,?)"),),
    DropPeer: (
        Statement("DELETE FROM peer WHERE peer IN (", "?", ")"),
        Statement("DELETE FROM request WHERE peer IN (", "?", ")"),
        Statement("INSERT INTO tomb (peer, key, until) VALUES ", "(?, NULL, 0)"),
    ),
    PutRequest: (
        Statement(
            "INSERT INTO request (peer, key, word, expires_at, state) VALUES ",
            "(?,?,?,?,?)",
            " ON CONFLICT (peer, key) DO UPDATE SET"
            " word = excluded.word, expires_at = excluded.expires_at, state = excluded.state",
        ),
    ),
    Forget: (Statement("INSERT INTO tomb (peer, key, until) VALUES ", "(?,?,?)"),),
    PutItem: (
        Statement(
            "INSERT INTO item (queue, number, word, tries) VALUES ",
            "(?,?,?,?)",
            " ON CONFLICT (queue, number) DO UPDATE SET"
            " word = excluded.word, tries = excluded.tries, why = NULL, at = NULL",
        ),
    ),
    BuryItem: (Statement("", "UPDATE item SET why = ?3, at = ?4 WHERE queue = ?1 AND number = ?2", most=1),),
    DropItem: (_drop_pair("item", "queue", "number", "(?,?)"),),
    PutRetained: (
        Statement(
            "INSERT INTO retained (topic, word, publication) VALUES ",
            "(?,?,?)",
            " ON CONFLICT (topic) DO UPDATE SET word = excluded.word, publication = excluded.publication",
        ),
    ),
    DropRetained: (Statement("DELETE FROM retained WHERE topic IN (", "?", ")"),),
}


_PLACES: Final[dict[type[Record], tuple[int, int]]] = {
    PutRequest: (0, 2),
    Forget: (1, 2),
    PutItem: (2, 2),
    BuryItem: (3, 2),
    DropItem: (4, 2),
    PutRetained: (5, 1),
    DropRetained: (6, 1),
}
"""Where a record usually stands among those of the same key, and how many of its fields are that key."""
_STATES: Final[dict[type[Record], int]] = {PutRequest: REQUEST, PutAnswer: ANSWER}
"""What share a row, and what tells them apart in it."""


def apply(connection: sqlite3.Connection, records: Iterable[Record]) -> None:
    """Do what the records say, within the transaction that is open: in their order, as far as that makes a difference.

    The records of many requests come mixed, and each kind is fastest in one go.
    """
    for bundle in _bundles(records):
        for kind in sorted(bundle, key=_place):
            for statement in _STATEMENTS[kind]:
                statement.run(connection, bundle[kind])


def _bundles(records: Iterable[Record]) -> Iterator[dict[type[Record], list[Any]]]:
    """Give the values of records by their kinds; what must not be done before something else is in a later bundle."""
    bundle: dict[type[Record], list[Any]] = {}
    reached: dict[tuple[Any, ...], int] = {}
    for record in records:
        kind, values = type(record), astuple(record)
        if kind in _STATES:
            kind, values = PutRequest, (*values, _STATES[kind])
        if kind not in _PLACES:  # it is about all that belongs to a peer
            yield bundle
            yield {kind: list(values)}
            bundle, reached = {}, {}
            continue
        place, width = _PLACES[kind]
        key = values[:width]
        if reached.get(key, 0) > place:
            yield bundle
            bundle, reached = {}, {}
        reached[key] = place
        if kind in bundle:
            bundle[kind] += values
        else:
            bundle[kind] = list(values)
    yield bundle


def _place(kind: type[Record]) -> tuple[int, int]:
    return _PLACES.get(kind, (0, 0))


def purge(connection: sqlite3.Connection, now: float, most: int) -> None:
    """Take the front of the log of keys that are over away, as far as its time is over."""
    (first,) = connection.execute("SELECT min(id) FROM tomb").fetchone()
    if first is None:
        return
    query = "SELECT id FROM tomb WHERE id < ? AND until > ? ORDER BY id LIMIT 1"
    alive = connection.execute(query, (first + most, now)).fetchone()
    connection.execute("DELETE FROM tomb WHERE id < ?", (alive[0] if alive else first + most,))
