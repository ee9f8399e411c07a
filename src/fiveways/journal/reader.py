"""From segments to records: closed ones as Parquet, the open one as far as it was written."""

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
"""Records that are read from a closed segment at once: large enough for what works on columns."""
_COMPATIBLE_TYPES: Final = {
    pa.string(): (pa.string(), pa.large_string(), pa.string_view()),
    pa.binary(): (pa.binary(), pa.large_binary(), pa.binary_view()),
}
"""Types that say the same of a column."""
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
"""Columns in which the same texts stand again and again."""


def check_segment(path: str) -> list[str]:
    """Return notes on a segment, such as columns that will be ignored; BadSegment if it cannot be read."""
    if not path.endswith(CLOSED_SUFFIX):
        return []
    with _open_parquet(path) as file:
        return _check_schema(path, file.schema_arrow)


def read_batches(path: str, columns: Sequence[str] | None = None, *, encoded: bool = False) -> Iterator[pa.RecordBatch]:
    """Give the records of a segment in the order they were written; BadSegment if they cannot be read.

    Args:
        path: The segment's path or URL.
        columns: Which columns, in this order; all by default. An optional one that is not there is null.
        encoded: Give texts that repeat as dictionaries, where the file has them so: those who work on columns are
            quicker with these.
    """
    wanted = list(columns) if columns is not None else SCHEMA.names
    if path.endswith(CLOSED_SUFFIX):
        yield from _read_closed(path, wanted, DICTIONARY_COLUMNS if encoded else ())
    else:
        yield from _read_open(path, wanted)


def _read_closed(path: str, wanted: list[str], encoded: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _open_parquet(path, encoded) as file:
        _check_schema(path, file.schema_arrow)
        there = [name for name in wanted if name in file.schema_arrow.names]
        try:
            for batch in file.iter_batches(BATCH_RECORDS, columns=there, use_threads=False):
                yield _conform_to_schema(batch, wanted, path, encoded)
        except (ArrowException, OSError) as exc:
            raise BadSegment(f"{path} is damaged: {exc}") from exc


def _read_open(path: str, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Give every whole batch: behind the last of them there may be the beginning of one that was never finished.

    If it was closed since somebody found it, it is read as it is now.
    """
    system, name = resolve_filesystem(path)
    try:
        with system.open_input_stream(name) as stream, ipc.open_stream(stream) as batches:
            while True:
                yield _conform_to_schema(batches.read_next_batch(), wanted, path)
    except (StopIteration, ArrowInvalid, EOFError):
        return  # written to its end, or as far as its writer came; of an empty one not even the columns are there
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            return  # pyarrow says so too of a batch whose end is missing
    yield from _read_closed(f"{path.removesuffix(OPEN_SUFFIX)}{CLOSED_SUFFIX}", wanted, ())


def _open_parquet(path: str, encoded: Sequence[str] = ()) -> parquet.ParquetFile:
    system, name = resolve_filesystem(path)
    try:
        return parquet.ParquetFile(name, filesystem=system, read_dictionary=list(encoded))
    except FileNotFoundError as exc:
        raise BadSegment(f"{path} is not there any more") from exc
    except (ArrowException, OSError) as exc:
        raise BadSegment(f"{path} is no whole Parquet file: {exc}") from exc


def _check_schema(path: str, schema: pa.Schema) -> list[str]:
    """Return which columns are of no use; BadSegment if one is missing, there twice or of another type."""
    for field in SCHEMA:
        there = schema.get_all_field_indices(field.name)
        if not there and field.name not in OPTIONAL_COLUMNS:
            raise BadSegment(f"{path} has no column {field.name}")
        if len(there) > 1:
            raise BadSegment(f"{path} has the column {field.name} {len(there)} times")
        for index in there:
            kind = schema.field(index).type
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            if plain not in _COMPATIBLE_TYPES.get(field.type, (field.type,)):
                raise BadSegment(f"{path}: the column {field.name} is {kind}, where {field.type} is wanted")
    return [f"{path}: the column {name} is ignored" for name in schema.names if name not in SCHEMA.names]


def _conform_to_schema(
    batch: pa.RecordBatch, wanted: list[str], path: str, encoded: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return a batch with these columns in our types, but for those that may be dictionaries."""
    columns, fields = [], []
    for name in wanted:
        field = SCHEMA.field(name)
        if name not in batch.schema.names:
            column = pa.nulls(len(batch), field.type)
        else:
            column = batch.column(name)
            if not field.nullable and column.null_count:
                raise BadSegment(f"{path}: the column {name} is null in {column.null_count} records")
            if column.type != field.type and not (name in encoded and column.type == _DICTIONARY):
                column = compute.cast(column, field.type)
        columns.append(column)
        fields.append(field.with_type(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
