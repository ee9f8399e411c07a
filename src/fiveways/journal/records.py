"""Records one by one, in the order of time; the pipeline reads columns instead."""

import contextlib
import heapq
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import ArrowException, compute, parquet

from fiveways.journal.reader import read_batches
from fiveways.journal.schema import MARKER_KINDS
from fiveways.journal.segments import Segment, resolve_filesystem

_CHUNK_RECORDS: Final = 1024
"""Records of a batch to convert at once."""
_REORDER_WINDOW: Final = 4096
ALL_TIME: Final = (None, None)

TimeRange = tuple[int | None, int | None]
"""Start and end in ns since 1970, None for no bound; the end is exclusive."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; the fields are the columns of `schema.SCHEMA`."""

    seq: int
    at: int
    node: str | None
    run: str
    session: str
    peer: str | None
    protocol: str
    transport: str | None
    direction: str
    kind: str
    channel: str | None
    op: str | None
    payload: bytes | None
    size: int | None
    reason: str | None
    queued_ns: int | None = None

    @property
    def is_marker(self) -> bool:
        """Whether the record is a marker, not a frame."""
        return self.kind in MARKER_KINDS

    @property
    def is_complete(self) -> bool:
        """Whether the payload is complete, apart from redaction."""
        return self.payload is not None and (self.size is None or len(self.payload) >= self.size)


def sort_by_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in the order of time: a frame may be recorded after the frames that it caused."""
    return batch.sort_by([("at", "ascending"), ("seq", "ascending")])


def iter_records(batch: pa.RecordBatch) -> Iterator[Record]:
    """Yield the records of a batch with all columns."""
    for start in range(0, len(batch), _CHUNK_RECORDS):
        columns = [column.to_pylist() for column in batch.slice(start, _CHUNK_RECORDS).columns]
        for row in zip(*columns, strict=True):
            yield Record(*row)


def merge_by_time(segments: list[Segment], time_range: TimeRange = ALL_TIME) -> Iterator[Record]:
    """Yield the records of all runs in the order of time, as far as a reorder window of each run allows.

    Memory is bounded by one batch per run.
    """
    runs: dict[str, list[Segment]] = {}
    for segment in segments:
        runs.setdefault(segment.run, []).append(segment)
    # Runs are opened lazily: until its first record is due, only its start time is known.
    heap: list[tuple[int, int, Record | None, Iterator[Record]]] = []
    for number, run in enumerate(runs.values()):
        first = _first_time(run)
        if first is not None:
            heap.append((first, number, None, _reorder(_run_records(run, time_range))))
    heapq.heapify(heap)
    while heap:
        _, number, record, records = heap[0]
        if record is not None:
            yield record
        next_record = next(records, None)
        if next_record is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (next_record.at, number, next_record, records))


def _first_time(run: list[Segment]) -> int | None:
    """Return the time of the first record of a run."""
    for segment in run:
        for batch in read_batches(segment.path, ["at"]):
            if len(batch):
                return int(batch.column(0)[0].as_py())
    return None


def _run_records(run: list[Segment], time_range: TimeRange) -> Iterator[Record]:
    for segment in run:
        for batch in read_batches(segment.path):
            yield from iter_records(filter_by_time(batch, time_range))


def _reorder(records: Iterator[Record]) -> Iterator[Record]:
    """Sort records that are at most a reorder window away from their position."""
    heap: list[tuple[int, int, int, Record]] = []
    for number, record in enumerate(records):
        heapq.heappush(heap, (record.at, record.seq, number, record))
        if len(heap) > _REORDER_WINDOW:
            yield heapq.heappop(heap)[-1]
    while heap:
        yield heapq.heappop(heap)[-1]


def filter_by_time(batch: pa.RecordBatch, time_range: TimeRange) -> pa.RecordBatch:
    """Return the records of a batch within a time range."""
    first, end = time_range
    if first is not None:
        batch = batch.filter(compute.greater_equal(batch.column("at"), first))
    if end is not None:
        batch = batch.filter(compute.less(batch.column("at"), end))
    return batch


def count_records(segments: list[Segment]) -> int | None:
    """Return the number of records; None if a segment is still open."""
    if not all(segment.is_closed for segment in segments):
        return None
    total = 0
    for segment in segments:
        system, name = resolve_filesystem(segment.path)
        with contextlib.suppress(OSError, ArrowException):  # the reader reports the error
            total += parquet.read_metadata(name, filesystem=system).num_rows
    return total
