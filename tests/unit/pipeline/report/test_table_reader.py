"""Tables from disk."""

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


def test_the_columns_are_those_that_the_tables_have() -> None:
    gold = {name for name, table in TABLES.items() if table.layer == "gold"}
    assert set(TABLE_COLUMNS) == gold
    for name in TABLE_COLUMNS:
        own, written = schema(TABLE_COLUMNS[name]).names, list(TABLES[name].columns)
        assert [each for each in own if each not in written] == [], name
        assert report_tables.schema(name).names == written, name
    assert set(schema(CALL_COLUMNS).names) <= set(TABLES["calls"].columns)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_date_stands_in_the_file_or_in_its_path(tmp_path: Path, is_partitioned: bool) -> None:
    rows = [report_tables.frames(), {**report_tables.frames(5), "date": "2026-03-04"}]
    report_tables.write(tmp_path, "traffic", rows, is_partitioned=is_partitioned)
    found = ReportTables(tmp_path)["traffic"]
    assert sorted(found.column("date").to_pylist()) == ["2026-03-03", "2026-03-04"]
    assert found.column("frames").to_pylist() == [600, 600]


def test_hidden_files_and_what_is_no_parquet_are_passed_over(tmp_path: Path) -> None:
    report_tables.write(tmp_path, "traffic", [report_tables.frames()])
    (tmp_path / "traffic" / "_SUCCESS").touch()
    (tmp_path / "traffic" / ".part-1.parquet").write_bytes(b"half")
    (tmp_path / "traffic" / "_temporary").mkdir()
    (tmp_path / "traffic" / "_temporary" / "part-0.parquet").write_bytes(b"half")
    assert ReportTables(tmp_path)["traffic"].num_rows == 1


@pytest.mark.parametrize(
    ("kind", "unit"), [(pa.timestamp("ns"), 10**9), (pa.timestamp("us", "UTC"), 10**6), (pa.timestamp("ms"), 1000)]
)
def test_instants_may_have_any_unit(tmp_path: Path, kind: pa.DataType, unit: int) -> None:
    table = pa.Table.from_pylist([dict(report_tables.frames())]).set_column(0, "minute", pa.array([60 * unit], kind))
    (tmp_path / "traffic").mkdir()
    pq.write_table(table, tmp_path / "traffic" / "a.parquet", version="2.6")
    assert ReportTables(tmp_path)["traffic"].column("minute").cast(pa.int64()).to_pylist() == [60]


def test_a_table_that_is_not_there_is_empty_and_says_so(tmp_path: Path) -> None:
    report_tables.write_run(tmp_path)
    tables = ReportTables(tmp_path)
    assert tables["slo"].num_rows == 0
    assert tables.note("slo") == "There is no table slo in this output."


def test_a_table_without_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "slo").mkdir()
    tables = ReportTables(tmp_path)
    assert tables["slo"].num_rows == 0
    assert tables.note("slo") == ""


def test_a_column_that_is_missing_or_of_another_type_is_named(tmp_path: Path) -> None:
    report_tables.write_run(tmp_path)
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


def test_a_file_that_is_torn_is_named(tmp_path: Path) -> None:
    report_tables.write(tmp_path, "slo", [report_tables.slo()])
    path = tmp_path / "slo" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReportError, match=r"slo/part-0\.parquet cannot be read as Parquet: "):
        ReportTables(tmp_path)["slo"]


@pytest.mark.parametrize(("text", "sentence"), [("{", "is no JSON"), ("[]", "is no object")])
def test_a_record_of_the_run_that_is_none_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "_run.json").write_text(text)
    with pytest.raises(ReportError, match=sentence):
        ReportTables(tmp_path)


def test_what_is_no_output_of_the_pipeline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(ReportError, match=r"is no output of the pipeline: it has neither _run\.json nor a table"):
        ReportTables(tmp_path)
    with pytest.raises(ReportError, match="there is no directory"):
        ReportTables(tmp_path / "missing")


def test_numbers_of_the_run_are_counted_if_they_are_lists(tmp_path: Path) -> None:
    report_tables.write_run(tmp_path, late=3, segments=[{}, {}], quarantined="many", full=True)
    tables = ReportTables(tmp_path)
    found = [tables.run_number(each) for each in ("late", "segments", "quarantined", "full", "missing")]
    assert found == [3, 2, None, None, None]


def test_an_exchange_of_the_directory_is_noticed(tmp_path: Path) -> None:
    report_tables.write_run(tmp_path)
    tables = ReportTables(tmp_path)
    tables.check_unchanged()
    report_tables.write_run(tmp_path, late=1)
    with pytest.raises(TablesChanged):
        tables.check_unchanged()


def test_calls_are_given_unless_they_are_too_many_or_not_there(tmp_path: Path) -> None:
    report_tables.write_run(tmp_path)
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
