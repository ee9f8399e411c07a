"""One segment, from records to rows, in one go: this is what Python workers do, and the only thing they do.

No row of it crosses into the JVM. Each task writes one file per table, under a name that the driver gave it, and gives
back what is in them; done twice it does the same.
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
"""Which records were read."""
_MESSAGES_PER_SLICE: Final = 1 << 20
"""Messages that are held, and paired with each other, at once: a segment of any size fits into memory."""
SCHEMAS: Final = {
    "messages": spark_schemas.to_arrow(spark_schemas.MESSAGES),
    "quarantine": spark_schemas.to_arrow(spark_schemas.QUARANTINE),
    "late": spark_schemas.to_arrow(spark_schemas.LATE),
    "_marks": spark_schemas.to_arrow(spark_schemas.MARKS),
    "_pieces": PARTIAL_CALLS,
    "_buckets": pa.schema([PARTIAL_CALLS.field("bucket")]),
    RECORD_RANGES_TABLE: record_ranges.SCHEMA,
}
"""Columns of what is written here."""


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """A segment to be read."""

    path: str
    part: str
    """What its files are called."""
    output_directory: str
    """The directory with a folder for each table."""
    from_at: int | None = None
    to_at: int | None = None
    watermark: int | None = None
    """Records before this are too late."""
    late_only: bool = False
    """Whether only these are wanted, because the others were read before."""
    excluded: RecordRanges = field(default_factory=RecordRanges)
    """Records that are left out, because another segment has them too."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What was in it."""

    part: str
    records: int = 0
    first_at: int | None = None
    last_at: int | None = None
    late: int = 0
    repeated: int = 0
    """Records that were left out, because they are there twice."""
    negative_durations: int = 0
    """Records that waited in the hub for a time that is negative, because the clock was set back."""
    watermark: int | None = None
    dates: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    size: int = 0
    """Bytes of all files that were written."""
    error: str = ""
    """Why the segment cannot be read: a sentence for the user, which an exception would not survive the way as."""


def decode_segment(task: DecodeTask) -> SegmentSummary:
    """Read a segment, and write the rows of each table."""
    try:
        return _SegmentDecoder(task).run()
    except JournalError as exc:
        return SegmentSummary(task.part, error=str(exc))


class _SegmentDecoder:
    """One task at work."""

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
            self._task.part,
            self._records,
            self._first,
            self._last,
            rows["late"],
            self._repeated,
            self._negative_durations,
            self._task.watermark,
            dates,
            rows,
            size,
        )

    def _add_batch(self, batch: pa.RecordBatch) -> None:
        wanted = self._select_times(batch)
        batch = self._record_ranges.add_new(wanted, self._task.excluded)
        self._repeated += len(wanted) - len(batch)
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
        found = decode(batch)
        self._files["quarantine"].write(found.quarantine)
        self._files["_marks"].write(found.marks)
        self._pending_messages.append(found.messages)
        self._pending_rows += len(found.messages)
        if self._pending_rows >= _MESSAGES_PER_SLICE:
            self._write_pending()

    def _select_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out what is not within the times that were asked for."""
        task = self._task
        for bound, keeps in ((task.from_at, pc.greater_equal), (task.to_at, pc.less)):
            if bound is not None:
                batch = batch.filter(keeps(batch.column("at"), bound))
        if task.late_only and task.watermark is not None:
            batch = batch.filter(pc.less(batch.column("at"), task.watermark))
        return batch

    def _clear_negative_waits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out how long a frame waited in the hub, if the clock was set back meanwhile."""
        queued = batch.column("queued_ns")
        is_negative = pc.fill_null(pc.less(queued, 0), False)
        if not (number := pc.sum(is_negative).as_py()):
            return batch
        self._negative_durations += number
        known = pc.if_else(is_negative, pa.scalar(None, pa.int64()), queued)
        return batch.set_column(batch.schema.get_field_index("queued_ns"), "queued_ns", known)

    def _separate_late(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Put aside what is too late."""
        watermark = self._task.watermark
        if watermark is None or self._task.late_only or first >= watermark:
            return batch
        is_late = pc.less(batch.column("at"), watermark)
        late = pa.Table.from_batches([batch.filter(is_late)])
        stamp = pa.array(np.full(len(late), watermark), pa.int64())
        self._files["late"].write(late.append_column("watermark", stamp))
        return batch.filter(pc.invert(is_late))

    def _write_pending(self) -> None:
        """Find what belongs together among the messages that are held, and write both."""
        if not self._pending_messages:
            return
        messages = pa.concat_tables(self._pending_messages)
        self._pending_messages, self._pending_rows = [], 0
        if len(messages):
            self._files["messages"].write(messages)
            pieces = pair_messages(messages)
            self._files["_pieces"].write(pieces)
            self._files["_buckets"].write(unique_buckets(pieces))


def unique_buckets(pieces: pa.Table) -> pa.Table:
    """Return the buckets that pieces, which were paired at once, are in, each of them once."""
    return pieces.select(["bucket"]).group_by("bucket", use_threads=False).aggregate([])


class ParquetPartWriter:
    """A Parquet file that is there when it is whole, and only if it has rows."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._path = folder / f"{name}.parquet"
        # Readers skip what begins with a dot; two attempts at one task must not write to one file.
        self._temporary_path = folder / f".{name}.{os.getpid()}.tmp"
        self._schema = schema
        self._writer: parquet.ParquetWriter | None = None
        self.rows = 0

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Add rows; columns that are not of the table are left out."""
        if not len(table):
            return
        table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        table = table.select(self._schema.names)
        if self._writer is None:
            self._temporary_path.parent.mkdir(parents=True, exist_ok=True)
            # A dictionary is how Parquet keeps a column of few values anyway; on disk it is a plain one.
            kinds = [
                _stored_type(has.type, wanted.type) for has, wanted in zip(table.schema, self._schema, strict=True)
            ]
            self._written_schema = pa.schema(list(zip(self._schema.names, kinds, strict=True)))
            # Trying to find few values where there are many takes half as long again, and more room.
            coded = [field.name for field in self._written_schema if pa.types.is_dictionary(field.type)]
            self._writer = parquet.ParquetWriter(
                self._temporary_path, self._written_schema, compression="zstd", store_schema=False, use_dictionary=coded
            )
        self._writer.write_table(
            table if table.schema.equals(self._written_schema) else table.cast(self._written_schema)
        )
        self.rows += len(table)

    def close(self) -> int:
        """Make it whole; return its size. Without rows there is none, nor one that an earlier attempt left."""
        if self._writer is None:
            self._path.unlink(missing_ok=True)
            return 0
        self._writer.close()
        size = self._temporary_path.stat().st_size
        self._temporary_path.replace(self._path)
        return size


def _stored_type(has: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    is_same = pa.types.is_dictionary(has) and has.value_type == wanted
    return has if is_same else wanted


def merge_parts(name: str, parts: list[str], into: str) -> int:
    """Make one part of several, in all tables; return the size of its files. The parts that were are removed."""
    size = 0
    for table in SCHEMAS:
        folder = Path(into, table)
        files = [folder / f"{part}.parquet" for part in parts]
        merged = ParquetPartWriter(folder, name, SCHEMAS[table])
        for rows in read_row_groups(files):
            merged.write(rows)
        size += merged.close()
        for file in files:
            file.unlink(missing_ok=True)
    return size


def read_row_groups(files: Iterable[Path]) -> Iterator[pa.Table]:
    """Yield the rows of those of the files that there are, some at a time."""
    for path in files:
        if path.exists():
            with _open_with_dictionaries(path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, use_threads=False)


def _open_with_dictionaries(path: Path) -> parquet.ParquetFile:
    """Open a file to be read such that columns of few values come as they are kept."""
    with parquet.ParquetFile(path) as file:
        first = file.metadata.row_group(0)
        columns = [first.column(number) for number in range(first.num_columns)]
        coded = [each.path_in_schema for each in columns if each.has_dictionary_page]
        # It is opened again, since only then it can be told; its metadata need not be read again.
        return parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=coded)
