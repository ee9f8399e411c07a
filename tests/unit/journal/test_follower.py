"""A journal that grows is read on: each record once, whatever becomes of its file meanwhile."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from fiveways.journal.errors import BadSegment
from fiveways.journal.follower import JournalFollower
from fiveways.journal.operation_index import OperationIndex
from fiveways.journal.reader import list_segments
from fiveways.journal.records import count_records, merge_by_time
from fiveways.journal.schema import SCHEMA
from fiveways.journal.segment_closing import close_segment

RUN = "20260101T000000-aaaaaa"


def rows(numbers: Iterable[int], *, run: str = RUN, at: int = 0, op: str | None = None) -> pa.RecordBatch:
    """Records with these numbers, each a ns after the other."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "seq": number,
                "at": at + number,
                "run": run,
                "session": "s",
                "protocol": "lrpm-json",
                "direction": "in",
                "kind": "text",
                "op": op,
                "payload": b"x" * 100,
                "size": 100,
            }
            for number in numbers
        ],
        schema=SCHEMA,
    )


class Segment:
    """An open segment that a test writes."""

    def __init__(self, directory: Path, number: int = 0, run: str = RUN) -> None:
        self.path = directory / f"{run}-{number:06}.arrow"
        self._run = run
        self._file = self.path.open("wb", buffering=0)
        self._stream = ipc.new_stream(self._file, SCHEMA, options=ipc.IpcWriteOptions(compression="lz4"))

    def write(self, *numbers: int) -> None:
        self._stream.write_batch(rows(numbers, run=self._run))

    def close(self) -> None:
        self._stream.close()
        self._file.close()
        close_segment(self.path)

    def let_go(self) -> None:
        self._file.close()


Begin = Callable[..., Segment]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins segments, and lets go of their files in the end."""
    begun = []

    def one(directory: Path, number: int = 0) -> Segment:
        begun.append(Segment(directory, number))
        return begun[-1]

    yield one
    for each in begun:
        each.let_go()


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("seq").to_pylist()]


def skipped(directory: Path) -> JournalFollower:
    """Somebody who has seen all there is."""
    follower = JournalFollower(str(directory))
    assert [numbers(each) for each in follower.read_existing()] == []
    return follower


def test_what_is_there_comes_newest_first_and_then_what_is_new(begin: Begin, tmp_path: Path) -> None:
    first = begin(tmp_path)
    first.write(0, 1)
    first.close()
    second = begin(tmp_path, 1)
    second.write(2)
    second.write(3)
    follower = JournalFollower(str(tmp_path))
    assert [numbers(each) for each in follower.read_existing()] == [[2, 3], [0, 1]]
    assert numbers(follower.read_new()) == []
    second.write(4)
    assert numbers(follower.read_new()) == [4]
    follower.close()


def test_who_wants_nothing_of_the_past_gets_the_news_alone(begin: Begin, tmp_path: Path) -> None:
    segment = begin(tmp_path)
    segment.write(0)
    follower = JournalFollower(str(tmp_path))
    next(follower.read_existing())
    segment.write(1)
    assert numbers(follower.read_new()) == [1]
    follower.close()


def test_a_segment_that_is_closed_meanwhile_is_read_to_its_end_and_not_twice(begin: Begin, tmp_path: Path) -> None:
    follower, segment = skipped(tmp_path), begin(tmp_path)
    segment.write(0)
    assert numbers(follower.read_new()) == [0]
    segment.write(1)
    segment.close()
    assert [each.is_closed for each in list_segments(str(tmp_path))] == [True]
    assert numbers(follower.read_new()) == [1]
    assert numbers(follower.read_new()) == []
    following = begin(tmp_path, 1)
    following.write(2)
    assert numbers(follower.read_new()) == [2]
    follower.close()


def test_a_segment_that_came_and_was_closed_between_two_looks_is_not_missed(begin: Begin, tmp_path: Path) -> None:
    follower = skipped(tmp_path)
    for number in range(3):
        segment = begin(tmp_path, number)
        segment.write(number)
        segment.close()
    assert numbers(follower.read_new()) == [0, 1, 2]
    assert numbers(follower.read_new()) == []


def test_a_segment_that_was_closed_and_deleted_meanwhile_is_read_to_its_end(begin: Begin, tmp_path: Path) -> None:
    follower, segment = skipped(tmp_path), begin(tmp_path)
    segment.write(0)
    assert numbers(follower.read_new()) == [0]
    segment.write(1)
    segment.close()
    segment.path.with_suffix(".parquet").unlink()
    assert numbers(follower.read_new()) == [1]
    assert numbers(follower.read_new()) == []


def test_while_both_files_are_there_nothing_comes_twice(begin: Begin, tmp_path: Path) -> None:
    follower, segment = skipped(tmp_path), begin(tmp_path)
    segment.write(0, 1)
    assert numbers(follower.read_new()) == [0, 1]
    kept = tmp_path / ".kept"
    shutil.copy(segment.path, kept)
    segment.close()
    shutil.copy(kept, segment.path)
    assert numbers(follower.read_new()) == []


def test_a_torn_end_is_waited_for_at_every_byte(begin: Begin, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    segment = begin(whole)
    segment.write(0)
    begun = segment.path.stat().st_size
    segment.write(1)
    data = segment.path.read_bytes()
    growing = tmp_path / "growing"
    growing.mkdir()
    path = growing / segment.path.name
    follower, found = JournalFollower(str(growing)), []
    for end in (*range(0, begun, 97), *range(begun, len(data), 41), len(data)):
        with path.open("ab") as file:
            file.write(data[path.stat().st_size : end])
        found += [(end, number) for number in numbers(follower.read_new())]
    assert [number for _, number in found] == [0, 1]
    assert begun <= found[0][0] < begun + 41
    assert found[1][0] == len(data)
    follower.close()


def test_files_of_others_are_taken_as_they_come(tmp_path: Path) -> None:
    follower = skipped(tmp_path)
    for name in ("b", "a"):
        parquet.write_table(pa.Table.from_batches([rows([0, 1])]), tmp_path / f"{name}.parquet")
        assert numbers(follower.read_new()) == [0, 1]
    assert numbers(follower.read_new()) == []


def test_a_broken_file_is_told_of(tmp_path: Path) -> None:
    follower = skipped(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadSegment, match=r"a\.parquet"):
        list(follower.read_new())


def test_records_come_in_the_order_in_which_things_happened(tmp_path: Path) -> None:
    for name, at in (("one", 100), ("two", 102), ("late", 1000)):
        table = pa.Table.from_batches([rows([0, 1, 3, 2, 9], run=name, at=at)])
        parquet.write_table(table, tmp_path / f"{name}-000000.parquet")
    found = list_segments(str(tmp_path))
    order = [(each.run, each.seq) for each in merge_by_time(found)]
    assert [seq for run, seq in order if run == "one"] == [0, 1, 2, 3, 9]
    assert [run for run, _ in order[:3]] == ["one", "one", "one"]
    assert [run for run, _ in order[-5:]] == ["late"] * 5
    times = [each.at for each in merge_by_time(found)]
    assert times == sorted(times)
    assert [each.at for each in merge_by_time(found, (103, 110))] == [at for at in times if 103 <= at < 110]
    assert count_records(found) == 15


def test_an_operation_is_found_in_all_its_runs_the_latest_first(tmp_path: Path) -> None:
    for run, at, op in (("a", 500, "7"), ("b", 100, "- 7"), ("c", 900, "77"), ("d", 950, None)):
        table = pa.Table.from_batches([rows([0], run=run, at=at, op=op)])
        parquet.write_table(table, tmp_path / f"{run}-000000.parquet")
    found = OperationIndex(str(tmp_path), "7")
    assert found.runs == ["a", "b"]
    assert [each.op for each in found.records("b")] == ["- 7"]
    assert OperationIndex(str(tmp_path), "7", "b").runs == ["b"]
    assert OperationIndex(str(tmp_path), "8").runs == []
