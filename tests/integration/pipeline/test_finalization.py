"""What is finalized where a segment was read, and when it is finalized anew; `test_calls` has that the rows are right."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from fiveways.pipeline import batch_run, finalization, segment_decoder
from fiveways.pipeline.batch_run import RunOptions
from tests.support import captures
from tests.support.captures import RecordBuilder

FAR = 1_000_000
"""An operation that shares a bucket with none of the first ones."""


def journal(folder: Path, *segments: Iterable[int], builder: RecordBuilder | None = None) -> list[Path]:
    builder, paths = builder or RecordBuilder(), []
    for number, ops in enumerate(segments, 1):
        start = len(builder.records)
        builder.add_calls(ops)
        paths.append(captures.write_segment(folder, builder.records[start:], number))
    return paths


def decode_segments(folder: Path, *segments: Iterable[int]) -> Path:
    """Read segments into parts a, b, c ...; return where these are."""
    into = folder / "next"
    for part, path in zip("abc", journal(folder / "journal", *segments), strict=False):
        segment_decoder.decode_segment(segment_decoder.DecodeTask(str(path), part, str(into)))
    return into


def test_segments_without_shared_buckets_are_finalized_completely(spark: SparkSession, tmp_path: Path) -> None:
    into = decode_segments(tmp_path, range(5), range(FAR, FAR + 5))
    shared_buckets = finalization.find_shared_buckets(into, [], ["a", "b"])
    assert (shared_buckets.buckets.tolist(), shared_buckets.changed_parts) == ([], frozenset())
    finalization.finalize(spark, into, ["a", "b"], shared_buckets)
    assert sorted(path.name for path in (into / "calls").iterdir()) == [
        "2026-03-03-of-a.parquet",
        "2026-03-03-of-b.parquet",
    ]
    assert len(parquet.read_table(into / "calls")) == 10
    assert not (into / finalization.PARTIAL_CALLS_TABLE).exists()


def test_newly_shared_bucket_changes_the_older_part(tmp_path: Path) -> None:
    into = decode_segments(tmp_path, range(5), range(FAR, FAR + 5), range(5, 10))
    shared_buckets = finalization.find_shared_buckets(into, ["a", "b"], ["c"])
    assert len(shared_buckets.buckets) == 1
    assert shared_buckets.changed_parts == {"a"}
    again = finalization.find_shared_buckets(into, ["a", "b", "c"], [])
    assert (again.buckets.tolist(), again.changed_parts) == (shared_buckets.buckets.tolist(), frozenset())


def test_merged_part_keeps_its_shared_buckets(tmp_path: Path) -> None:
    into = decode_segments(tmp_path, range(5), range(FAR, FAR + 5), range(5, 10))
    before = finalization.find_shared_buckets(into, ["a", "b", "c"], [])
    segment_decoder.merge_parts("m", ["a", "c"], str(into))
    after = finalization.find_shared_buckets(into, ["m", "b"], [])
    assert (after.buckets.tolist(), after.changed_parts) == (before.buckets.tolist(), frozenset())


@pytest.mark.usefixtures("few_tables")
def test_finalized_files_stay_until_a_segment_shares_their_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """A segment that shares nothing comes, then one that goes on with the first."""
    folder, out, builder = tmp_path / "journal", tmp_path / "out", RecordBuilder()

    def step() -> dict[str, int]:
        batch_run.run(RunOptions(str(folder), out), spark=spark)
        assert captures.count_rows(out, "calls") == len(set(parquet.read_table(out / "calls")["op"].to_pylist()))
        return {path.name: path.stat().st_ino for path in (out / "calls").glob("*-of-*")}

    builder.add_calls(range(5))
    builder.add_request(5)
    captures.write_segment(folder, builder.records, 1)
    (first,) = step().items()
    start = len(builder.records)
    builder.add_calls(range(FAR, FAR + 5))
    captures.write_segment(folder, builder.records[start:], 2)
    second = step()
    assert first in second.items()
    assert len(second) == 2
    assert captures.count_rows(out, "calls", outcome="unanswered") == 1
    start = len(builder.records)
    builder.add_response(5)
    captures.write_segment(folder, builder.records[start:], 3)
    third = step()
    assert list(third.items()) == [each for each in second.items() if each != first]
    assert captures.count_rows(out, "calls", outcome="unanswered") == 0
