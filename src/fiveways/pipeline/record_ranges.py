"""Sets of records, stored as ranges of `seq` for each node and run.

(node, run, seq) identifies a record. A journal may contain a record twice, for example in a copy of a segment under
another name; the pipeline decodes it once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.pairing.message_columns import DictionaryColumn

SCHEMA: Final = pa.schema(
    [("node", pa.string()), ("run", pa.string()), ("first_seq", pa.int64()), ("last_seq", pa.int64())]
)
RunKey = tuple[str | None, str]
"""Node and run of a record."""
_EMPTY: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class IntRanges:
    """Sorted ranges of integers that neither overlap nor touch."""

    first: Int64Array
    last: Int64Array

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def from_sorted(cls, numbers: Int64Array) -> Self:
        """Create ranges from sorted numbers without duplicates."""
        gaps = np.flatnonzero(numbers[1:] != numbers[:-1] + 1)
        return cls(numbers[np.r_[0, gaps + 1]], numbers[np.r_[gaps, -1]]) if len(numbers) else cls(_EMPTY, _EMPTY)

    def contains(self, numbers: Int64Array) -> BoolArray:
        """Return which numbers are in the ranges."""
        if not len(self) or not len(numbers):
            return np.zeros(len(numbers), np.bool_)
        index = np.searchsorted(self.last, numbers)
        return np.asarray((index < len(self)) & (self.first[np.minimum(index, len(self) - 1)] <= numbers))

    def union(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers of both sets."""
        if not len(self) or not len(other):
            return self if len(self) else other
        first, last = np.r_[self.first, other.first], np.r_[self.last, other.last]
        order = np.argsort(first, kind="stable")
        return _merge_adjacent(first[order], np.maximum.accumulate(last[order]))

    def difference(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers that are not in the other set."""
        points = np.unique(np.concatenate([self.first, self.last + 1, other.first, other.last + 1]))
        first, last = points[:-1], points[1:] - 1
        kept = self.contains(first) & ~other.contains(first)
        return _merge_adjacent(first[kept], last[kept])

    def intersection(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers that are in both sets."""
        if not len(self) or not len(other) or self.first[0] > other.last[-1] or self.last[-1] < other.first[0]:
            return IntRanges(_EMPTY, _EMPTY)
        return self.difference(self.difference(other))


def _merge_adjacent(first: Int64Array, last: Int64Array) -> IntRanges:
    """Merge ranges that touch or overlap; both `first` and `last` must be sorted."""
    if not len(first):
        return IntRanges(_EMPTY, _EMPTY)
    begins = np.r_[True, first[1:] > last[:-1] + 1]
    return IntRanges(first[begins], last[np.r_[begins[1:], True]])


class RecordRanges:
    """Set of records."""

    def __init__(self, ranges: dict[RunKey, IntRanges] | None = None) -> None:
        self.ranges = ranges or {}
        """The `seq` numbers of each node and run."""

    def __bool__(self) -> bool:
        return any(map(len, self.ranges.values()))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """Read files that contain the result of `to_table`; missing files are skipped."""
        ranges = cls()
        tables = [parquet.read_table(path, use_threads=False) for path in paths if path.exists()]
        for batch in pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks().to_batches():
            first, last = (batch.column(name).to_numpy() for name in ("first_seq", "last_seq"))
            for key, rows in _rows_by_key(batch):
                order = np.argsort(first if rows is None else first[rows], kind="stable")
                order = order if rows is None else rows[order]
                ranges.add_ranges(key, _merge_adjacent(first[order], np.maximum.accumulate(last[order])))
        return ranges

    def to_table(self) -> pa.Table:
        """Return the ranges as a table."""
        tables = [SCHEMA.empty_table()]
        for (node, run), ranges in self.ranges.items():
            texts = [pa.repeat(pa.scalar(text, pa.string()), len(ranges)) for text in (node, run)]
            tables.append(pa.table([*texts, pa.array(ranges.first), pa.array(ranges.last)], schema=SCHEMA))
        return pa.concat_tables(tables)

    def add_new(self, batch: pa.RecordBatch, excluded: "RecordRanges") -> pa.RecordBatch:
        """Add the records of a batch; return those that were neither in this set nor in `excluded`."""
        seq = batch.column("seq").to_numpy()
        is_new = np.ones(len(batch), np.bool_)
        for key, rows in _rows_by_key(batch):
            numbers = seq if rows is None else seq[rows]
            chosen = self._find_new(key, numbers, excluded)
            if rows is None:
                is_new = chosen
            else:
                is_new[rows] = chosen
        return batch if is_new.all() else batch.filter(pa.array(is_new))

    def _find_new(self, key: RunKey, numbers: Int64Array, excluded: "RecordRanges") -> BoolArray:
        in_order = bool((numbers[1:] > numbers[:-1]).all())
        is_new = np.ones(len(numbers), np.bool_)
        if not in_order:
            is_new[:] = False
            is_new[np.unique(numbers, return_index=True)[1]] = True
        for others in (self.ranges.get(key), excluded.ranges.get(key)):
            if others:
                is_new &= ~others.contains(numbers)
        added = numbers[is_new]
        self.add_ranges(key, IntRanges.from_sorted(added if in_order else np.sort(added)))
        return is_new

    def add_ranges(self, key: RunKey, ranges: IntRanges) -> None:
        """Add records of one node and run."""
        known = self.ranges.get(key)
        self.ranges[key] = ranges if known is None else known.union(ranges)

    def update(self, other: "RecordRanges") -> None:
        """Add the records of another set."""
        for key, ranges in other.ranges.items():
            self.add_ranges(key, ranges)

    def difference(self, other: "RecordRanges") -> "RecordRanges":
        """Return the records that are not in the other set."""
        none = IntRanges(_EMPTY, _EMPTY)
        return RecordRanges({key: own.difference(other.ranges.get(key, none)) for key, own in self.ranges.items()})

    def intersection(self, other: "RecordRanges") -> "RecordRanges":
        """Return the records that are in both sets."""
        keys = self.ranges.keys() & other.ranges.keys()
        return RecordRanges({key: self.ranges[key].intersection(other.ranges[key]) for key in keys})


def _rows_by_key(batch: pa.RecordBatch) -> list[tuple[RunKey, Int64Array | None]]:
    """Return the keys in a batch and the rows of each; None as rows if all have one key, the usual case."""
    if not len(batch):
        return []
    nodes, runs = DictionaryColumn(batch.column("node")), DictionaryColumn(batch.column("run"))
    codes = (nodes.codes + 1) * len(runs.values) + runs.codes

    def key_of(row: int) -> RunKey:
        node = int(nodes.codes[row])
        return nodes.texts[node] if node >= 0 else None, runs.texts[int(runs.codes[row])]

    if (codes == codes[0]).all():
        return [(key_of(0), None)]
    return [(key_of(int(rows[0])), rows) for rows in (np.flatnonzero(codes == code) for code in np.unique(codes))]
