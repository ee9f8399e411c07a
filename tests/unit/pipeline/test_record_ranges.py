"""Ranges of records, compared with sets."""

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.pipeline.record_ranges import SCHEMA, IntRanges, RecordRanges

Record = tuple[str | None, str, int]


def ranges(numbers: set[int]) -> IntRanges:
    return IntRanges.from_sorted(np.array(sorted(numbers), np.int64))


def numbers(int_ranges: IntRanges) -> set[int]:
    pairs = list(zip(int_ranges.first.tolist(), int_ranges.last.tolist(), strict=True))
    assert pairs == sorted(pairs)
    assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(pairs))
    return {number for first, last in pairs for number in range(first, last + 1)}


def batch(records: list[Record]) -> pa.RecordBatch:
    nodes, runs, seqs = zip(*records, strict=True) if records else ((), (), ())
    columns = [
        pa.array(nodes, pa.string()).dictionary_encode(),
        pa.array(runs, pa.string()),
        pa.array(seqs, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["node", "run", "seq"])


def new_records(known: RecordRanges, records: list[Record], excluded: RecordRanges | None = None) -> list[Record]:
    added = known.add_new(batch(records), excluded or RecordRanges())
    return list(zip(*(added.column(name).to_pylist() for name in ("node", "run", "seq")), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_range_operations_equal_set_operations(seed: int) -> None:
    chance = Random(seed)
    one, other = ({chance.randrange(40) for _ in range(chance.randrange(30))} for _ in range(2))
    assert numbers(ranges(one)) == one
    assert numbers(ranges(one).union(ranges(other))) == one | other
    assert numbers(ranges(one).difference(ranges(other))) == one - other
    assert numbers(ranges(one).intersection(ranges(other))) == one & other
    every = np.arange(-1, 41)
    assert set(every[ranges(one).contains(every)].tolist()) == one


@pytest.mark.parametrize("seed", range(20))
def test_each_record_is_new_once(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    keys: list[tuple[str | None, str]] = [("n", "r"), ("n", "r2"), (None, "r"), ("m", "r")][: chance.randint(1, 4)]
    seqs, seen, left_out = RecordRanges(), set[Record](), RecordRanges()
    others = [(*chance.choice(keys), chance.randrange(50)) for _ in range(chance.randrange(20))]
    new_records(left_out, others)
    for _ in range(4):
        records = [(*chance.choice(keys), chance.randrange(50)) for _ in range(chance.randrange(30))]
        if chance.random() < 0.5:
            records.sort(key=lambda record: record[2])
        expected = [record for record in dict.fromkeys(records) if record not in seen and record not in others]
        assert new_records(seqs, records, left_out) == expected
        seen.update(expected)
    parquet.write_table(seqs.to_table(), tmp_path / "one.parquet")
    assert seqs.to_table().schema == SCHEMA
    back = RecordRanges.read([tmp_path / "one.parquet", tmp_path / "none.parquet"])
    assert new_records(back, sorted(seen, key=repr)) == []
    assert bool(back) == bool(seen)
    assert not back.difference(seqs)
    assert bool(back.intersection(left_out)) is False


def test_records_of_another_run_or_node_are_different() -> None:
    seqs = RecordRanges()
    assert new_records(seqs, [("n", "r", 1), ("n", "r", 2)]) == [("n", "r", 1), ("n", "r", 2)]
    assert new_records(seqs, [("n", "r2", 1), ("m", "r", 2), (None, "r", 2), ("n", "r", 2)]) == [
        ("n", "r2", 1),
        ("m", "r", 2),
        (None, "r", 2),
    ]
