"""The journal's batches in, tables of messages, unreadable frames and marks out."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from fiveways.journal import record
from fiveways.pipeline import columns
from fiveways.pipeline.decode import plain
from fiveways.pipeline.decode.rows import Message

MESSAGES: Final = columns.MESSAGES
QUARANTINE: Final = columns.QUARANTINE
MARKS: Final = columns.MARKS
FEW: Final = pa.dictionary(pa.int32(), pa.string())
"""How texts are held of which there are few different ones."""
REPEATED: Final = ("run", "node", "session", "peer", "protocol", "transport", "direction", "channel")
"""Columns of the journal that say the same in many rows."""
TOLD: Final = ("kind", "method", "topic", "status", "reason", "code")
"""Columns of a message that do."""
SHOWN: Final = 256
"""Bytes of an unreadable frame that are kept."""


class Decoded(NamedTuple):
    """What a batch of records became."""

    messages: pa.Table
    quarantine: pa.Table
    marks: pa.Table


def schema_of(table: pa.Schema) -> pa.Schema:
    """Return a table's columns as they are held here: texts that repeat themselves by number."""
    few = {*REPEATED, *(TOLD if table is MESSAGES else ()), *(("kind",) if table is MARKS else ())}
    return pa.schema([pa.field(each.name, FEW if each.name in few else each.type) for each in table])


HELD_MESSAGES: Final = schema_of(MESSAGES)
HELD_QUARANTINE: Final = schema_of(QUARANTINE)
HELD_MARKS: Final = schema_of(MARKS)


def prepared(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with exactly the journal's columns, those that repeat themselves by number."""
    arrays = {}
    for field in record.SCHEMA:
        name = field.name
        index = batch.schema.get_field_index(name)
        array = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, field.type)
        arrays[name] = by_number(array) if name in REPEATED or name == "kind" else _of_type(array, field.type)
    return pa.RecordBatch.from_pydict(arrays)


def _of_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def by_number(array: pa.Array) -> pa.Array:
    """Return texts by number; those that are so already stay as they are."""
    if array.type == FEW:
        return array
    if pa.types.is_dictionary(array.type):
        return array.cast(FEW)
    return _of_type(array, pa.string()).dictionary_encode()


def decode_plainly(batch: pa.RecordBatch) -> Decoded:
    """Read every frame of a batch the plain way."""
    known = prepared(batch)
    kinds = np.asarray(values_of(known["kind"]), dtype=object)
    is_mark = np.isin(kinds, list(record.MARKS))
    found = read_plainly(known, np.flatnonzero(~is_mark))
    return Decoded(found.messages(known), found.quarantine(known), marks(known, np.flatnonzero(is_mark)))


class Found(NamedTuple):
    """What the plain way found: for each message the record it is of, and for each unreadable frame the reason."""

    sources: list[int]
    parts: list[int]
    ops: list[str | None]
    told: list[Message]
    unread: list[int]
    why: list[str]

    def messages(self, known: pa.RecordBatch) -> pa.Table:
        """Return them as a table."""
        columns = columns_of(self.told)
        columns["op"] = texts(self.ops)
        columns["part"] = pa.array(self.parts, pa.int32())
        return laid_out(known, np.asarray(self.sources, np.int64), columns, HELD_MESSAGES)

    def quarantine(self, known: pa.RecordBatch) -> pa.Table:
        """Return the frames that could not be read."""
        sources = np.asarray(self.unread, np.int64)
        payloads = known["payload"].take(pa.array(sources))
        shown = [None if each is None else each[:SHOWN].hex() for each in payloads.to_pylist()]
        columns = {"reason": texts(self.why), "payload": pa.array(shown, pa.string())}
        return laid_out(known, sources, columns, HELD_QUARANTINE)


def read_plainly(known: pa.RecordBatch, places: np.ndarray) -> Found:
    """Read the frames at these places of a prepared batch."""
    found = Found([], [], [], [], [], [])
    rows = known.take(pa.array(places)) if len(places) < known.num_rows else known
    names = ("protocol", "direction", "kind", "channel", "op", "payload", "size")
    columns = [values_of(rows[name]) for name in names]
    for place, protocol, direction, kind, *rest in zip(places.tolist(), *columns, strict=True):
        if kind in record.FRAMES:
            reading = plain.read(plain.Frame(protocol, direction, kind == "text", *rest))
        else:
            reading = plain.Reading((), (), f"no record is called {kind[:40]!r}")
        count = len(reading.messages)
        found.sources.extend([place] * count)
        found.parts.extend(range(count))
        found.ops.extend(reading.ops)
        found.told.extend(reading.messages)
        if reading.fault is not None:
            found.unread.append(place)
            found.why.append(reading.fault)
    return found


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column, which pyarrow is slow to give where they are held by number."""
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    words = [*column.dictionary.to_pylist(), None]
    return [words[number] for number in column.indices.fill_null(len(words) - 1).to_numpy().tolist()]


def columns_of(told: Sequence[Message]) -> dict[str, pa.Array]:
    """Return what messages tell, column by column."""
    values = zip(*told, strict=True) if told else [()] * len(Message._fields)
    columns: dict[str, pa.Array] = {}
    for name, column in zip(Message._fields, values, strict=True):
        if name == "body_size":
            columns[name] = pa.array(column, pa.int32())
        else:
            columns[name] = texts(column).dictionary_encode() if name in TOLD else texts(column)
    return columns


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts as a column; what no UTF-8 can hold of them, halves of surrogate pairs, are question marks."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        cleaned = [None if each is None else each.encode(errors="replace").decode() for each in values]
        return pa.array(cleaned, pa.string())


def marks(known: pa.RecordBatch, places: np.ndarray) -> pa.Table:
    """Return the records that are no frames."""
    return laid_out(known, places, {}, HELD_MARKS)


def laid_out(known: pa.RecordBatch, sources: np.ndarray, columns: dict[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """Return a table of these columns, and where there is none of that name the records' own, row by row."""
    rows = known
    if len(sources) != known.num_rows or (np.diff(sources) != 1).any():
        wanted = [name for name in schema.names if name not in columns]
        rows = known.select(wanted).take(pa.array(sources))
    arrays = []
    for field in schema:
        array = columns.get(field.name)
        if array is None:
            array = rows[field.name]
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def joined(parts: Sequence[Decoded]) -> Decoded:
    """Return several as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Decoded(HELD_MESSAGES.empty_table(), HELD_QUARANTINE.empty_table(), HELD_MARKS.empty_table())
    return Decoded(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def batches_of(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Return records in as few batches as there can be."""
    if isinstance(records, pa.RecordBatch):
        return [records]
    batches: list[pa.RecordBatch] = records.combine_chunks().to_batches()
    return batches
