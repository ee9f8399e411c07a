"""The tables that the pipeline makes of a made-up capture are exactly those that its plan tells."""

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
"""What is a sentence for people."""


class SampleRun:
    """A capture of two runs that goes over midnight, what is true of it, and what the pipeline makes of it."""

    def __init__(self, folder: Path, spark: "SparkSession", *, ops: bool) -> None:
        self._folder = folder
        start = MIDNIGHT - 120 * SECOND
        for seed, run in enumerate(("first", "second"), start=1):
            # The same numbers stand for other operations in another run.
            options = Options(FRAMES, seed, run, ops, segment=7000, start=start, span=300.0, block=20_000)
            generate(folder / "journal", folder / "truth" / run, options)
        batch_run.run(batch_run.RunOptions(str(folder / "journal"), folder / "tables"), spark=spark)

    def wanted(self, table: str) -> pa.Table:
        paths = [self._folder / "truth" / run / f"{table}.parquet" for run in ("first", "second")]
        return pa.concat_tables(map(pq.read_table, paths))

    def found(self, table: str) -> pa.Table:
        return pq.read_table(self._folder / "tables" / table)


@pytest.fixture(scope="module", params=[True, False], ids=["with operations", "without operations"])
def made(request: pytest.FixtureRequest, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> SampleRun:
    return SampleRun(tmp_path_factory.mktemp("truth"), spark, ops=request.param)


def rows_of(table: pa.Table, names: Sequence[str]) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("table", TABLES)
def test_table_equals_expected_rows(made: SampleRun, table: str) -> None:
    wanted, found = made.wanted(table), made.found(table)
    names = [name for name in wanted.schema.names if name not in FREE.get(table, ())]
    want, have = rows_of(wanted, names), rows_of(found, names)
    assert [dict(zip(names, row, strict=True)) for row in list(have - want)[:3]] == []
    assert [dict(zip(names, row, strict=True)) for row in list(want - have)[:3]] == []


def test_truncated_and_omitted_payloads_have_their_reasons(made: SampleRun) -> None:
    wanted = {(row["run"], row["seq"]): row["reason"] for row in made.wanted("quarantine").to_pylist() if row["reason"]}
    found = {(row["run"], row["seq"]): row["reason"] for row in made.found("quarantine").to_pylist()}
    assert set(wanted.values()) == {"payload cut", "payload left out"}
    assert {key: found[key] for key in wanted} == wanted
    assert all(found.values())


def test_sample_contains_every_outcome_and_reason(made: SampleRun) -> None:
    calls = made.wanted("calls")
    outcomes = "result failed not_executed timeout lost cancelled unanswered"
    assert set(calls["outcome"].to_pylist()) == set(outcomes.split())
    reasons = "no_such_method unavailable denied bad_arguments overloaded too_large timeout lost cancelled raised"
    assert set(calls["reason"].to_pylist()) == {None, *reasons.split()}
    assert set(calls["date"].to_pylist()) == {"2026-03-02", "2026-03-03"}
