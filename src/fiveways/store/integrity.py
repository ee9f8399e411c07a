"""Integrity checks of a store: the structure of its file, and the checksum of each record.

The checksum is a CRC-32 of all fields of a record, encoded as MessagePack, in a column of its row. The row number of
SQLite is not part of it.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from msgspec.msgpack import Encoder

Row = tuple[Any, ...]

encode: Final = Encoder().encode
_MAX_FINDINGS: Final = 100
"""Maximum number of findings of SQLite's own check that are reported."""
_MAX_FIELD_LENGTH: Final = 80
"""Maximum characters of a field in the description of a record."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage found in a store."""

    table: str
    """Empty for the structure of the file."""
    record: str
    """Description of the record; empty for the table as a whole."""
    description: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (", ".join(filter(None, (self.table, self.record))), self.description)))


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Columns and checks of one table."""

    fields: str
    """Columns of the checksum, in its order."""
    types: frozenset[tuple[type, ...]]
    record_format: str
    """Format string for the description of a record."""
    totals_sql: str = "coalesce(sum(sum), 0)"
    extra_columns: str = ""
    """Columns with a separate checksum, which is the last of them."""

    @property
    def width(self) -> int:
        """Number of fields."""
        return self.fields.count(",") + 1

    def is_intact(self, row: Row) -> bool:
        """Return whether a row matches its checksums."""
        fields, extra = row[: self.width], row[self.width + 1 :]
        if tuple(map(type, fields)) not in self.types or checksum_of(fields) != row[self.width]:
            return False
        if not extra or extra == _NOT_DEAD:
            return True
        return tuple(map(type, extra[:-1])) == _DEAD_TYPES and checksum_of((*fields[:2], *extra[:-1])) == extra[-1]


_NOT_DEAD: Final = (None, None, None)
_DEAD_TYPES: Final = (str, float)
_NONE: Final = type(None)
TABLES: Final[Mapping[str, TableFormat]] = {
    "peer": TableFormat("peer, identity, seen_at, remote", frozenset({(str, str, float, str)}), "peer {0}"),
    "log": TableFormat(
        "line, state, peer, key, until, word",
        frozenset({(int, int, str, str, float, bytes), *((int, int, str, key, float, _NONE) for key in (str, _NONE))}),
        "line {0} (peer {2}, key {3})",
    ),
    "item": TableFormat(
        "queue, number, word, tries, owner",
        frozenset({(str, int, bytes, int, str)}),
        "number {1} of queue {0}",
        "coalesce(sum(sum), 0) + coalesce(sum(why_sum), 0)",
        "why, at, why_sum",
    ),
    "retained": TableFormat("topic, word, publication, owner", frozenset({(str, bytes, int, str)}), "topic {0}"),
}


def checksum_of(fields: Row) -> int | None:
    """Return the checksum of stored fields; None if a text is not valid UTF-8."""
    try:
        return crc32(encode(fields))
    except (UnicodeEncodeError, OverflowError):
        return None


def read_totals(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the number of records and the sum of their checksums for each table."""
    return {
        name: "{} {}".format(*connection.execute(f"SELECT count(*), {table.totals_sql} FROM {name}").fetchone())  # noqa: S608
        for name, table in TABLES.items()
    }


def find_damage(connection: sqlite3.Connection, expected: Mapping[str, str] | None = None) -> Iterator[Damage]:
    """Yield all damage of a store; `expected` are the totals of a store that was closed cleanly."""
    with tolerate_bad_utf8(connection):
        try:
            for (text,) in connection.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})"):
                if text != "ok":
                    yield Damage("", "", text)
        except sqlite3.Error as exc:
            yield Damage("", "", str(exc))
        for name, table in TABLES.items():
            yield from _find_in_table(connection, name, table, (expected or {}).get(name))


def _find_in_table(
    connection: sqlite3.Connection, name: str, table: TableFormat, expected: str | None
) -> Iterator[Damage]:
    count, total = 0, 0
    try:
        for row in read_rows(connection, name):
            if not table.is_intact(row):
                yield Damage(f"table {name}", describe_row(table, row), "the record does not match its checksum")
            count += 1
            # In a table without extra columns, both are the same column.
            total += sum(row[column] for column in {table.width, len(row) - 1} if isinstance(row[column], int))
    except sqlite3.Error as exc:
        yield Damage(f"table {name}", "", f"it cannot be read after record {count}: {exc}")
        return
    if expected is not None and expected != f"{count} {total}":
        expected_count = expected.partition(" ")[0]
        yield Damage(
            f"table {name}", "", f"it has {count} records, but had {expected_count} others when the hub stopped"
        )


def read_rows(connection: sqlite3.Connection, name: str, order: str = "") -> Iterator[Row]:
    """Yield the rows of a table: fields, checksum, and columns with a separate checksum."""
    table = TABLES[name]
    columns = ", ".join(filter(None, (table.fields, "sum", table.extra_columns)))
    yield from connection.execute(f"SELECT {columns} FROM {name} {order}")  # noqa: S608


def describe_row(table: TableFormat, row: Row) -> str:
    """Return the description of a record."""
    shown = (str(field)[:_MAX_FIELD_LENGTH].encode(errors="backslashreplace").decode() for field in row)
    return table.record_format.format(*shown)


@contextmanager
def tolerate_bad_utf8(connection: sqlite3.Connection) -> Iterator[None]:
    """Also read texts that are not valid UTF-8."""
    before = connection.text_factory
    connection.text_factory = _decode_text
    try:
        yield
    finally:
        connection.text_factory = before


def _decode_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
