"""Decoding of one segment into rows; this is the only work of Spark's Python workers.

Rows do not pass through the JVM. Each task writes one file per table, named by the driver, and returns a summary. A
repeated task writes the same files again.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from fiveways.journal import reader
from fiveways.journal.errors import JournalError
from fiveways.pipeline import record_ranges, spark_schemas
from fiveways.pipeline.days import DAY_NS, format_date
from fiveways.pipeline.decode import decode
from fiveways.pipeline.pairing import PARTIAL_CALLS, pair_messages
from fiveways.pipeline.record_ranges import RecordRanges

RECORD_RANGES_TABLE: Final = "_seqs"
"""Table with the ranges of decoded records."""
_MESSAGES_PER_SLICE: Final = 1 << 20
"""Messages held and paired in memory at once; it bounds memory for segments of any size."""
SCHEMAS: Final = {
    "messages": spark_schemas.to_arrow(spark_schemas.MESSAGES),
    "quarantine": spark_schemas.to_arrow(spark_schemas.QUARANTINE),
    "late": spark_schemas.to_arrow(spark_schemas.LATE),
    "_marks": spark_schemas.to_arrow(spark_schemas.MARKS),
    "_pieces": PARTIAL_CALLS,
    "_buckets": pa.schema([PARTIAL_CALLS.field("bucket")]),
    RECORD_RANGES_TABLE: record_ranges.SCHEMA,
}
"""Schemas of the tables that are written here."""


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Task to decode one segment."""

    path: str
    part: str
    """Name of the files to write."""
    output_directory: str
    """Directory with one folder per table."""
    from_at: int | None = None
    to_at: int | None = None
    watermark: int | None = None
    """Records before this time are late."""
    late_only: bool = False
    """Decode only late records, because the others were decoded before."""
    excluded: RecordRanges = field(default_factory=RecordRanges)
    """Records to skip, because another segment has them too."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Result of a decoded segment."""

    part: str
    records: int = 0
    first_at: int | None = None
    last_at: int | None = None
    late: int = 0
    repeated: int = 0
    """Records skipped as duplicates."""
    negative_durations: int = 0
    """Records with a negative `queued_ns`, because the clock was set back."""
    watermark: int | None = None
    dates: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    size: int = 0
    """Bytes of all files written."""
    error: str = ""
    """Reason why the segment cannot be read, for the user; Spark would not transport the exception."""


def decode_segment(task: DecodeTask) -> SegmentSummary:
    """Decode a segment and write its rows of each table."""
    try:
        return _SegmentDecoder(task).run()
    except JournalError as exc:
        return SegmentSummary(task.part, error=str(exc))


class _SegmentDecoder:
    """State of one decode task."""

    def __init__(self, task: DecodeTask) -> None:
        self._task = task
        self._files = {
            name: ParquetPartWriter(Path(task.output_directory, name), task.part, SCHEMAS[name]) for name in SCHEMAS
        }
        self._pending_messages: list[pa.Table] = []
        self._pending_rows = 0
        self._record_ranges = RecordRanges()
        self._records = self._repeated = self._negative_durations = 0
        self._days: set[int] = set()
        self._first: int | None = None
        self._last: int | None = None

    def run(self) -> SegmentSummary:
        for batch in reader.read_batches(self._task.path, encoded=True):
            self._add_batch(batch)
        self._write_pending()
        self._files[RECORD_RANGES_TABLE].write(self._record_ranges.to_table())
        rows = {name: file.rows for name, file in self._files.items()}
        size = sum(file.close() for file in self._files.values())
        dates = list(map(format_date, sorted(self._days)))
        return SegmentSummary(
            part=self._task.part,
            records=self._records,
            first_at=self._first,
            last_at=self._last,
            late=rows["late"],
            repeated=self._repeated,
            negative_durations=self._negative_durations,
            watermark=self._task.watermark,
            dates=dates,
            rows=rows,
            size=size,
        )

    def _add_batch(self, batch: pa.RecordBatch) -> None:
        selected = self._select_times(batch)
        batch = self._record_ranges.add_new(selected, self._task.excluded)
        self._repeated += len(selected) - len(batch)
        if not len(batch):
            return
        batch = self._clear_negative_waits(batch)
        at = batch.column("at").to_numpy()
        first, last = int(at.min()), int(at.max())
        self._records += len(batch)
        self._first = first if self._first is None else min(self._first, first)
        self._last = last if self._last is None else max(self._last, last)
        batch = self._separate_late(batch, first)
        if not len(batch):
            return
        self._days.update(np.unique(batch.column("at").to_numpy() // DAY_NS).tolist())
        decoded = decode(batch)
        self._files["quarantine"].write(decoded.quarantine)
        self._files["_marks"].write(decoded.marks)
        self._pending_messages.append(decoded.messages)
        self._pending_rows += len(decoded.messages)
        if self._pending_rows >= _MESSAGES_PER_SLICE:
            self._write_pending()

    def _select_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records within the time range of the task."""
        task = self._task
        for bound, compare in ((task.from_at, pc.greater_equal), (task.to_at, pc.less)):
            if bound is not None:
                batch = batch.filter(compare(batch.column("at"), bound))
        if task.late_only and task.watermark is not None:
            batch = batch.filter(pc.less(batch.column("at"), task.watermark))
        return batch

    def _clear_negative_waits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Replace negative values of `queued_ns` by null; they occur when the clock was set back."""
        queued = batch.column("queued_ns")
        is_negative = pc.fill_null(pc.less(queued, 0), False)
        if not (number := pc.sum(is_negative).as_py()):
            return batch
        self._negative_durations += number
        cleared = pc.if_else(is_negative, pa.scalar(None, pa.int64()), queued)
        return batch.set_column(batch.schema.get_field_index("queued_ns"), "queued_ns", cleared)

    def _separate_late(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Write late records to the table `late`; return the others."""
        watermark = self._task.watermark
        if watermark is None or self._task.late_only or first >= watermark:
            return batch
        is_late = pc.less(batch.column("at"), watermark)
        late = pa.Table.from_batches([batch.filter(is_late)])
        watermarks = pa.array(np.full(len(late), watermark), pa.int64())
        self._files["late"].write(late.append_column("watermark", watermarks))
        return batch.filter(pc.invert(is_late))

    def _write_pending(self) -> None:
        """Pair the messages held in memory; write them and the partial calls."""
        if not self._pending_messages:
            return
        messages = pa.concat_tables(self._pending_messages)
        self._pending_messages, self._pending_rows = [], 0
        if len(messages):
            self._files["messages"].write(messages)
            partial_calls = pair_messages(messages)
            self._files["_pieces"].write(partial_calls)
            self._files["_buckets"].write(unique_buckets(partial_calls))


def unique_buckets(partial_calls: pa.Table) -> pa.Table:
    """Return the distinct buckets of partial calls that were paired together."""
    return partial_calls.select(["bucket"]).group_by("bucket", use_threads=False).aggregate([])


class ParquetPartWriter:
    """Parquet file that appears when it is complete, and only if it has rows."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._path = folder / f"{name}.parquet"
        # Readers skip names that begin with a dot; the process id keeps two attempts at one task apart.
        self._temporary_path = folder / f".{name}.{os.getpid()}.tmp"
        self._schema = schema
        self._writer: parquet.ParquetWriter | None = None
        self.rows = 0

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Write rows; columns that are not in the schema are left out."""
        if not len(table):
            return
        table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        table = table.select(self._schema.names)
        if self._writer is None:
            self._temporary_path.parent.mkdir(parents=True, exist_ok=True)
            # Parquet stores a column of few distinct values with a dictionary; the stored type is plain text.
            types = [
                _stored_type(actual.type, declared.type)
                for actual, declared in zip(table.schema, self._schema, strict=True)
            ]
            self._written_schema = pa.schema(list(zip(self._schema.names, types, strict=True)))
            # Dictionary encoding of columns with many distinct values costs half as much time again, and space.
            coded = [field.name for field in self._written_schema if pa.types.is_dictionary(field.type)]
            self._writer = parquet.ParquetWriter(
                self._temporary_path, self._written_schema, compression="zstd", store_schema=False, use_dictionary=coded
            )
        self._writer.write_table(
            table if table.schema.equals(self._written_schema) else table.cast(self._written_schema)
        )
        self.rows += len(table)

    def close(self) -> int:
        """Finish the file and return its size; without rows, delete the file of an earlier attempt and return 0."""
        if self._writer is None:
            self._path.unlink(missing_ok=True)
            return 0
        self._writer.close()
        size = self._temporary_path.stat().st_size
        self._temporary_path.replace(self._path)
        return size


def _stored_type(actual: pa.DataType, declared: pa.DataType) -> pa.DataType:
    is_same = pa.types.is_dictionary(actual) and actual.value_type == declared
    return actual if is_same else declared


def merge_parts(name: str, parts: list[str], directory: str) -> int:
    """Merge parts into one in all tables, delete them, and return the size of the merged files."""
    size = 0
    for table in SCHEMAS:
        folder = Path(directory, table)
        files = [folder / f"{part}.parquet" for part in parts]
        merged = ParquetPartWriter(folder, name, SCHEMAS[table])
        for rows in read_row_groups(files):
            merged.write(rows)
        size += merged.close()
        for file in files:
            file.unlink(missing_ok=True)
    return size


def read_row_groups(files: Iterable[Path]) -> Iterator[pa.Table]:
    """Yield the rows of the files that exist, one row group at a time."""
    for path in files:
        if path.exists():
            with _open_with_dictionaries(path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, use_threads=False)


def _open_with_dictionaries(path: Path) -> parquet.ParquetFile:
    """Open a file so that dictionary-encoded columns are read as dictionaries."""
    with parquet.ParquetFile(path) as file:
        first = file.metadata.row_group(0)
        columns = [first.column(number) for number in range(first.num_columns)]
        coded = [column.path_in_schema for column in columns if column.has_dictionary_page]
        # This option exists only when a file is opened; the metadata is not read again.
        return parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=coded)
