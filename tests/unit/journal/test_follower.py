"""Following a growing journal: each record is read once, even if its file is closed or deleted meanwhile."""

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
    """Return records with these numbers, one nanosecond apart."""
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

    def release(self) -> None:
        self._file.close()


OpenSegment = Callable[..., Segment]


@pytest.fixture
def open_new() -> Iterator[OpenSegment]:
    """Factory of open segments, which closes their files at the end."""
    segments = []

    def open_segment(directory: Path, number: int = 0) -> Segment:
        segments.append(Segment(directory, number))
        return segments[-1]

    yield open_segment
    for segment in segments:
        segment.release()


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("seq").to_pylist()]


def new_follower(directory: Path) -> JournalFollower:
    """Return a follower of an empty journal."""
    follower = JournalFollower(str(directory))
    assert [numbers(batches) for batches in follower.read_existing()] == []
    return follower


def test_existing_segments_come_newest_first_before_new_records(open_new: OpenSegment, tmp_path: Path) -> None:
    first = open_new(tmp_path)
    first.write(0, 1)
    first.close()
    second = open_new(tmp_path, 1)
    second.write(2)
    second.write(3)
    follower = JournalFollower(str(tmp_path))
    assert [numbers(batches) for batches in follower.read_existing()] == [[2, 3], [0, 1]]
    assert numbers(follower.read_new()) == []
    second.write(4)
    assert numbers(follower.read_new()) == [4]
    follower.close()


def test_read_new_skips_existing_records(open_new: OpenSegment, tmp_path: Path) -> None:
    segment = open_new(tmp_path)
    segment.write(0)
    follower = JournalFollower(str(tmp_path))
    next(follower.read_existing())
    segment.write(1)
    assert numbers(follower.read_new()) == [1]
    follower.close()


def test_segment_closed_meanwhile_is_read_once_to_its_end(open_new: OpenSegment, tmp_path: Path) -> None:
    follower, segment = new_follower(tmp_path), open_new(tmp_path)
    segment.write(0)
    assert numbers(follower.read_new()) == [0]
    segment.write(1)
    segment.close()
    assert [segment.is_closed for segment in list_segments(str(tmp_path))] == [True]
    assert numbers(follower.read_new()) == [1]
    assert numbers(follower.read_new()) == []
    following = open_new(tmp_path, 1)
    following.write(2)
    assert numbers(follower.read_new()) == [2]
    follower.close()


def test_segments_closed_between_two_polls_are_read(open_new: OpenSegment, tmp_path: Path) -> None:
    follower = new_follower(tmp_path)
    for number in range(3):
        segment = open_new(tmp_path, number)
        segment.write(number)
        segment.close()
    assert numbers(follower.read_new()) == [0, 1, 2]
    assert numbers(follower.read_new()) == []


def test_segment_deleted_meanwhile_is_read_to_its_end(open_new: OpenSegment, tmp_path: Path) -> None:
    follower, segment = new_follower(tmp_path), open_new(tmp_path)
    segment.write(0)
    assert numbers(follower.read_new()) == [0]
    segment.write(1)
    segment.close()
    segment.path.with_suffix(".parquet").unlink()
    assert numbers(follower.read_new()) == [1]
    assert numbers(follower.read_new()) == []


def test_segment_that_is_both_open_and_closed_is_read_once(open_new: OpenSegment, tmp_path: Path) -> None:
    follower, segment = new_follower(tmp_path), open_new(tmp_path)
    segment.write(0, 1)
    assert numbers(follower.read_new()) == [0, 1]
    copy = tmp_path / ".kept"
    shutil.copy(segment.path, copy)
    segment.close()
    shutil.copy(copy, segment.path)
    assert numbers(follower.read_new()) == []


def test_incomplete_batch_is_read_when_complete(open_new: OpenSegment, tmp_path: Path) -> None:
    complete = tmp_path / "whole"
    complete.mkdir()
    segment = open_new(complete)
    segment.write(0)
    complete_size = segment.path.stat().st_size
    segment.write(1)
    data = segment.path.read_bytes()
    growing = tmp_path / "growing"
    growing.mkdir()
    path = growing / segment.path.name
    follower, read = JournalFollower(str(growing)), []
    for end in (*range(0, complete_size, 97), *range(complete_size, len(data), 41), len(data)):
        with path.open("ab") as file:
            file.write(data[path.stat().st_size : end])
        read += [(end, number) for number in numbers(follower.read_new())]
    assert [number for _, number in read] == [0, 1]
    assert complete_size <= read[0][0] < complete_size + 41
    assert read[1][0] == len(data)
    follower.close()


def test_foreign_files_are_read_in_order_of_arrival(tmp_path: Path) -> None:
    follower = new_follower(tmp_path)
    for name in ("b", "a"):
        parquet.write_table(pa.Table.from_batches([rows([0, 1])]), tmp_path / f"{name}.parquet")
        assert numbers(follower.read_new()) == [0, 1]
    assert numbers(follower.read_new()) == []


def test_damaged_file_raises_bad_segment(tmp_path: Path) -> None:
    follower = new_follower(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadSegment, match=r"a\.parquet"):
        list(follower.read_new())


def test_records_are_merged_by_time(tmp_path: Path) -> None:
    for name, at in (("one", 100), ("two", 102), ("late", 1000)):
        table = pa.Table.from_batches([rows([0, 1, 3, 2, 9], run=name, at=at)])
        parquet.write_table(table, tmp_path / f"{name}-000000.parquet")
    segments = list_segments(str(tmp_path))
    order = [(record.run, record.seq) for record in merge_by_time(segments)]
    assert [seq for run, seq in order if run == "one"] == [0, 1, 2, 3, 9]
    assert [run for run, _ in order[:3]] == ["one", "one", "one"]
    assert [run for run, _ in order[-5:]] == ["late"] * 5
    times = [record.at for record in merge_by_time(segments)]
    assert times == sorted(times)
    assert [record.at for record in merge_by_time(segments, (103, 110))] == [at for at in times if 103 <= at < 110]
    assert count_records(segments) == 15


def test_operation_index_lists_runs_latest_first(tmp_path: Path) -> None:
    for run, at, op in (("a", 500, "7"), ("b", 100, "- 7"), ("c", 900, "77"), ("d", 950, None)):
        table = pa.Table.from_batches([rows([0], run=run, at=at, op=op)])
        parquet.write_table(table, tmp_path / f"{run}-000000.parquet")
    index = OperationIndex(str(tmp_path), "7")
    assert index.runs == ["a", "b"]
    assert [record.op for record in index.records("b")] == ["- 7"]
    assert OperationIndex(str(tmp_path), "7", "b").runs == ["b"]
    assert OperationIndex(str(tmp_path), "8").runs == []
