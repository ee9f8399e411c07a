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

from fiveways.pipeline.pieces.columns import Coded, Flags, Longs

SCHEMA: Final = pa.schema(
    [("node", pa.string()), ("run", pa.string()), ("first_seq", pa.int64()), ("last_seq", pa.int64())]
)
Key = tuple[str | None, str]
"""A node and a run."""
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Whole numbers, as ranges in order that neither overlap nor touch."""

    first: Longs
    last: Longs

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, numbers: Longs) -> Self:
        """Return the ranges of numbers that are in order, none of them twice."""
        gaps = np.flatnonzero(numbers[1:] != numbers[:-1] + 1)
        return cls(numbers[np.r_[0, gaps + 1]], numbers[np.r_[gaps, -1]]) if len(numbers) else cls(_NONE, _NONE)

    def has(self, numbers: Longs) -> Flags:
        """Say which numbers are within the ranges."""
        if not len(self) or not len(numbers):
            return np.zeros(len(numbers), np.bool_)
        place = np.searchsorted(self.last, numbers)
        return np.asarray((place < len(self)) & (self.first[np.minimum(place, len(self) - 1)] <= numbers))

    def union(self, other: "Ranges") -> "Ranges":
        """Return the numbers of both."""
        if not len(self) or not len(other):
            return self if len(self) else other
        first, last = np.r_[self.first, other.first], np.r_[self.last, other.last]
        order = np.argsort(first, kind="stable")
        return _joined(first[order], np.maximum.accumulate(last[order]))

    def minus(self, other: "Ranges") -> "Ranges":
        """Return the numbers that the other lacks."""
        points = np.unique(np.concatenate([self.first, self.last + 1, other.first, other.last + 1]))
        first, last = points[:-1], points[1:] - 1
        kept = self.has(first) & ~other.has(first)
        return _joined(first[kept], last[kept])

    def common(self, other: "Ranges") -> "Ranges":
        """Return the numbers that both have."""
        if not len(self) or not len(other) or self.first[0] > other.last[-1] or self.last[-1] < other.first[0]:
            return Ranges(_NONE, _NONE)
        return self.minus(self.minus(other))


def _joined(first: Longs, last: Longs) -> Ranges:
    """Return ranges in order, those that touch or overlap as one; ends are in order too."""
    if not len(first):
        return Ranges(_NONE, _NONE)
    begins = np.r_[True, first[1:] > last[:-1] + 1]
    return Ranges(first[begins], last[np.r_[begins[1:], True]])


class Seqs:
    """Records, by what they are known by."""

    def __init__(self, ranges: dict[Key, Ranges] | None = None) -> None:
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
            for key, rows in _by_key(batch):
                order = np.argsort(first if rows is None else first[rows], kind="stable")
                order = order if rows is None else rows[order]
                found.put(key, _joined(first[order], np.maximum.accumulate(last[order])))
        return found

    def table(self) -> pa.Table:
        """Return the ranges as rows."""
        tables = [SCHEMA.empty_table()]
        for (node, run), ranges in self.ranges.items():
            texts = [pa.repeat(pa.scalar(each, pa.string()), len(ranges)) for each in (node, run)]
            tables.append(pa.table([*texts, pa.array(ranges.first), pa.array(ranges.last)], schema=SCHEMA))
        return pa.concat_tables(tables)

    def take(self, batch: pa.RecordBatch, without: "Seqs") -> pa.RecordBatch:
        """Add the records of a batch; return those that are new here, and not among the others."""
        seq = batch.column("seq").to_numpy()
        is_new = np.ones(len(batch), np.bool_)
        for key, rows in _by_key(batch):
            numbers = seq if rows is None else seq[rows]
            chosen = self._new(key, numbers, without)
            if rows is None:
                is_new = chosen
            else:
                is_new[rows] = chosen
        return batch if is_new.all() else batch.filter(pa.array(is_new))

    def _new(self, key: Key, numbers: Longs, without: "Seqs") -> Flags:
        in_order = bool((numbers[1:] > numbers[:-1]).all())
        is_new = np.ones(len(numbers), np.bool_)
        if not in_order:
            is_new[:] = False
            is_new[np.unique(numbers, return_index=True)[1]] = True
        for others in (self.ranges.get(key), without.ranges.get(key)):
            if others:
                is_new &= ~others.has(numbers)
        taken = numbers[is_new]
        self.put(key, Ranges.of(taken if in_order else np.sort(taken)))
        return is_new

    def put(self, key: Key, ranges: Ranges) -> None:
        """Add records of one node and run."""
        known = self.ranges.get(key)
        self.ranges[key] = ranges if known is None else known.union(ranges)

    def add(self, other: "Seqs") -> None:
        """Add the records of another."""
        for key, ranges in other.ranges.items():
            self.put(key, ranges)

    def minus(self, other: "Seqs") -> "Seqs":
        """Return the records that the other lacks."""
        none = Ranges(_NONE, _NONE)
        return Seqs({key: mine.minus(other.ranges.get(key, none)) for key, mine in self.ranges.items()})

    def common(self, other: "Seqs") -> "Seqs":
        """Return the records that both have."""
        keys = self.ranges.keys() & other.ranges.keys()
        return Seqs({key: self.ranges[key].common(other.ranges[key]) for key in keys})


def _by_key(batch: pa.RecordBatch) -> list[tuple[Key, Longs | None]]:
    """Return the keys of a batch, and the rows of each; None if all are of one, as they nearly always are."""
    if not len(batch):
        return []
    nodes, runs = Coded(batch.column("node")), Coded(batch.column("run"))
    codes = (nodes.codes + 1) * len(runs.values) + runs.codes

    def key_of(row: int) -> Key:
        node = int(nodes.codes[row])
        return nodes.names[node] if node >= 0 else None, runs.names[int(runs.codes[row])]

    if (codes == codes[0]).all():
        return [(key_of(0), None)]
    return [(key_of(int(rows[0])), rows) for rows in (np.flatnonzero(codes == each) for each in np.unique(codes))]
