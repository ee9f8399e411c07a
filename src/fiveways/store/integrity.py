"""Checks of what a store holds: the structure of its file, and the checksum of each record.

A checksum is a CRC-32 over all fields of a record, encoded as MessagePack, in a column of its row. The number that
SQLite itself gives a row is not part of it.
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
"""Findings of SQLite's own check that are told."""
_MAX_FIELD_LENGTH: Final = 80
"""Characters of a field in the name of a record."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a store that is not as it was written."""

    table: str
    """Empty if it is the structure of the file."""
    record: str
    """Names the record; empty if it is the table as a whole."""
    description: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (", ".join(filter(None, (self.table, self.record))), self.description)))


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How the rows of a table are read and checked."""

    fields: str
    """The columns that the checksum covers, in its order."""
    types: frozenset[tuple[type, ...]]
    record_format: str
    """Names a record, filled with its fields."""
    totals_sql: str = "coalesce(sum(sum), 0)"
    extra_columns: str = ""
    """Columns with a checksum of their own, which comes last."""

    @property
    def width(self) -> int:
        """The number of fields."""
        return self.fields.count(",") + 1

    def is_intact(self, row: Row) -> bool:
        """Return whether a row is as it was written."""
        fields, more = row[: self.width], row[self.width + 1 :]
        if tuple(map(type, fields)) not in self.types or checksum_of(fields) != row[self.width]:
            return False
        if not more or more == _NOT_DEAD:
            return True
        return tuple(map(type, more[:-1])) == _DEAD_TYPES and checksum_of((*fields[:2], *more[:-1])) == more[-1]


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
    """Return the checksum of fields as they are stored; None of a text that is not valid UTF-8."""
    try:
        return crc32(encode(fields))
    except (UnicodeEncodeError, OverflowError):
        return None


def read_totals(connection: sqlite3.Connection) -> dict[str, str]:
    """Return for each table how many records it has, and the sum of their checksums."""
    return {
        name: "{} {}".format(*connection.execute(f"SELECT count(*), {table.totals_sql} FROM {name}").fetchone())  # noqa: S608
        for name, table in TABLES.items()
    }


def find_damage(connection: sqlite3.Connection, expected: Mapping[str, str] | None = None) -> Iterator[Damage]:
    """Yield what is wrong in a store; `expected` are the totals of a store that was closed in good order."""
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
            # Without columns of their own checksum, both are the same column.
            total += sum(row[each] for each in {table.width, len(row) - 1} if isinstance(row[each], int))
    except sqlite3.Error as exc:
        yield Damage(f"table {name}", "", f"it cannot be read behind record {count}: {exc}")
        return
    if expected is not None and expected != f"{count} {total}":
        was = expected.partition(" ")[0]
        yield Damage(f"table {name}", "", f"it has {count} records, and had {was} others when the hub stopped")


def read_rows(connection: sqlite3.Connection, name: str, order: str = "") -> Iterator[Row]:
    """Yield the rows of a table: the fields, their checksum, and the columns with a checksum of their own."""
    table = TABLES[name]
    columns = ", ".join(filter(None, (table.fields, "sum", table.extra_columns)))
    yield from connection.execute(f"SELECT {columns} FROM {name} {order}")  # noqa: S608


def describe_row(table: TableFormat, row: Row) -> str:
    """Return the name of a record, for people."""
    shown = (str(each)[:_MAX_FIELD_LENGTH].encode(errors="backslashreplace").decode() for each in row)
    return table.record_format.format(*shown)


@contextmanager
def tolerate_bad_utf8(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are not valid UTF-8 as well."""
    before = connection.text_factory
    connection.text_factory = _decode_text
    try:
        yield
    finally:
        connection.text_factory = before


def _decode_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
