"""Conversion of journal batches into tables of messages, unreadable frames and marks."""

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
"""Type of text columns with few distinct values."""
DICTIONARY_COLUMNS: Final = ("run", "node", "session", "peer", "protocol", "transport", "direction", "channel")
"""Journal columns that are dictionary-encoded."""
MESSAGE_DICTIONARY_COLUMNS: Final = ("kind", "method", "topic", "status", "reason", "code")
"""Message columns that are dictionary-encoded."""
QUARANTINE_PAYLOAD_BYTES: Final = 256
"""Maximum bytes stored of an unreadable frame."""


class DecodedTables(NamedTuple):
    """Tables decoded from a batch of records."""

    messages: pa.Table
    quarantine: pa.Table
    marks: pa.Table


def dictionary_schema(table: pa.Schema) -> pa.Schema:
    """Return a schema with its text columns of few distinct values dictionary-encoded."""
    encoded = {
        *DICTIONARY_COLUMNS,
        *(MESSAGE_DICTIONARY_COLUMNS if table is MESSAGES else ()),
        *(("kind",) if table is MARKS else ()),
    }
    return pa.schema(
        [pa.field(field.name, TEXT_DICTIONARY if field.name in encoded else field.type) for field in table]
    )


MESSAGES_SCHEMA: Final = dictionary_schema(MESSAGES)
QUARANTINE_SCHEMA: Final = dictionary_schema(QUARANTINE)
MARKS_SCHEMA: Final = dictionary_schema(MARKS)


def normalize_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with exactly the journal's columns, repetitive ones dictionary-encoded."""
    arrays = {}
    for field in schema.SCHEMA:
        name = field.name
        index = batch.schema.get_field_index(name)
        array = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, field.type)
        arrays[name] = (
            encode_dictionary(array)
            if name in DICTIONARY_COLUMNS or name == "kind"
            else cast_if_needed(array, field.type)
        )
    return pa.RecordBatch.from_pydict(arrays)


def cast_if_needed(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Cast an array unless it has the type already."""
    return array if array.type == kind else array.cast(kind)


def encode_dictionary(array: pa.Array) -> pa.Array:
    """Dictionary-encode texts unless they are encoded already."""
    if array.type == TEXT_DICTIONARY:
        return array
    if pa.types.is_dictionary(array.type):
        return array.cast(TEXT_DICTIONARY)
    return cast_if_needed(array, pa.string()).dictionary_encode()


def decode_general(batch: pa.RecordBatch) -> DecodedTables:
    """Decode every frame of a batch on the general path."""
    records = normalize_batch(batch)
    kinds = np.asarray(python_values(records["kind"]), dtype=object)
    is_mark = np.isin(kinds, list(schema.MARKER_KINDS))
    result = read_general(records, np.flatnonzero(~is_mark))
    return DecodedTables(
        result.messages_table(records), result.quarantine_table(records), marks_table(records, np.flatnonzero(is_mark))
    )


class GeneralPathResult(NamedTuple):
    """Result of the general path: messages with their record indexes, and unreadable frames with their reasons."""

    record_indexes: list[int]
    parts: list[int]
    ops: list[str | None]
    message_rows: list[MessageRow]
    unreadable_indexes: list[int]
    reasons: list[str]

    @classmethod
    def empty(cls) -> "GeneralPathResult":
        """Return a result without messages."""
        return cls([], [], [], [], [], [])

    def messages_table(self, records: pa.RecordBatch) -> pa.Table:
        """Return the messages as a table."""
        columns = message_columns(self.message_rows)
        columns["op"] = text_array(self.ops)
        columns["part"] = pa.array(self.parts, pa.int32())
        return build_table(records, np.asarray(self.record_indexes, np.int64), columns, MESSAGES_SCHEMA)

    def quarantine_table(self, records: pa.RecordBatch) -> pa.Table:
        """Return the unreadable frames as a table."""
        sources = np.asarray(self.unreadable_indexes, np.int64)
        payloads = records["payload"].take(pa.array(sources)).to_pylist()
        shown = [None if payload is None else payload[:QUARANTINE_PAYLOAD_BYTES].hex() for payload in payloads]
        columns = {"reason": text_array(self.reasons), "payload": pa.array(shown, pa.string())}
        return build_table(records, sources, columns, QUARANTINE_SCHEMA)


def read_general(records: pa.RecordBatch, indexes: np.ndarray) -> GeneralPathResult:
    """Decode the frames at these indexes of a normalized batch on the general path."""
    result = GeneralPathResult.empty()
    rows = records.take(pa.array(indexes)) if len(indexes) < records.num_rows else records
    names = ("protocol", "direction", "kind", "channel", "op", "payload", "size")
    columns = [python_values(rows[name]) for name in names]
    for index, protocol, direction, kind, *rest in zip(indexes.tolist(), *columns, strict=True):
        if kind in schema.FRAME_KINDS:
            frame = general_path.decode_frame(general_path.JournaledFrame(protocol, direction, kind == "text", *rest))
        else:
            frame = general_path.DecodedFrame((), (), f"unknown kind of record {kind[:40]!r}")
        count = len(frame.messages)
        result.record_indexes.extend([index] * count)
        result.parts.extend(range(count))
        result.ops.extend(frame.ops)
        result.message_rows.extend(frame.messages)
        if frame.error is not None:
            result.unreadable_indexes.append(index)
            result.reasons.append(frame.error)
    return result


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as a list; pyarrow is slow at this for dictionary-encoded columns."""
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    distinct = [*column.dictionary.to_pylist(), None]
    return [distinct[code] for code in column.indices.fill_null(len(distinct) - 1).to_numpy().tolist()]


def message_columns(message_rows: Sequence[MessageRow]) -> dict[str, pa.Array]:
    """Return the columns of message rows."""
    values = zip(*message_rows, strict=True) if message_rows else [()] * len(MessageRow._fields)
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
    """Return texts as an array; surrogate halves, which UTF-8 cannot encode, become question marks."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        cleaned = [None if text is None else text.encode(errors="replace").decode() for text in values]
        return pa.array(cleaned, pa.string())


def marks_table(records: pa.RecordBatch, indexes: np.ndarray) -> pa.Table:
    """Return the records that are not frames as a table."""
    return build_table(records, indexes, {}, MARKS_SCHEMA)


def build_table(
    records: pa.RecordBatch, sources: np.ndarray, columns: dict[str, pa.Array], schema: pa.Schema
) -> pa.Table:
    """Build a table from these columns, and from the records at `sources` for the columns that are missing."""
    rows = records
    if len(sources) != records.num_rows or (np.diff(sources) != 1).any():
        names = [name for name in schema.names if name not in columns]
        rows = records.select(names).take(pa.array(sources))
    arrays = []
    for field in schema:
        array = columns.get(field.name)
        if array is None:
            array = rows[field.name]
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def concat_decoded(parts: Sequence[DecodedTables]) -> DecodedTables:
    """Concatenate decoded tables."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return DecodedTables(MESSAGES_SCHEMA.empty_table(), QUARANTINE_SCHEMA.empty_table(), MARKS_SCHEMA.empty_table())
    return DecodedTables(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def as_batches(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Return records as the smallest possible number of batches."""
    if isinstance(records, pa.RecordBatch):
        return [records]
    batches: list[pa.RecordBatch] = records.combine_chunks().to_batches()
    return batches
