"""Reader of segments: closed segments as Parquet, open segments up to the last complete batch."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import ArrowException, ArrowInvalid, compute, ipc, parquet

from fiveways.journal.errors import BadSegment
from fiveways.journal.schema import OPTIONAL_COLUMNS, SCHEMA
from fiveways.journal.segments import Segment, list_segments, resolve_filesystem
from fiveways.journal.suffixes import CLOSED_SUFFIX, OPEN_SUFFIX

__all__ = ["DICTIONARY_COLUMNS", "Segment", "check_segment", "list_segments", "read_batches"]

BATCH_RECORDS: Final = 65_536
"""Records per batch from a closed segment; large enough for column-oriented work."""
_COMPATIBLE_TYPES: Final = {
    pa.string(): (pa.string(), pa.large_string(), pa.string_view()),
    pa.binary(): (pa.binary(), pa.large_binary(), pa.binary_view()),
}
"""Types with the same meaning, by type of a column."""
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
DICTIONARY_COLUMNS: Final = (
    "node",
    "run",
    "session",
    "peer",
    "protocol",
    "transport",
    "direction",
    "kind",
    "channel",
    "reason",
)
"""Columns with few distinct values."""


def check_segment(path: str) -> list[str]:
    """Return notes on a segment, such as ignored columns.

    Raises:
        BadSegment: the segment cannot be read.
    """
    if not path.endswith(CLOSED_SUFFIX):
        return []
    with _open_parquet(path) as file:
        return _check_schema(path, file.schema_arrow)


def read_batches(path: str, columns: Sequence[str] | None = None, *, encoded: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the records of a segment in the order of the file.

    Args:
        path: The path or URL of the segment.
        columns: The columns in the order of the result; all by default. A missing optional column is null.
        encoded: Return repeated strings as dictionaries if the file has them; work on columns is faster with these.

    Raises:
        BadSegment: the segment cannot be read.
    """
    selected = list(columns) if columns is not None else SCHEMA.names
    if path.endswith(CLOSED_SUFFIX):
        yield from _read_closed(path, selected, DICTIONARY_COLUMNS if encoded else ())
    else:
        yield from _read_open(path, selected)


def _read_closed(path: str, columns: list[str], encoded: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _open_parquet(path, encoded) as file:
        _check_schema(path, file.schema_arrow)
        present = [name for name in columns if name in file.schema_arrow.names]
        try:
            for batch in file.iter_batches(BATCH_RECORDS, columns=present, use_threads=False):
                yield _conform_to_schema(batch, columns, path, encoded)
        except (ArrowException, OSError) as exc:
            raise BadSegment(f"{path} is damaged: {exc}") from exc


def _read_open(path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield all complete batches; behind the last one there may be the beginning of an incomplete batch.

    If the segment was closed meanwhile, the closed file is read.
    """
    system, name = resolve_filesystem(path)
    try:
        with system.open_input_stream(name) as stream, ipc.open_stream(stream) as batches:
            while True:
                yield _conform_to_schema(batches.read_next_batch(), columns, path)
    except (StopIteration, ArrowInvalid, EOFError):
        return  # the end, or an incomplete batch; an empty file has no schema either
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            return  # pyarrow raises this for an incomplete batch, too
    yield from _read_closed(f"{path.removesuffix(OPEN_SUFFIX)}{CLOSED_SUFFIX}", columns, ())


def _open_parquet(path: str, encoded: Sequence[str] = ()) -> parquet.ParquetFile:
    system, name = resolve_filesystem(path)
    try:
        return parquet.ParquetFile(name, filesystem=system, read_dictionary=list(encoded))
    except FileNotFoundError as exc:
        raise BadSegment(f"{path} does not exist any more") from exc
    except (ArrowException, OSError) as exc:
        raise BadSegment(f"{path} is not a complete Parquet file: {exc}") from exc


def _check_schema(path: str, schema: pa.Schema) -> list[str]:
    """Return notes on unknown columns; BadSegment if a column is missing, duplicate or of another type."""
    for field in SCHEMA:
        indices = schema.get_all_field_indices(field.name)
        if not indices and field.name not in OPTIONAL_COLUMNS:
            raise BadSegment(f"{path} has no column {field.name}")
        if len(indices) > 1:
            raise BadSegment(f"{path} has the column {field.name} {len(indices)} times")
        for index in indices:
            kind = schema.field(index).type
            value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
            if value_type not in _COMPATIBLE_TYPES.get(field.type, (field.type,)):
                raise BadSegment(f"{path}: the column {field.name} is {kind}, expected {field.type}")
    return [f"{path}: the column {name} is ignored" for name in schema.names if name not in SCHEMA.names]


def _conform_to_schema(
    batch: pa.RecordBatch, names: list[str], path: str, encoded: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return a batch with these columns in the types of the schema; `encoded` columns may be dictionaries."""
    arrays, fields = [], []
    for name in names:
        field = SCHEMA.field(name)
        if name not in batch.schema.names:
            column = pa.nulls(len(batch), field.type)
        else:
            column = batch.column(name)
            if not field.nullable and column.null_count:
                raise BadSegment(f"{path}: the column {name} is null in {column.null_count} records")
            if column.type != field.type and not (name in encoded and column.type == _DICTIONARY):
                column = compute.cast(column, field.type)
        arrays.append(column)
        fields.append(field.with_type(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
