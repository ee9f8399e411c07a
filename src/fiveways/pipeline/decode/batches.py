"""The journal's batches in, tables of messages, unreadable frames and marks out."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from fiveways.journal import schema
from fiveways.pipeline import arrow_schemas
from fiveways.pipeline.decode import general_path
from fiveways.pipeline.decode.message_row import MessageRow

MESSAGES: Final = arrow_schemas.MESSAGES
QUARANTINE: Final = arrow_schemas.QUARANTINE
MARKS: Final = arrow_schemas.MARKS
TEXT_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
"""How texts are held of which there are few different ones."""
DICTIONARY_COLUMNS: Final = ("run", "node", "session", "peer", "protocol", "transport", "direction", "channel")
"""Columns of the journal that say the same in many rows."""
MESSAGE_DICTIONARY_COLUMNS: Final = ("kind", "method", "topic", "status", "reason", "code")
"""Columns of a message that do."""
QUARANTINE_PAYLOAD_BYTES: Final = 256
"""Bytes of an unreadable frame that are kept."""


class DecodedTables(NamedTuple):
    """What a batch of records became."""

    messages: pa.Table
    quarantine: pa.Table
    marks: pa.Table


def dictionary_schema(table: pa.Schema) -> pa.Schema:
    """Return a table's columns as they are held here: texts that repeat themselves by number."""
    few = {
        *DICTIONARY_COLUMNS,
        *(MESSAGE_DICTIONARY_COLUMNS if table is MESSAGES else ()),
        *(("kind",) if table is MARKS else ()),
    }
    return pa.schema([pa.field(each.name, TEXT_DICTIONARY if each.name in few else each.type) for each in table])


MESSAGES_SCHEMA: Final = dictionary_schema(MESSAGES)
QUARANTINE_SCHEMA: Final = dictionary_schema(QUARANTINE)
MARKS_SCHEMA: Final = dictionary_schema(MARKS)


def normalize_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with exactly the journal's columns, those that repeat themselves by number."""
    arrays = {}
    for field in schema.SCHEMA:
        name = field.name
        index = batch.schema.get_field_index(name)
        array = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, field.type)
        arrays[name] = (
            encode_dictionary(array)
            if name in DICTIONARY_COLUMNS or name == "kind"
            else _cast_if_needed(array, field.type)
        )
    return pa.RecordBatch.from_pydict(arrays)


def _cast_if_needed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def encode_dictionary(array: pa.Array) -> pa.Array:
    """Return texts by number; those that are so already stay as they are."""
    if array.type == TEXT_DICTIONARY:
        return array
    if pa.types.is_dictionary(array.type):
        return array.cast(TEXT_DICTIONARY)
    return _cast_if_needed(array, pa.string()).dictionary_encode()


def decode_general(batch: pa.RecordBatch) -> DecodedTables:
    """Read every frame of a batch the plain way."""
    known = normalize_batch(batch)
    kinds = np.asarray(python_values(known["kind"]), dtype=object)
    is_mark = np.isin(kinds, list(schema.MARKER_KINDS))
    found = read_general(known, np.flatnonzero(~is_mark))
    return DecodedTables(
        found.messages_table(known), found.quarantine_table(known), marks_table(known, np.flatnonzero(is_mark))
    )


class GeneralPathResult(NamedTuple):
    """What the plain way found: for each message the record it is of, and for each unreadable frame the reason."""

    record_indexes: list[int]
    parts: list[int]
    ops: list[str | None]
    message_rows: list[MessageRow]
    unreadable_indexes: list[int]
    reasons: list[str]

    def messages_table(self, known: pa.RecordBatch) -> pa.Table:
        """Return them as a table."""
        columns = message_columns(self.message_rows)
        columns["op"] = text_array(self.ops)
        columns["part"] = pa.array(self.parts, pa.int32())
        return build_table(known, np.asarray(self.record_indexes, np.int64), columns, MESSAGES_SCHEMA)

    def quarantine_table(self, known: pa.RecordBatch) -> pa.Table:
        """Return the frames that could not be read."""
        sources = np.asarray(self.unreadable_indexes, np.int64)
        payloads = known["payload"].take(pa.array(sources))
        shown = [None if each is None else each[:QUARANTINE_PAYLOAD_BYTES].hex() for each in payloads.to_pylist()]
        columns = {"reason": text_array(self.reasons), "payload": pa.array(shown, pa.string())}
        return build_table(known, sources, columns, QUARANTINE_SCHEMA)


def read_general(known: pa.RecordBatch, places: np.ndarray) -> GeneralPathResult:
    """Read the frames at these places of a prepared batch."""
    found = GeneralPathResult([], [], [], [], [], [])
    rows = known.take(pa.array(places)) if len(places) < known.num_rows else known
    names = ("protocol", "direction", "kind", "channel", "op", "payload", "size")
    columns = [python_values(rows[name]) for name in names]
    for place, protocol, direction, kind, *rest in zip(places.tolist(), *columns, strict=True):
        if kind in schema.FRAME_KINDS:
            reading = general_path.decode_frame(general_path.JournaledFrame(protocol, direction, kind == "text", *rest))
        else:
            reading = general_path.DecodedFrame((), (), f"no record is called {kind[:40]!r}")
        count = len(reading.messages)
        found.record_indexes.extend([place] * count)
        found.parts.extend(range(count))
        found.ops.extend(reading.ops)
        found.message_rows.extend(reading.messages)
        if reading.error is not None:
            found.unreadable_indexes.append(place)
            found.reasons.append(reading.error)
    return found


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, which pyarrow is slow to give where they are held by number."""
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    words = [*column.dictionary.to_pylist(), None]
    return [words[number] for number in column.indices.fill_null(len(words) - 1).to_numpy().tolist()]


def message_columns(told: Sequence[MessageRow]) -> dict[str, pa.Array]:
    """Return what messages tell, column by column."""
    values = zip(*told, strict=True) if told else [()] * len(MessageRow._fields)
    columns: dict[str, pa.Array] = {}
    for name, column in zip(MessageRow._fields, values, strict=True):
        if name == "body_size":
            columns[name] = pa.array(column, pa.int32())
        else:
            columns[name] = (
                text_array(column).dictionary_encode() if name in MESSAGE_DICTIONARY_COLUMNS else text_array(column)
            )
    return columns


def text_array(values: Sequence[str | None]) -> pa.Array:
    """Return texts as a column; what no UTF-8 can hold of them, halves of surrogate pairs, are question marks."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        cleaned = [None if each is None else each.encode(errors="replace").decode() for each in values]
        return pa.array(cleaned, pa.string())


def marks_table(known: pa.RecordBatch, places: np.ndarray) -> pa.Table:
    """Return the records that are no frames."""
    return build_table(known, places, {}, MARKS_SCHEMA)


def build_table(
    known: pa.RecordBatch, sources: np.ndarray, columns: dict[str, pa.Array], schema: pa.Schema
) -> pa.Table:
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


def concat_decoded(parts: Sequence[DecodedTables]) -> DecodedTables:
    """Return several as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return DecodedTables(MESSAGES_SCHEMA.empty_table(), QUARANTINE_SCHEMA.empty_table(), MARKS_SCHEMA.empty_table())
    return DecodedTables(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def as_batches(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Return records in as few batches as there can be."""
    if isinstance(records, pa.RecordBatch):
        return [records]
    batches: list[pa.RecordBatch] = records.combine_chunks().to_batches()
    return batches
