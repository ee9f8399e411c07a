"""`pipeline run` with Spark: segments that are read, tables that are rebuilt, and failed runs."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from fiveways.pipeline import batch_run
from fiveways.pipeline.batch_run import RunOptions, RunReport
from fiveways.pipeline.errors import BadInput, PipelineError
from fiveways.pipeline.table_builder import TableBuilder
from fiveways.pipeline.tables import TABLES
from tests.support import captures
from tests.support.captures import DAY, NOON, SECOND, RecordBuilder

SHOWN = {name for name, table in TABLES.items() if table.layer != "work"}


def run(spark: SparkSession, journal: Path, out: Path, *, full: bool = False, **bounds: int) -> RunReport:
    return batch_run.run(RunOptions(str(journal), out, is_full=full, **bounds), spark=spark)  # type: ignore[arg-type]


def test_run_writes_all_tables_of_a_journal(simple_run: captures.SimpleRun) -> None:
    out, report = simple_run.out, simple_run.report
    assert (report.segments, report.records) == (3, simple_run.records)
    assert {path.name for path in out.iterdir() if path.is_dir() and not path.name.startswith("_")} == SHOWN
    assert captures.leftover_files(out) == []
    assert captures.count_rows(out, "calls") == 31
    assert captures.count_rows(out, "calls", outcome="result", method="math.add") == 30
    assert captures.count_rows(out, "calls", outcome="unanswered") == 1
    state = json.loads((out / "_run.json").read_text())
    assert state["version"] == 2
    assert (state["repeated"], state["negative_durations"]) == (0, 0)
    assert [segment["name"] for segment in state["segments"]] == ["r1-000001", "r1-000002", "r1-000003"]
    assert all(
        segment["size"] == (simple_run.journal / f"{segment['name']}.parquet").stat().st_size
        for segment in state["segments"]
    )
    assert state["rows"] == {name: captures.count_rows(out, name) for name in SHOWN}
    assert (state["late"], state["quarantined"], state["from"], state["to"]) == (0, 1, None, None)
    assert state["finished_at"].endswith("Z")


def test_increments_give_the_same_tables_as_one_run(
    spark: SparkSession, over_midnight: captures.JournalTables, tmp_path: Path
) -> None:
    growing, paths = tmp_path / "growing", over_midnight.paths
    growing.mkdir()
    steps = []
    for added in (paths[:1], paths[2:3], [paths[1], paths[3]]):  # one segment arrives out of order
        for path in added:
            (growing / path.name).write_bytes(path.read_bytes())
        steps.append(run(spark, growing, tmp_path / "added"))
    assert [step.segments for step in steps] == [1, 1, 2]
    assert captures.read_tables(tmp_path / "added") == over_midnight.tables
    assert [captures.count_rows(tmp_path / "added", "calls", date=f"2026-03-0{day}") for day in (2, 3, 4)] == [
        21,
        12,
        10,
    ]
    assert captures.count_rows(tmp_path / "added", "calls", outcome="unanswered") == 0
    assert captures.count_rows(tmp_path / "added", "orphans") == 0


@pytest.mark.usefixtures("few_tables")
def test_full_run_rebuilds_all_tables(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    captures.write_segments(journal, captures.over_midnight(), 3)
    run(spark, journal, out)
    expected = captures.read_tables(out)
    assert run(spark, journal, out).segments == 0
    assert run(spark, journal, out, full=True).segments == 3
    assert captures.read_tables(out) == expected
    (journal / "r1-000003.parquet").unlink()  # rows of deleted segments stay until a full rebuild
    assert run(spark, journal, out).segments == 0
    assert captures.read_tables(out) == expected
    assert run(spark, journal, out, full=True).segments == 2
    assert captures.count_rows(out, "messages") < len(expected["messages"])


@pytest.mark.usefixtures("few_tables")
def test_day_without_new_records_keeps_its_files(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    for day in range(2):
        builder = RecordBuilder(run=f"r{day}", at=NOON + day * DAY)
        builder.add_calls(range(5))
        captures.write_segment(journal, builder.records, 1, f"r{day}")
        if not day:
            run(spark, journal, out)
            before = {path.name: path.stat().st_ino for path in (out / "calls").iterdir()}
    run(spark, journal, out)
    after = {path.name: path.stat().st_ino for path in (out / "calls").iterdir()}
    assert before.items() <= after.items()
    assert len(after) > len(before)


@pytest.mark.usefixtures("few_tables")
def test_time_range_limits_records_and_forces_rebuild_when_changed(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    captures.write_segments(journal, captures.over_midnight(), 2)
    run(spark, journal, out, from_at=NOON - DAY // 4, to_at=NOON + DAY // 4)
    assert set(parquet.read_table(out / "calls").column("date").to_pylist()) == {"2026-03-03"}
    assert json.loads((out / "_run.json").read_text())["from"] == NOON - DAY // 4
    other = run(spark, journal, out, from_at=NOON)
    assert other.segments == 2
    assert any("rebuilding" in note for note in other.notes)
    with pytest.raises(BadInput, match="has no records between --from and --to"):
        run(spark, journal, out, from_at=NOON + 90 * DAY)
    assert json.loads((out / "_run.json").read_text())["from"] == NOON


@pytest.mark.usefixtures("few_tables")
def test_unknown_column_is_ignored_with_a_note(spark: SparkSession, tmp_path: Path) -> None:
    builder = RecordBuilder()
    builder.add_calls(range(4))
    table = captures.table_of(builder.records)
    extended = table.append_column("colour", pa.array(["red"] * len(table)))
    path = captures.write_segment(tmp_path / "journal", [], 1)
    parquet.write_table(extended.drop_columns(["queued_ns"]), path)
    report = run(spark, tmp_path / "journal", tmp_path / "out")
    assert report.notes == [f"{path}: the column colour is ignored"]
    assert captures.count_rows(tmp_path / "out", "calls") == 4


@pytest.mark.usefixtures("few_tables")
def test_failed_run_leaves_tables_unchanged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_calls(range(10))
    captures.write_segment(journal, builder.records[:20], 1)
    run(spark, journal, out)
    before = captures.read_tables(out)
    captures.write_segment(journal, builder.records[20:], 2)

    def broken(*_: object) -> dict[str, int]:
        raise PipelineError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TableBuilder, "run", broken)
        with pytest.raises(PipelineError, match="the disk is full"):
            run(spark, journal, out)
    assert captures.read_tables(out) == before
    assert run(spark, journal, out).segments == 1
    assert captures.leftover_files(out) == []
    assert captures.count_rows(out, "messages") == len(builder.records)


def test_damaged_segment_is_named_in_the_error(spark: SparkSession, tmp_path: Path) -> None:
    builder = RecordBuilder()
    builder.add_calls(range(200))
    path = captures.write_segment(tmp_path / "journal", builder.records, 1)
    data = bytearray(path.read_bytes())
    data[40:400] = bytes(360)  # the footer stays valid
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match=f"{path} is damaged"):
        run(spark, tmp_path / "journal", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_journal_without_records_gives_no_tables(spark: SparkSession, tmp_path: Path) -> None:
    captures.write_segment(tmp_path / "journal", [], 1)
    with pytest.raises(BadInput, match="has no records"):
        run(spark, tmp_path / "journal", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("few_tables")
def test_small_segments_are_compacted_into_few_files(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_calls(range(60))
    captures.write_segments(journal, builder.records, 20)
    run(spark, journal, out)
    assert len(list((out / "messages").iterdir())) <= 3
    assert captures.count_rows(out, "messages") == len(builder.records)
    assert captures.count_rows(out, "calls", outcome="result") == 60
    builder.at += SECOND
    builder.add_calls([60])
    captures.write_segment(journal, builder.records[-4:], 99)
    run(spark, journal, out)
    assert captures.count_rows(out, "calls", outcome="result") == 61


@pytest.mark.usefixtures("few_tables")
def test_duplicate_records_are_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_open_sessions()
    builder.add_calls(range(1, 31))
    paths = captures.write_segments(journal, builder.records, 3)
    once = run(spark, journal, out)
    expected = captures.read_tables(out)
    # A copy of a segment read before, and records of several segments, one of them twice.
    (journal / "copy.parquet").write_bytes(paths[1].read_bytes())
    captures.write_segment(journal, [*builder.records[30:60], builder.records[0], builder.records[0]], 9)
    again = run(spark, journal, out)
    assert captures.read_tables(out) == expected
    assert (again.segments, again.records, again.state.rows) == (2, 0, once.state.rows)
    assert again.state.repeated == parquet.read_metadata(paths[1]).num_rows + 32
    # Duplicates beside new records.
    builder.add_response(7)
    captures.write_segment(journal, builder.records[-12:], 10)
    more = run(spark, journal, out)
    assert (more.records, more.state.rows["messages"]) == (2, once.state.rows["messages"] + 2)
    expected = captures.read_tables(out)
    assert run(spark, journal, out, full=True).state.rows == more.state.rows
    assert captures.read_tables(out) == expected
    assert captures.count_rows(out, "calls", attempts=1, answers=1) == 29


def test_negative_durations_become_null_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_open_sessions()
    builder.add_request(1)
    builder.add("caller", "in", payload=b"P\nnews\n1", op="p1")
    builder.at -= 3600 * SECOND
    builder.add("callee", "out", payload=b"R9\n3", queued_ns=-5)
    builder.add_response(1)
    builder.add_calls(range(2, 9))
    builder.add("caller", "in", "close")
    captures.write_segments(journal, builder.records, 4)
    state = run(spark, journal, out).state
    for name in ("calls", "deliveries", "sessions", "messages"):
        table = parquet.read_table(sorted((out / name).glob("*.parquet")))
        durations = [column for column in table.column_names if column.endswith("_ns")]
        assert durations
        for column in durations:
            assert (pa.compute.min(table[column]).as_py() or 0) >= 0, (name, column)
    assert captures.count_rows(out, "calls", negative_durations=2, op="1") == 1
    assert captures.count_rows(out, "sessions", negative_durations=1, session="caller") == 1
    assert state.negative_durations == 2 + 1 + 1
    assert json.loads((out / "_run.json").read_text())["negative_durations"] == state.negative_durations
