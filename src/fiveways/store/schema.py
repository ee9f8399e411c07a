"""The tables of a store, and what each record does to them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import astuple

from fiveways.model.records import (
    BuryItem,
    DropItem,
    DropPeer,
    DropRetained,
    PutItem,
    PutPeer,
    PutRetained,
    Record,
)
from fiveways.store import log
from fiveways.store.statement import Statement, Step

APPLICATION: Final = 0x35776179
"""Tells a store from other SQLite files: "5way"."""
VERSION: Final = 3
TABLES: Final = f"""
CREATE TABLE peer (
    peer TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL, seen_at REAL NOT NULL, remote TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
{log.TABLE};
CREATE TABLE item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL,
    word BLOB NOT NULL, tries INTEGER NOT NULL, why TEXT, at REAL, owner TEXT NOT NULL DEFAULT '',
    UNIQUE (queue, number)
);
CREATE TABLE retained (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, word BLOB NOT NULL, publication INTEGER NOT NULL,
    owner TEXT NOT NULL DEFAULT ''
);
"""
UPGRADES: Final = {
    1: f"""
{log.TABLE};
INSERT INTO log (state, peer, key, until) SELECT {log.OVER}, peer, key, until FROM tomb ORDER BY id;
INSERT INTO log (state, peer, key, until, word) SELECT state, peer, key, expires_at, word FROM request ORDER BY id;
DROP TABLE tomb;
DROP TABLE request
""",  # noqa: S608
    2: """
ALTER TABLE peer ADD COLUMN remote TEXT NOT NULL DEFAULT '';
ALTER TABLE item ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE retained ADD COLUMN owner TEXT NOT NULL DEFAULT ''
""",
}
"""What makes a store of an older version one of the next."""
STATEMENTS: Final[dict[type[Record], Statement]] = {
    PutPeer: Statement("REPLACE INTO peer (peer, identity, seen_at, remote) VALUES ", "(?,?,?,?)"),
    DropPeer: Statement("DELETE FROM peer WHERE peer IN (", "?", ")"),
    PutItem: Statement(
        "INSERT INTO item (queue, number, word, tries, owner) VALUES ",
        "(?,?,?,?,?)",
        " ON CONFLICT (queue, number) DO UPDATE SET"
        " word = excluded.word, tries = excluded.tries, why = NULL, at = NULL",
    ),
    BuryItem: Statement("", "UPDATE item SET why = ?3, at = ?4 WHERE queue = ?1 AND number = ?2", most=1),
    DropItem: Statement(
        "DELETE FROM item WHERE id IN (SELECT id FROM (SELECT column1 AS one, column2 AS other FROM (VALUES ",
        "(?,?)",
        # The join says how: by the index, which row values in IN do not always use.
        ")) AS gone CROSS JOIN item ON queue = gone.one AND number = gone.other)",
    ),
    PutRetained: Statement(
        "INSERT INTO retained (topic, word, publication, owner) VALUES ",
        "(?,?,?,?)",
        " ON CONFLICT (topic) DO UPDATE SET"
        " word = excluded.word, publication = excluded.publication, owner = excluded.owner",
    ),
    DropRetained: Statement("DELETE FROM retained WHERE topic IN (", "?", ")"),
}


_PLACES: Final[dict[type[Record], tuple[int, int]]] = {
    PutPeer: (0, 1),
    DropPeer: (1, 1),
    PutItem: (2, 2),
    BuryItem: (3, 2),
    DropItem: (4, 2),
    PutRetained: (5, 1),
    DropRetained: (6, 1),
}
"""Where a record usually stands among those of the same key, and how many of its fields are that key."""


def steps(records: Iterable[Record]) -> Iterator[Step]:
    """Return what is to be executed for records besides the log: in their order, as far as that makes a difference.

    They come mixed, and each kind is fastest in one go.
    """
    for bundle in _bundles(record for record in records if type(record) not in log.ALONE):
        for kind in sorted(bundle, key=_PLACES.__getitem__):
            yield from STATEMENTS[kind].steps(bundle[kind])


def _bundles(records: Iterable[Record]) -> Iterator[dict[type[Record], list[Any]]]:
    """Give the values of records by their kinds; what must not be done before something else is in a later bundle."""
    bundle: dict[type[Record], list[Any]] = {}
    reached: dict[tuple[Any, ...], int] = {}
    for record in records:
        kind, values = type(record), astuple(record)
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
