"""Reading of tables for the report."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fiveways.pipeline.report.table_reader import (
    CALL_COLUMNS,
    TABLE_COLUMNS,
    ReportError,
    ReportTables,
    TablesChanged,
    schema,
)
from fiveways.pipeline.tables import TABLES
from tests.support import report_tables


def test_required_columns_exist_in_the_tables() -> None:
    gold = {name for name, table in TABLES.items() if table.layer == "gold"}
    assert set(TABLE_COLUMNS) == gold
    for name in TABLE_COLUMNS:
        own, written = schema(TABLE_COLUMNS[name]).names, list(TABLES[name].columns)
        assert [column for column in own if column not in written] == [], name
        assert report_tables.schema(name).names == written, name
    assert set(schema(CALL_COLUMNS).names) <= set(TABLES["calls"].columns)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_date_is_read_from_file_or_path(tmp_path: Path, is_partitioned: bool) -> None:
    rows = [report_tables.frames(), {**report_tables.frames(5), "date": "2026-03-04"}]
    report_tables.write(tmp_path, "traffic", rows, is_partitioned=is_partitioned)
    traffic = ReportTables(tmp_path)["traffic"]
    assert sorted(traffic.column("date").to_pylist()) == ["2026-03-03", "2026-03-04"]
    assert traffic.column("frames").to_pylist() == [600, 600]


def test_hidden_and_non_parquet_files_are_ignored(tmp_path: Path) -> None:
    report_tables.write(tmp_path, "traffic", [report_tables.frames()])
    (tmp_path / "traffic" / "_SUCCESS").touch()
    (tmp_path / "traffic" / ".part-1.parquet").write_bytes(b"half")
    (tmp_path / "traffic" / "_temporary").mkdir()
    (tmp_path / "traffic" / "_temporary" / "part-0.parquet").write_bytes(b"half")
    assert ReportTables(tmp_path)["traffic"].num_rows == 1


@pytest.mark.parametrize(
    ("kind", "unit"), [(pa.timestamp("ns"), 10**9), (pa.timestamp("us", "UTC"), 10**6), (pa.timestamp("ms"), 1000)]
)
def test_timestamps_may_have_any_unit(tmp_path: Path, kind: pa.DataType, unit: int) -> None:
    table = pa.Table.from_pylist([dict(report_tables.frames())]).set_column(0, "minute", pa.array([60 * unit], kind))
    (tmp_path / "traffic").mkdir()
    pq.write_table(table, tmp_path / "traffic" / "a.parquet", version="2.6")
    assert ReportTables(tmp_path)["traffic"].column("minute").cast(pa.int64()).to_pylist() == [60]


def test_missing_table_is_empty_with_a_note(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path)
    tables = ReportTables(tmp_path)
    assert tables["slo"].num_rows == 0
    assert tables.note("slo") == "The output has no table slo."


def test_table_without_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "slo").mkdir()
    tables = ReportTables(tmp_path)
    assert tables["slo"].num_rows == 0
    assert tables.note("slo") == ""


def test_missing_or_mistyped_column_is_named(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path)
    for name in ("traffic", "slo"):
        (tmp_path / name).mkdir()
    pq.write_table(pa.table({"date": ["x"], "protocol": ["umq"]}), tmp_path / "traffic" / "a.parquet")
    wrong = (
        report_tables.schema("slo")
        .empty_table()
        .drop_columns("calls")
        .append_column("calls", pa.array([], pa.string()))
    )
    pq.write_table(wrong, tmp_path / "slo" / "a.parquet")
    tables = ReportTables(tmp_path)
    assert tables.note("traffic").startswith("The table traffic has no column minute; ")
    assert tables.note("slo").startswith("The table slo has a column calls of type string; ")
    assert tables["traffic"].num_rows == 0


def test_damaged_file_is_named(tmp_path: Path) -> None:
    report_tables.write(tmp_path, "slo", [report_tables.slo()])
    path = tmp_path / "slo" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReportError, match=r"cannot read .*slo/part-0\.parquet as Parquet: "):
        ReportTables(tmp_path)["slo"]


@pytest.mark.parametrize(("text", "error"), [("{", "is not JSON"), ("[]", "is not a JSON object")])
def test_invalid_run_state_is_rejected(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "_run.json").write_text(text)
    with pytest.raises(ReportError, match=error):
        ReportTables(tmp_path)


def test_directory_without_tables_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(ReportError, match=r"has no tables of the pipeline, neither _run\.json nor a table"):
        ReportTables(tmp_path)
    with pytest.raises(ReportError, match="missing does not exist"):
        ReportTables(tmp_path / "missing")


def test_run_number_is_a_number_or_the_length_of_a_list(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path, late=3, segments=[{}, {}], quarantined="many", full=True)
    tables = ReportTables(tmp_path)
    numbers = [tables.run_number(segment) for segment in ("late", "segments", "quarantined", "full", "missing")]
    assert numbers == [3, 2, None, None, None]


def test_replaced_tables_are_detected(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path)
    tables = ReportTables(tmp_path)
    tables.check_unchanged()
    report_tables.write_run_state(tmp_path, late=1)
    with pytest.raises(TablesChanged):
        tables.check_unchanged()


def test_calls_are_read_unless_missing_or_too_many(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path)
    assert ReportTables(tmp_path).calls(10) is None
    rows: list[report_tables.Row] = [
        {"method": "a", "requested_at": report_tables.AT, "latency_ns": 5},
        {"method": None},
    ]
    report_tables.write(tmp_path, "calls", rows, is_partitioned=True)
    batches = ReportTables(tmp_path).calls(2)
    assert batches is not None
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"requested_at": report_tables.AT, "latency_ns": 5, "method": "a"},
        {"requested_at": None, "latency_ns": None, "method": None},
    ]
    assert ReportTables(tmp_path).calls(1) is None
    pq.write_table(pa.table({"method": ["a"]}), tmp_path / "calls" / "other.parquet")
    assert ReportTables(tmp_path).calls(10) is None
