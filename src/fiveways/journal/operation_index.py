"""The records of one operation, wherever they lie in a journal."""

from typing import Final

import pyarrow as pa
from pyarrow import compute

from fiveways.journal.reader import read_batches
from fiveways.journal.records import Record, iter_records
from fiveways.journal.segments import require_segments

_INDEX_COLUMNS: Final = ("run", "at", "op")


def has_op(column: pa.Array, op: str) -> pa.Array:
    """Return which records belong to an operation, perhaps among others: a frame of several messages has several."""
    return compute.match_substring(compute.binary_join_element_wise("", column, "", " "), f" {op} ")


class OperationIndex:
    """In which runs an operation occurs, and where."""

    def __init__(self, directory: str, op: str, run: str = "") -> None:
        """Look for it; in one run alone if that is named."""
        self._op = op
        self._last_seen_at: dict[str, int] = {}
        self._paths: dict[str, list[str]] = {}
        for segment in require_segments(directory):
            if run and segment.run not in {"", run}:
                continue
            for batch in read_batches(segment.path, _INDEX_COLUMNS):
                self._index_batch(batch.filter(has_op(batch.column("op"), op)), segment.path, run)

    def _index_batch(self, batch: pa.RecordBatch, path: str, wanted: str) -> None:
        for run, at in zip(batch.column("run").to_pylist(), batch.column("at").to_pylist(), strict=True):
            if wanted and run != wanted:
                continue
            self._last_seen_at[run] = max(at, self._last_seen_at.get(run, at))
            paths = self._paths.setdefault(run, [])
            if path not in paths:
                paths.append(path)

    @property
    def runs(self) -> list[str]:
        """Return the runs in which it occurs, the latest first."""
        return sorted(self._last_seen_at, key=lambda run: self._last_seen_at[run], reverse=True)

    def records(self, run: str) -> list[Record]:
        """Return all records of it in one run, by their times."""
        found: list[Record] = []
        for path in self._paths[run]:
            for batch in read_batches(path):
                ours = compute.and_(has_op(batch.column("op"), self._op), compute.equal(batch.column("run"), run))
                found += iter_records(batch.filter(ours))
        return sorted(found, key=lambda record: (record.at, record.seq))
