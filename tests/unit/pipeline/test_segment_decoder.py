"""Decoding of one segment into files, without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.pipeline import segment_decoder
from fiveways.pipeline.segment_decoder import SCHEMAS, DecodeTask, SegmentSummary
from tests.support import captures
from tests.support.captures import DAY, NOON, SECOND, RecordBuilder


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    builder = RecordBuilder()
    builder.add_open_sessions()
    builder.add_calls(range(1, 11))
    builder.at = NOON + DAY
    builder.add("caller", "in", payload=b"\x00 what")
    return captures.write_segment(tmp_path / "journal", builder.records, 1)


def run(segment: Path, **more: int | bool | None) -> SegmentSummary:
    return segment_decoder.decode_segment(DecodeTask(str(segment), "p1", str(segment.parent.parent / "next"), **more))  # type: ignore[arg-type]


def read(segment: Path, table: str) -> pa.Table:
    return parquet.read_table(segment.parent.parent / "next" / table / "p1.parquet")


def test_summary_counts_records_dates_and_rows(segment: Path) -> None:
    summary = run(segment)
    assert (summary.records, summary.late, summary.error) == (43, 0, "")
    assert summary.dates == ["2026-03-03", "2026-03-04"]
    assert (summary.first_at, summary.last_at) == (NOON + SECOND // 1000, NOON + DAY + SECOND // 1000)
    assert summary.rows == {
        "messages": 40,
        "quarantine": 1,
        "late": 0,
        "_marks": 2,
        "_pieces": 10,
        "_buckets": 1,
        "_seqs": 1,
    }
    assert summary.size > 0


def test_files_have_declared_columns_with_plain_text_type(segment: Path) -> None:
    run(segment)
    for table in ("messages", "quarantine", "_marks", "_pieces"):
        written = read(segment, table).schema
        assert written.names == SCHEMAS[table].names
        assert written.field("run").type == pa.string()


def test_table_without_rows_has_no_file(segment: Path) -> None:
    run(segment)
    directory = segment.parents[1] / "next"
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
    expected = [f"{table}/p1.parquet" for table in ("_buckets", "_marks", "_pieces", "_seqs", "messages", "quarantine")]
    assert [name for name in names if "/" in name] == expected


def test_repeated_task_gives_the_same_files(segment: Path) -> None:
    first = run(segment)
    before = read(segment, "messages")
    assert run(segment) == first
    assert read(segment, "messages").equals(before)


def test_records_outside_the_time_range_are_excluded(segment: Path) -> None:
    assert run(segment, from_at=NOON + SECOND).records == 1
    assert run(segment, to_at=NOON + SECOND).dates == ["2026-03-03"]
    assert run(segment, from_at=NOON + 2 * DAY).records == 0


def test_late_records_are_separated_and_decoded_on_request(segment: Path) -> None:
    watermark = NOON + SECOND
    summary = run(segment, watermark=watermark)
    assert (summary.records, summary.late, summary.dates) == (43, 42, ["2026-03-04"])
    assert summary.rows["messages"] == 0
    late = read(segment, "late")
    assert late.column_names == SCHEMAS["late"].names
    assert set(late.column("watermark").to_pylist()) == {watermark}
    again = run(segment, watermark=watermark, late_only=True)
    assert (again.records, again.late, again.rows["messages"]) == (42, 0, 40)


def test_unreadable_segment_gives_an_error_text(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-20])
    summary = run(segment)
    assert str(segment) in summary.error
    assert "Parquet" in summary.error


def test_large_segment_is_decoded_in_slices(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(segment)
    monkeypatch.setattr(segment_decoder, "_MESSAGES_PER_SLICE", 1)
    monkeypatch.setattr("fiveways.journal.reader.BATCH_RECORDS", 7)
    sliced = run(segment)
    assert sliced.rows["messages"] == whole.rows["messages"]
    # An operation in two slices gives two rows, like one in two segments.
    assert sliced.rows["_pieces"] > whole.rows["_pieces"]
    assert sum(read(segment, "_pieces").column("attempts").to_pylist()) == 10


def test_merge_parts_replaces_files_by_one(segment: Path) -> None:
    directory = segment.parents[1] / "next"
    for part in ("a", "b"):
        segment_decoder.decode_segment(DecodeTask(str(segment), part, str(directory)))
    size = segment_decoder.merge_parts("m", ["a", "b", "never"], str(directory))
    assert sorted(path.name for path in (directory / "messages").iterdir()) == ["m.parquet"]
    assert len(parquet.read_table(directory / "messages" / "m.parquet")) == 80
    assert size == sum(path.stat().st_size for path in directory.rglob("m.parquet"))
