"""Invalid input gives a one-line error with file and column, exit code 1, and unchanged tables."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.cli import main
from fiveways.pipeline import spark_session
from fiveways.pipeline.state import PipelineState, SegmentRecord
from fiveways.pipeline.table_directory import TableDirectory
from tests.support import captures
from tests.support.captures import RecordBuilder


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    builder = RecordBuilder()
    builder.add_calls(range(3))
    captures.write_segment(tmp_path / "journal", builder.records, 1)
    return tmp_path / "journal"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Spark is started: invalid input is found before."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_session, "start_spark", refuse)
    monkeypatch.setattr(spark_session, "require_spark", lambda **_: None)


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    parquet.write_table(change(parquet.read_table(path)), path)


def without(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([name])


def cast(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        return table.set_column(index, name, table.column(name).cast(kind))

    return change


def run(journal: Path, *more: str) -> int:
    return main(["pipeline", "run", "--journal", str(journal), "--out", str(journal.parent / "out"), *more])


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("fiveways pipeline: ")
    return shown.err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("session"), "has no column session"),
        (without("payload"), "has no column payload"),
        (cast("at", pa.string()), "the column at is string, expected int64"),
        (cast("size", pa.float64()), "the column size is double, expected int32"),
    ],
)
def test_invalid_column_is_named_with_its_file(
    journal: Path, change: Callable[[pa.Table], pa.Table], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal / "r1-000001.parquet"
    rewrite(path, change)
    assert run(journal) == 1
    error = error_line(capsys)
    assert expected in error
    assert str(path) in error


@pytest.mark.parametrize("left", [0, 4, 100, -8])
def test_truncated_file_is_named(journal: Path, left: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = journal / "r1-000001.parquet"
    path.write_bytes(path.read_bytes()[:left])
    assert run(journal) == 1
    assert str(path) in error_line(capsys)


def test_missing_or_empty_journal_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nowhere") == 1
    assert str(tmp_path / "nowhere") in error_line(capsys)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "r1-000001.arrow").write_bytes(b"")
    assert run(tmp_path / "empty") == 1
    assert f"{tmp_path}/empty has no closed segment" in error_line(capsys)


def test_watch_reports_empty_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    arguments = ["pipeline", "watch", "--journal", str(tmp_path / "empty"), "--out", str(tmp_path / "o"), "--until-end"]
    assert main(arguments) == 1
    assert "has no closed segment" in error_line(capsys)


def write_tables(journal: Path, size: int | None = None) -> Path:
    """Write tables that were made from the journal's segment when it had this size."""
    out = TableDirectory(journal.parent / "out")
    current = (journal / "r1-000001.parquet").stat().st_size
    record = SegmentRecord(name="r1-000001", size=current if size is None else size, records=12, first_at=0, last_at=0)
    with out.lock():
        out.begin_next()
        out.commit(PipelineState(journal=str(journal), segments=[record], rows={"messages": 12}))
    return out.path


def test_existing_tables_are_unchanged_after_bad_input(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = write_tables(journal)
    before = (out / "_run.json").stat()
    (journal / "r1-000002.parquet").write_bytes(b"PAR1 and no more")
    assert run(journal) == 1
    assert "r1-000002.parquet" in error_line(capsys)
    after = (out / "_run.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert captures.leftover_files(out) == []


def test_run_without_new_segments_succeeds(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(journal)
    assert run(journal) == 0
    assert capsys.readouterr().out.startswith("no new segments; 12 messages")


def test_changed_segment_is_reported(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(journal, size=5)
    assert run(journal) == 1
    assert "has changed since it was read (then 5 bytes" in error_line(capsys)


def test_tables_of_another_journal_are_rejected(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(journal)
    moved = journal.rename(journal.parent / "moved")
    assert run(moved) == 1
    assert f"was made from {journal}; use --full to rebuild it from {moved}" in error_line(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "yesterday"],
        ["--from", "2026-05-02", "--to", "2026-05-01"],
        ["--conf", "spark.ui.enabled"],
        ["--out"],
    ],
)
def test_usage_error_exits_with_2(journal: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(journal, *arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
