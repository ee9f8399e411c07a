"""Records one by one, for those who read a journal as it was written; the pipeline reads it by columns."""

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
"""Records of a batch that are taken out of their columns at once."""
_REORDER_WINDOW: Final = 4096
ALL_TIME: Final = (None, None)

TimeRange = tuple[int | None, int | None]
"""From when, and to when, in ns; the end is not part of it."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; the fields are the columns of `record.SCHEMA`."""

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
        """Whether it is no frame."""
        return self.kind in MARKER_KINDS

    @property
    def is_complete(self) -> bool:
        """Whether all of a frame was written down, but for what was redacted."""
        return self.payload is not None and (self.size is None or len(self.payload) >= self.size)


def sort_by_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in the order in which things happened: a frame may be noted after what it brought about."""
    return batch.sort_by([("at", "ascending"), ("seq", "ascending")])


def iter_records(batch: pa.RecordBatch) -> Iterator[Record]:
    """Give the records of a batch that has all columns, in their order."""
    for start in range(0, len(batch), _CHUNK_RECORDS):
        columns = [column.to_pylist() for column in batch.slice(start, _CHUNK_RECORDS).columns]
        for row in zip(*columns, strict=True):
            yield Record(*row)


def merge_by_time(segments: list[Segment], span: TimeRange = ALL_TIME) -> Iterator[Record]:
    """Give all records in the order in which things happened, as far as that is not too far from how they were written.

    No more is held than a batch of each run that was written at that time.
    """
    runs: dict[str, list[Segment]] = {}
    for each in segments:
        runs.setdefault(each.run, []).append(each)
    # A run is opened when its time has come: until then only its first moment is known.
    waiting: list[tuple[int, int, Record | None, Iterator[Record]]] = []
    for number, run in enumerate(runs.values()):
        first = _first_time(run)
        if first is not None:
            waiting.append((first, number, None, _reorder(_run_records(run, span))))
    heapq.heapify(waiting)
    while waiting:
        _, number, record, rest = waiting[0]
        if record is not None:
            yield record
        following = next(rest, None)
        if following is None:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (following.at, number, following, rest))


def _first_time(run: list[Segment]) -> int | None:
    """Return when a run began."""
    for segment in run:
        for batch in read_batches(segment.path, ["at"]):
            if len(batch):
                return int(batch.column(0)[0].as_py())
    return None


def _run_records(run: list[Segment], span: TimeRange) -> Iterator[Record]:
    for segment in run:
        for batch in read_batches(segment.path):
            yield from iter_records(filter_by_time(batch, span))


def _reorder(found: Iterator[Record]) -> Iterator[Record]:
    """Put records in order that are at most so many places away from where they belong."""
    held: list[tuple[int, int, int, Record]] = []
    for number, record in enumerate(found):
        heapq.heappush(held, (record.at, record.seq, number, record))
        if len(held) > _REORDER_WINDOW:
            yield heapq.heappop(held)[-1]
    while held:
        yield heapq.heappop(held)[-1]


def filter_by_time(batch: pa.RecordBatch, span: TimeRange) -> pa.RecordBatch:
    """Return the records of a batch that are from that time."""
    first, end = span
    if first is not None:
        batch = batch.filter(compute.greater_equal(batch.column("at"), first))
    if end is not None:
        batch = batch.filter(compute.less(batch.column("at"), end))
    return batch


def count_records(segments: list[Segment]) -> int | None:
    """Return how many records there are; None if one segment is still being written."""
    if not all(each.is_closed for each in segments):
        return None
    total = 0
    for each in segments:
        system, name = resolve_filesystem(each.path)
        with contextlib.suppress(OSError, ArrowException):  # whoever reads it will say what is wrong
            total += parquet.read_metadata(name, filesystem=system).num_rows
    return total
