"""Calls and orphans of expected cases and random captures, however their messages are split into segments."""

from collections.abc import Iterable
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.pipeline import finalization, spark_schemas
from fiveways.pipeline.pairing import PARTIAL_CALLS, pair_messages
from fiveways.pipeline.segment_decoder import SCHEMAS, ParquetPartWriter, unique_buckets
from tests.support.matching_cases import CASES
from tests.support.random_captures import SPLITS, random_rows, row_counts, split_rows
from tests.support.reference_matching import DAY, Row, message, reference_calls, reference_orphans, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = "pieces.parquet"
CAPTURES = 150
SEGMENTS_PER_ROW_GROUP = 20
"""Segments in one row group; one row group for each segment takes ten times as long to write."""


def rows_of(frame: "DataFrame") -> dict[str, list[Row]]:
    """Return the rows of each run."""
    rows: dict[str, list[Row]] = {}
    for row in frame.toArrow().to_pylist():
        rows.setdefault(row["run"], []).append(row)
    return rows


class MatchedCaptures:
    """Calls and orphans of many captures, each with its own run, computed together."""

    def __init__(self, spark: "SparkSession", segments: Iterable[pa.Table], folder: Path) -> None:
        from fiveways.pipeline.silver.calls import calls  # noqa: PLC0415
        from fiveways.pipeline.silver.orphans import orphans  # noqa: PLC0415

        parquet.write_table(pa.concat_tables(segments), folder / FILE)
        frame = spark.read.parquet(f"file://{folder / FILE}")
        self.calls = rows_of(calls(frame))
        self.orphans = rows_of(orphans(frame))


class FinalizedCaptures:
    """Calls and orphans with finalization: the n-th segment of each capture is in the n-th part."""

    def __init__(self, spark: "SparkSession", captures: Iterable[list[pa.Table]], folder: Path) -> None:
        from fiveways.pipeline.silver.calls import calls  # noqa: PLC0415
        from fiveways.pipeline.silver.orphans import orphans  # noqa: PLC0415

        parts = [
            f"{number:02}"
            for number, segments in enumerate(zip_longest(*captures))
            if _written(segments, number, folder)
        ]
        finalization.finalize(spark, folder, parts, finalization.find_shared_buckets(folder, [], parts))
        shared = spark.read.parquet(f"file://{folder}/_shared")
        self.shared = shared.count()
        self.pieces = sum(len(parquet.read_table(path)) for path in (folder / "_pieces").iterdir())
        for name, function in (("calls", calls), ("orphans", orphans)):
            function(shared).write.mode("append").parquet(f"file://{folder / name}")
        self.calls, self.orphans = (
            rows_of(spark.read.parquet(f"file://{folder / name}")) for name in ("calls", "orphans")
        )


def _written(segments: Iterable[pa.Table | None], number: int, folder: Path) -> bool:
    """Write one part of many captures; return True if it has rows."""
    present = [partial_calls for partial_calls in segments if partial_calls is not None]
    files = {name: ParquetPartWriter(folder / name, f"{number:02}", SCHEMAS[name]) for name in ("_pieces", "_buckets")}
    for at in range(0, len(present), SEGMENTS_PER_ROW_GROUP):
        chunk = present[at : at + SEGMENTS_PER_ROW_GROUP]
        files["_pieces"].write(pa.concat_tables(chunk))
        files["_buckets"].write(pa.concat_tables(map(unique_buckets, chunk)))
    return sum(file.close() for file in files.values()) > 0


@pytest.fixture(scope="module")
def captures() -> dict[str, list[Row]]:
    """Return random captures by run."""
    chance = Random(6)
    return {str(number): random_rows(str(number), chance) for number in range(CAPTURES)}


@pytest.fixture(scope="module")
def segments(captures: dict[str, list[Row]]) -> list[list[pa.Table]]:
    """Return the partial calls of each segment of all split captures; a run is named by capture and split."""
    return [[paired(rows) for rows in capture] for capture in split_captures(captures)]


def paired(rows: list[Row]) -> pa.Table:
    """Return the partial calls of one segment."""
    return pair_messages(table(rows)).cast(PARTIAL_CALLS)


@pytest.fixture(scope="module")
def matched(
    spark: "SparkSession", segments: list[list[pa.Table]], tmp_path_factory: pytest.TempPathFactory
) -> MatchedCaptures:
    """Return the calls and orphans of all captures."""
    return MatchedCaptures(spark, chain.from_iterable(segments), tmp_path_factory.mktemp("pieces"))


def split_captures(captures: dict[str, list[Row]]) -> list[list[list[Row]]]:
    """Return all cases and captures, split in several ways."""
    chance = Random(5)
    messages = {name: case.messages for name, case in CASES.items()} | captures
    return [
        split_rows([row | {"run": f"{name}, {split}"} for row in rows], split, chance)
        for name, rows in messages.items()
        for split in (SPLITS if name in CASES else SPLITS[:2])
    ]


def by_time(row: Row) -> tuple[int, int]:
    return row["requested_at"] or 0, row["forwarded_at"] or 0


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", CASES)
def test_calls_match_expected_rows(matched: MatchedCaptures, name: str, split: str) -> None:
    run = f"{name}, {split}"
    assert sorted(matched.calls.get(run, []), key=by_time) == sorted(CASES[name].with_run(run).calls, key=by_time)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", CASES)
def test_orphans_match_expected_rows(matched: MatchedCaptures, name: str, split: str) -> None:
    run = f"{name}, {split}"
    case = CASES[name].with_run(run)
    expected = [row for row in case.messages if row["seq"] in case.orphans]
    names = [name for name in spark_schemas.ORPHANS.fieldNames() if name != "date"]
    orphans = sorted(matched.orphans.get(run, []), key=lambda row: row["seq"])
    assert orphans == [{"date": DAY} | {name: row[name] for name in names} for row in expected]


@pytest.mark.parametrize("split", SPLITS[:2])
def test_calls_equal_reference_matching(matched: MatchedCaptures, captures: dict[str, list[Row]], split: str) -> None:
    for name, rows in captures.items():
        run = f"{name}, {split}"
        assert row_counts(matched.calls.get(run, [])) == row_counts(
            row | {"run": run} for row in reference_calls(rows)
        ), rows


@pytest.mark.parametrize("split", SPLITS[:2])
def test_orphans_equal_reference_matching(matched: MatchedCaptures, captures: dict[str, list[Row]], split: str) -> None:
    for name, rows in captures.items():
        run = f"{name}, {split}"
        assert row_counts(matched.orphans.get(run, [])) == row_counts(
            row | {"run": run} for row in reference_orphans(rows)
        ), rows


@pytest.mark.parametrize("name", CASES)
def test_reference_matching_gives_expected_rows(name: str) -> None:
    case = CASES[name]
    assert row_counts(reference_calls(case.messages)) == row_counts(case.calls)
    assert sorted(row["seq"] for row in reference_orphans(case.messages)) == list(case.orphans)


def test_random_captures_contain_all_situations(captures: dict[str, list[Row]]) -> None:
    calls = [row for rows in captures.values() for row in reference_calls(rows)]
    assert sum(row["attempts"] > 1 for row in calls) > 30
    assert sum(row["useless"] > 0 for row in calls) > 30
    by_identifier = [row for row in calls if row["op"] is None]
    assert sum(row["answers"] > 0 for row in by_identifier) > 50
    assert sum(row["returns"] > 0 for row in by_identifier) > 50
    assert sum(row["parts"] > 0 for row in by_identifier) > 5
    assert sum(row["cancelled_at"] is not None for row in by_identifier) > 5
    assert sum(len(reference_orphans(rows)) for rows in captures.values()) > 100


def test_finalized_rows_equal_merged_rows(
    spark: "SparkSession", matched: MatchedCaptures, segments: list[list[pa.Table]], tmp_path: Path
) -> None:
    finalized = FinalizedCaptures(spark, segments, tmp_path)
    assert 0.1 < finalized.shared / finalized.pieces < 0.95
    for run in matched.calls | finalized.calls:
        assert row_counts(finalized.calls.get(run, [])) == row_counts(matched.calls.get(run, [])), run
    for run in matched.orphans | finalized.orphans:
        assert row_counts(finalized.orphans.get(run, [])) == row_counts(matched.orphans.get(run, [])), run


def test_equal_hashes_do_not_merge_different_keys(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are the same even if all hashes are equal."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from fiveways.pipeline.silver import call_merging, orphans  # noqa: PLC0415

    for module in (call_merging, orphans):
        monkeypatch.setattr(module, "key_hash", lambda: F.lit(1).cast("long"))
    chance = Random(7)
    captures = {str(number): random_rows(str(number), chance) for number in range(20)}
    segments = [part for rows in captures.values() for part in split_rows(rows, SPLITS[1], chance)]
    matched = MatchedCaptures(spark, [paired(rows) for rows in segments], tmp_path)
    for run, rows in captures.items():
        assert row_counts(matched.calls.get(run, [])) == row_counts(reference_calls(rows))
        assert row_counts(matched.orphans.get(run, [])) == row_counts(reference_orphans(rows))


def test_partial_calls_of_one_segment_are_not_shuffled(spark: "SparkSession", tmp_path: Path) -> None:
    from fiveways.pipeline.silver.calls import calls  # noqa: PLC0415

    parquet.write_table(pair_messages(table([message(1, "in", "call", op="1")])).cast(PARTIAL_CALLS), tmp_path / FILE)
    frame = calls(spark.read.parquet(f"file://{tmp_path / FILE}"))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "SortAggregate" not in plan
    assert "SortMergeJoin" not in plan
    alone = plan.partition("BroadcastExchange")[0]
    assert "LeftAnti" in alone
    assert "Exchange" not in alone
    assert "Aggregate" not in alone
