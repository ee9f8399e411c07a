"""The tables of a sample capture equal the expected tables that its generator writes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fiveways.pipeline import batch_run
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import DAY, SECOND, Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES: Final = 30_000
MIDNIGHT: Final = 20_515 * DAY
TABLES: Final = ("calls", "orphans", "quarantine", "deliveries", "sessions")
FREE: Final = {"quarantine": {"reason"}}
"""Columns with texts for people, which are not compared."""


class SampleRun:
    """A sample capture of two runs over midnight, its expected tables, and those of the pipeline."""

    def __init__(self, folder: Path, spark: "SparkSession", *, ops: bool) -> None:
        self._folder = folder
        start = MIDNIGHT - 120 * SECOND
        for seed, run in enumerate(("first", "second"), start=1):
            # Both runs use the same numbers for different operations.
            options = Options(FRAMES, seed, run, ops, segment=7000, start=start, span=300.0, block=20_000)
            generate(folder / "journal", folder / "truth" / run, options)
        batch_run.run(batch_run.RunOptions(str(folder / "journal"), folder / "tables"), spark=spark)

    def expected(self, table: str) -> pa.Table:
        paths = [self._folder / "truth" / run / f"{table}.parquet" for run in ("first", "second")]
        return pa.concat_tables(map(pq.read_table, paths))

    def actual(self, table: str) -> pa.Table:
        return pq.read_table(self._folder / "tables" / table)


@pytest.fixture(scope="module", params=[True, False], ids=["with operations", "without operations"])
def sample_run(
    request: pytest.FixtureRequest, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> SampleRun:
    return SampleRun(tmp_path_factory.mktemp("truth"), spark, ops=request.param)


def rows_of(table: pa.Table, names: Sequence[str]) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("table", TABLES)
def test_table_equals_expected_rows(sample_run: SampleRun, table: str) -> None:
    expected, actual = sample_run.expected(table), sample_run.actual(table)
    names = [name for name in expected.schema.names if name not in FREE.get(table, ())]
    expected_rows, rows = rows_of(expected, names), rows_of(actual, names)
    assert [dict(zip(names, row, strict=True)) for row in list(rows - expected_rows)[:3]] == []
    assert [dict(zip(names, row, strict=True)) for row in list(expected_rows - rows)[:3]] == []


def test_truncated_and_omitted_payloads_have_their_reasons(sample_run: SampleRun) -> None:
    expected = {
        (row["run"], row["seq"]): row["reason"]
        for row in sample_run.expected("quarantine").to_pylist()
        if row["reason"]
    }
    actual = {(row["run"], row["seq"]): row["reason"] for row in sample_run.actual("quarantine").to_pylist()}
    assert set(expected.values()) == {"payload cut", "payload left out"}
    assert {key: actual[key] for key in expected} == expected
    assert all(actual.values())


def test_sample_contains_every_outcome_and_reason(sample_run: SampleRun) -> None:
    calls = sample_run.expected("calls")
    outcomes = "result failed not_executed timeout lost cancelled unanswered"
    assert set(calls["outcome"].to_pylist()) == set(outcomes.split())
    reasons = "no_such_method unavailable denied bad_arguments overloaded too_large timeout lost cancelled raised"
    assert set(calls["reason"].to_pylist()) == {None, *reasons.split()}
    assert set(calls["date"].to_pylist()) == {"2026-03-02", "2026-03-03"}
