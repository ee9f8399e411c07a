"""The records that were read, as ranges of `seq` for each node and run.

A record is known by (node, run, seq). A journal may hold it twice, such as in a copy of a segment under another name;
it is read once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fiveways.pipeline.pairing.message_columns import BoolArray, DictionaryColumn, Int64Array

SCHEMA: Final = pa.schema(
    [("node", pa.string()), ("run", pa.string()), ("first_seq", pa.int64()), ("last_seq", pa.int64())]
)
RunKey = tuple[str | None, str]
"""A node and a run."""
_EMPTY: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class IntRanges:
    """Whole numbers, as ranges in order that neither overlap nor touch."""

    first: Int64Array
    last: Int64Array

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def from_sorted(cls, numbers: Int64Array) -> Self:
        """Return the ranges of numbers that are in order, none of them twice."""
        gaps = np.flatnonzero(numbers[1:] != numbers[:-1] + 1)
        return cls(numbers[np.r_[0, gaps + 1]], numbers[np.r_[gaps, -1]]) if len(numbers) else cls(_EMPTY, _EMPTY)

    def contains(self, numbers: Int64Array) -> BoolArray:
        """Say which numbers are within the ranges."""
        if not len(self) or not len(numbers):
            return np.zeros(len(numbers), np.bool_)
        place = np.searchsorted(self.last, numbers)
        return np.asarray((place < len(self)) & (self.first[np.minimum(place, len(self) - 1)] <= numbers))

    def union(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers of both."""
        if not len(self) or not len(other):
            return self if len(self) else other
        first, last = np.r_[self.first, other.first], np.r_[self.last, other.last]
        order = np.argsort(first, kind="stable")
        return _merge_adjacent(first[order], np.maximum.accumulate(last[order]))

    def difference(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers that the other lacks."""
        points = np.unique(np.concatenate([self.first, self.last + 1, other.first, other.last + 1]))
        first, last = points[:-1], points[1:] - 1
        kept = self.contains(first) & ~other.contains(first)
        return _merge_adjacent(first[kept], last[kept])

    def intersection(self, other: "IntRanges") -> "IntRanges":
        """Return the numbers that both have."""
        if not len(self) or not len(other) or self.first[0] > other.last[-1] or self.last[-1] < other.first[0]:
            return IntRanges(_EMPTY, _EMPTY)
        return self.difference(self.difference(other))


def _merge_adjacent(first: Int64Array, last: Int64Array) -> IntRanges:
    """Return ranges in order, those that touch or overlap as one; ends are in order too."""
    if not len(first):
        return IntRanges(_EMPTY, _EMPTY)
    begins = np.r_[True, first[1:] > last[:-1] + 1]
    return IntRanges(first[begins], last[np.r_[begins[1:], True]])


class RecordRanges:
    """Records, by what they are known by."""

    def __init__(self, ranges: dict[RunKey, IntRanges] | None = None) -> None:
        self.ranges = ranges or {}
        """The numbers of each node's and run's records."""

    def __bool__(self) -> bool:
        return any(map(len, self.ranges.values()))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """Read what `table` gave, from those of the files that there are."""
        found = cls()
        tables = [parquet.read_table(path, use_threads=False) for path in paths if path.exists()]
        for batch in pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks().to_batches():
            first, last = (batch.column(name).to_numpy() for name in ("first_seq", "last_seq"))
            for key, rows in _rows_by_key(batch):
                order = np.argsort(first if rows is None else first[rows], kind="stable")
                order = order if rows is None else rows[order]
                found.add_ranges(key, _merge_adjacent(first[order], np.maximum.accumulate(last[order])))
        return found

    def to_table(self) -> pa.Table:
        """Return the ranges as rows."""
        tables = [SCHEMA.empty_table()]
        for (node, run), ranges in self.ranges.items():
            texts = [pa.repeat(pa.scalar(each, pa.string()), len(ranges)) for each in (node, run)]
            tables.append(pa.table([*texts, pa.array(ranges.first), pa.array(ranges.last)], schema=SCHEMA))
        return pa.concat_tables(tables)

    def add_new(self, batch: pa.RecordBatch, without: "RecordRanges") -> pa.RecordBatch:
        """Add the records of a batch; return those that are new here, and not among the others."""
        seq = batch.column("seq").to_numpy()
        is_new = np.ones(len(batch), np.bool_)
        for key, rows in _rows_by_key(batch):
            numbers = seq if rows is None else seq[rows]
            chosen = self._find_new(key, numbers, without)
            if rows is None:
                is_new = chosen
            else:
                is_new[rows] = chosen
        return batch if is_new.all() else batch.filter(pa.array(is_new))

    def _find_new(self, key: RunKey, numbers: Int64Array, without: "RecordRanges") -> BoolArray:
        in_order = bool((numbers[1:] > numbers[:-1]).all())
        is_new = np.ones(len(numbers), np.bool_)
        if not in_order:
            is_new[:] = False
            is_new[np.unique(numbers, return_index=True)[1]] = True
        for others in (self.ranges.get(key), without.ranges.get(key)):
            if others:
                is_new &= ~others.contains(numbers)
        taken = numbers[is_new]
        self.add_ranges(key, IntRanges.from_sorted(taken if in_order else np.sort(taken)))
        return is_new

    def add_ranges(self, key: RunKey, ranges: IntRanges) -> None:
        """Add records of one node and run."""
        known = self.ranges.get(key)
        self.ranges[key] = ranges if known is None else known.union(ranges)

    def update(self, other: "RecordRanges") -> None:
        """Add the records of another."""
        for key, ranges in other.ranges.items():
            self.add_ranges(key, ranges)

    def difference(self, other: "RecordRanges") -> "RecordRanges":
        """Return the records that the other lacks."""
        none = IntRanges(_EMPTY, _EMPTY)
        return RecordRanges({key: mine.difference(other.ranges.get(key, none)) for key, mine in self.ranges.items()})

    def intersection(self, other: "RecordRanges") -> "RecordRanges":
        """Return the records that both have."""
        keys = self.ranges.keys() & other.ranges.keys()
        return RecordRanges({key: self.ranges[key].intersection(other.ranges[key]) for key in keys})


def _rows_by_key(batch: pa.RecordBatch) -> list[tuple[RunKey, Int64Array | None]]:
    """Return the keys of a batch, and the rows of each; None if all are of one, as they nearly always are."""
    if not len(batch):
        return []
    nodes, runs = DictionaryColumn(batch.column("node")), DictionaryColumn(batch.column("run"))
    codes = (nodes.codes + 1) * len(runs.values) + runs.codes

    def key_of(row: int) -> RunKey:
        node = int(nodes.codes[row])
        return nodes.texts[node] if node >= 0 else None, runs.texts[int(runs.codes[row])]

    if (codes == codes[0]).all():
        return [(key_of(0), None)]
    return [(key_of(int(rows[0])), rows) for rows in (np.flatnonzero(codes == each) for each in np.unique(codes))]
