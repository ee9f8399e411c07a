"""Tables of a store, and the statements for each change."""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from zlib import crc32

from msgspec.structs import astuple

from fiveways.model.store_changes import (
    DropJob,
    DropPeer,
    DropRetained,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRetained,
    StoreChange,
)
from fiveways.store import request_log
from fiveways.store.batch_statement import BatchStatement, Step
from fiveways.store.integrity import encode

APPLICATION_ID: Final = 0x35776179
"""Identifies a store among SQLite files: "5way"."""
VERSION: Final = 4
CREATE_MARK: Final = "CREATE TABLE mark (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID"
"""Metadata of the store, by name."""
LAST_RECORD_MARK: Final = "last"
"""Name of the mark with the time of the last record."""
_CREATE_PEER: Final = """CREATE TABLE peer (
    peer TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL, seen_at REAL NOT NULL, remote TEXT NOT NULL, sum INTEGER
) WITHOUT ROWID"""
_CREATE_ITEM: Final = """CREATE TABLE item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL, tries INTEGER NOT NULL, owner TEXT NOT NULL,
    sum INTEGER, why TEXT, at REAL, why_sum INTEGER, word BLOB NOT NULL,
    UNIQUE (queue, number)
)"""
_CREATE_RETAINED: Final = """CREATE TABLE retained (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, publication INTEGER NOT NULL, owner TEXT NOT NULL,
    sum INTEGER, word BLOB NOT NULL
)"""
CREATE_TABLES: Final = f"{CREATE_MARK};{_CREATE_PEER};{request_log.CREATE_TABLE};{_CREATE_ITEM};{_CREATE_RETAINED}"
_OLD_LOG: Final = (
    "CREATE TABLE log (line INTEGER PRIMARY KEY, state INTEGER NOT NULL, peer TEXT NOT NULL, key TEXT,"
    " until REAL NOT NULL, word BLOB)"
)
UPGRADES: Final = {
    1: f"""
{_OLD_LOG};
INSERT INTO log (state, peer, key, until) SELECT {request_log.FINISHED}, peer, key, until FROM tomb ORDER BY id;
INSERT INTO log (state, peer, key, until, word) SELECT state, peer, key, expires_at, word FROM request ORDER BY id;
DROP TABLE tomb;
DROP TABLE request
""",  # noqa: S608
    2: """
ALTER TABLE peer ADD COLUMN remote TEXT NOT NULL DEFAULT '';
ALTER TABLE item ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE retained ADD COLUMN owner TEXT NOT NULL DEFAULT ''
""",
    # The checksum precedes the word, so that the sum of all checksums is computed without reading words.
    3: f"""
{CREATE_MARK};
ALTER TABLE peer RENAME TO old;
{_CREATE_PEER};
INSERT INTO peer (peer, identity, seen_at, remote, sum)
    SELECT peer, identity, seen_at, remote, sum_of(peer, identity, seen_at, remote) FROM old;
DROP TABLE old;
ALTER TABLE log RENAME TO old;
{request_log.CREATE_TABLE};
INSERT INTO log (line, state, peer, key, until, sum, word)
    SELECT line, state, peer, key, until, sum_of(line, state, peer, key, until, word), word FROM old;
DROP TABLE old;
ALTER TABLE item RENAME TO old;
{_CREATE_ITEM};
INSERT INTO item (id, queue, number, tries, owner, sum, why, at, why_sum, word)
    SELECT id, queue, number, tries, owner, sum_of(queue, number, word, tries, owner),
        why, at, CASE WHEN why IS NULL THEN NULL ELSE sum_of(queue, number, why, at) END, word FROM old;
DROP TABLE old;
ALTER TABLE retained RENAME TO old;
{_CREATE_RETAINED};
INSERT INTO retained (id, topic, publication, owner, sum, word)
    SELECT id, topic, publication, owner, sum_of(topic, word, publication, owner), word FROM old;
DROP TABLE old
""",  # noqa: S608
}
"""Scripts that upgrade a store of this version to the next one."""
STATEMENTS: Final[dict[type[StoreChange], BatchStatement]] = {
    PutPeer: BatchStatement("REPLACE INTO peer (peer, identity, seen_at, remote, sum) VALUES ", "(?,?,?,?,?)"),
    DropPeer: BatchStatement("DELETE FROM peer WHERE peer IN (", "?", ")"),
    PutJob: BatchStatement(
        "INSERT INTO item (queue, number, word, tries, owner, sum) VALUES ",
        "(?,?,?,?,?,?)",
        " ON CONFLICT (queue, number) DO UPDATE SET"
        " word = excluded.word, tries = excluded.tries, owner = excluded.owner, sum = excluded.sum,"
        " why = NULL, at = NULL, why_sum = NULL",
    ),
    PutDeadLetter: BatchStatement(
        "", "UPDATE item SET why = ?3, at = ?4, why_sum = ?5 WHERE queue = ?1 AND number = ?2", max_rows=1
    ),
    DropJob: BatchStatement(
        "DELETE FROM item WHERE id IN (SELECT id FROM (SELECT column1 AS one, column2 AS other FROM (VALUES ",
        "(?,?)",
        # CROSS JOIN enforces the index, which row values in IN do not always use.
        ")) AS gone CROSS JOIN item ON queue = gone.one AND number = gone.other)",
    ),
    PutRetained: BatchStatement(
        "INSERT INTO retained (topic, word, publication, owner, sum) VALUES ",
        "(?,?,?,?,?)",
        " ON CONFLICT (topic) DO UPDATE SET"
        " word = excluded.word, publication = excluded.publication, owner = excluded.owner,"
        " sum = excluded.sum",
    ),
    DropRetained: BatchStatement("DELETE FROM retained WHERE topic IN (", "?", ")"),
}


_ORDER_AND_KEY_WIDTH: Final[dict[type[StoreChange], tuple[int, int]]] = {
    PutPeer: (0, 1),
    DropPeer: (1, 1),
    PutJob: (2, 2),
    PutDeadLetter: (3, 2),
    DropJob: (4, 2),
    PutRetained: (5, 1),
    DropRetained: (6, 1),
}
"""Usual order of changes with the same key, and the number of fields of that key."""
_WITH_CHECKSUM: Final[frozenset[type[StoreChange]]] = frozenset({PutPeer, PutJob, PutDeadLetter, PutRetained})


def steps(records: Iterable[StoreChange]) -> Iterator[Step]:
    """Yield the executions for all records except those of the log, in their order where that matters.

    Records arrive mixed, and one execution for all of a type is the fastest.
    """
    for group in _group_by_type(record for record in records if type(record) not in request_log.LOG_ONLY_RECORDS):
        for kind in sorted(group, key=_ORDER_AND_KEY_WIDTH.__getitem__):
            yield from STATEMENTS[kind].steps(group[kind])


def _group_by_type(records: Iterable[StoreChange]) -> Iterator[dict[type[StoreChange], list[Any]]]:
    """Yield the values of records by type. Records that must follow others are in a later group."""
    group: dict[type[StoreChange], list[Any]] = {}
    last_order: dict[tuple[Any, ...], int] = {}
    for record in records:
        kind, values = type(record), _values(record)
        order, width = _ORDER_AND_KEY_WIDTH[kind]
        key = values[:width]
        if last_order.get(key, 0) > order:
            yield group
            group, last_order = {}, {}
        last_order[key] = order
        if kind in group:
            group[kind] += values
        else:
            group[kind] = list(values)
    yield group


def _values(record: StoreChange) -> tuple[Any, ...]:
    """Return the stored fields of a record, with its checksum if the table has one."""
    if type(record) not in _WITH_CHECKSUM:
        return astuple(record)
    if isinstance(record, PutPeer):
        fields: tuple[Any, ...] = record.peer, record.identity, float(record.seen_at), record.remote
    elif isinstance(record, PutDeadLetter):
        fields = record.queue, record.number, record.why, float(record.at)
    else:
        fields = astuple(record)
    return *fields, crc32(encode(fields))
