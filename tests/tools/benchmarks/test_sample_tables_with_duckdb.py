"""An independent reading of a sample capture: DuckDB, with string functions only, finds the expected calls."""

from pathlib import Path

from benchmarks.pipeline import duckdb_job
from benchmarks.pipeline.captures import Capture
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import TEXTS, Options


def test_duckdb_finds_the_expected_calls(tmp_path: Path) -> None:
    capture = Capture(12_000, tmp_path / "journal", tmp_path / "truth")
    generate(capture.journal, capture.truth, Options(12_000, encodings=TEXTS, plain=True, segment=5000))
    duckdb_job.core(capture, tmp_path / "out")
    assert duckdb_job.differences(f"{tmp_path}/out/calls.parquet", f"{tmp_path}/truth/calls.parquet", "calls") == ""


def test_differences_are_reported(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "other")):
        generate(tmp_path / name, tmp_path / name / "truth", Options(4000, seed, encodings=TEXTS, plain=True))
    differences = duckdb_job.differences(
        f"{tmp_path}/one/truth/calls.parquet", f"{tmp_path}/other/truth/calls.parquet", "calls"
    )
    assert differences.startswith("calls: ")
