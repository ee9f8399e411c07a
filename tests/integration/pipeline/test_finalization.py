"""Finalization of rows with one segment, and its repetition; `test_call_matching` tests the rows."""

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
"""An operation in another bucket than the first ones."""


def journal(folder: Path, *segments: Iterable[int], builder: RecordBuilder | None = None) -> list[Path]:
    builder, paths = builder or RecordBuilder(), []
    for number, ops in enumerate(segments, 1):
        start = len(builder.records)
        builder.add_calls(ops)
        paths.append(captures.write_segment(folder, builder.records[start:], number))
    return paths


def decode_segments(folder: Path, *segments: Iterable[int]) -> Path:
    """Decode segments directory parts a, b, c ...; return their directory."""
    directory = folder / "next"
    for part, path in zip("abc", journal(folder / "journal", *segments), strict=False):
        segment_decoder.decode_segment(segment_decoder.DecodeTask(str(path), part, str(directory)))
    return directory


def test_segments_without_shared_buckets_are_finalized_completely(spark: SparkSession, tmp_path: Path) -> None:
    directory = decode_segments(tmp_path, range(5), range(FAR, FAR + 5))
    shared_buckets = finalization.find_shared_buckets(directory, [], ["a", "b"])
    assert (shared_buckets.buckets.tolist(), shared_buckets.changed_parts) == ([], frozenset())
    finalization.finalize(spark, directory, ["a", "b"], shared_buckets)
    assert sorted(path.name for path in (directory / "calls").iterdir()) == [
        "2026-03-03-of-a.parquet",
        "2026-03-03-of-b.parquet",
    ]
    assert len(parquet.read_table(directory / "calls")) == 10
    assert not (directory / finalization.PARTIAL_CALLS_TABLE).exists()


def test_newly_shared_bucket_changes_the_older_part(tmp_path: Path) -> None:
    directory = decode_segments(tmp_path, range(5), range(FAR, FAR + 5), range(5, 10))
    shared_buckets = finalization.find_shared_buckets(directory, ["a", "b"], ["c"])
    assert len(shared_buckets.buckets) == 1
    assert shared_buckets.changed_parts == {"a"}
    again = finalization.find_shared_buckets(directory, ["a", "b", "c"], [])
    assert (again.buckets.tolist(), again.changed_parts) == (shared_buckets.buckets.tolist(), frozenset())


def test_merged_part_keeps_its_shared_buckets(tmp_path: Path) -> None:
    directory = decode_segments(tmp_path, range(5), range(FAR, FAR + 5), range(5, 10))
    before = finalization.find_shared_buckets(directory, ["a", "b", "c"], [])
    segment_decoder.merge_parts("m", ["a", "c"], str(directory))
    after = finalization.find_shared_buckets(directory, ["m", "b"], [])
    assert (after.buckets.tolist(), after.changed_parts) == (before.buckets.tolist(), frozenset())


@pytest.mark.usefixtures("few_tables")
def test_finalized_files_stay_until_a_segment_shares_their_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """Add a segment without shared buckets, then one that continues the first."""
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
    assert list(third.items()) == [file for file in second.items() if file != first]
    assert captures.count_rows(out, "calls", outcome="unanswered") == 0
