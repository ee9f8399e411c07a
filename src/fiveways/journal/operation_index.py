"""Lookup of the records of one operation in a journal."""

from typing import Final

import pyarrow as pa
from pyarrow import compute

from fiveways.journal.reader import read_batches
from fiveways.journal.records import Record, iter_records
from fiveways.journal.segments import require_segments

_INDEX_COLUMNS: Final = ("run", "at", "op")


def has_op(column: pa.Array, op: str) -> pa.Array:
    """Return which records belong to an operation. A frame with several messages has several operations."""
    return compute.match_substring(compute.binary_join_element_wise("", column, "", " "), f" {op} ")


class OperationIndex:
    """The runs and segments in which an operation occurs."""

    def __init__(self, directory: str, op: str, run: str = "") -> None:
        """Search the journal, or only the given run."""
        self._op = op
        self._last_seen_at: dict[str, int] = {}
        self._paths: dict[str, list[str]] = {}
        for segment in require_segments(directory):
            if run and segment.run not in {"", run}:
                continue
            for batch in read_batches(segment.path, _INDEX_COLUMNS):
                self._index_batch(batch.filter(has_op(batch.column("op"), op)), segment.path, run)

    def _index_batch(self, batch: pa.RecordBatch, path: str, only_run: str) -> None:
        for run, at in zip(batch.column("run").to_pylist(), batch.column("at").to_pylist(), strict=True):
            if only_run and run != only_run:
                continue
            self._last_seen_at[run] = max(at, self._last_seen_at.get(run, at))
            paths = self._paths.setdefault(run, [])
            if path not in paths:
                paths.append(path)

    @property
    def runs(self) -> list[str]:
        """The runs with the operation, latest first."""
        return sorted(self._last_seen_at, key=lambda run: self._last_seen_at[run], reverse=True)

    def records(self, run: str) -> list[Record]:
        """Return all records of the operation in a run, ordered by time."""
        records: list[Record] = []
        for path in self._paths[run]:
            for batch in read_batches(path):
                is_match = compute.and_(has_op(batch.column("op"), self._op), compute.equal(batch.column("run"), run))
                records += iter_records(batch.filter(is_match))
        return sorted(records, key=lambda record: (record.at, record.seq))
