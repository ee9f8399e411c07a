"""Order of arrival of segments, and their watermarks, without Spark."""

from pathlib import Path

from fiveways.pipeline.segment_log import SegmentLog, log_new_segments, newest_record_time
from tests.support import captures
from tests.support.captures import NOON, SECOND, RecordBuilder


def segment(folder: Path, number: int, at: int, run: str = "r1") -> Path:
    builder = RecordBuilder(run=run, at=at - 1_000_000)
    builder.add("s", "in", payload=b"?")
    return captures.write_segment(folder, builder.records, number, run)


def test_each_segment_is_logged_once(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "c" / "log")
    segment(tmp_path / "j", 1, NOON)
    assert log_new_segments(log, str(tmp_path / "j"), 10) == 1
    assert log_new_segments(log, str(tmp_path / "j"), 10) == 1
    segment(tmp_path / "j", 2, NOON + SECOND)
    assert log_new_segments(log, str(tmp_path / "j"), 10) == 2
    assert [line.name for line in log.read()] == ["r1-000001", "r1-000002"]


def test_watermark_follows_the_newest_earlier_record(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    for number, seconds in enumerate((0, 50, 30, 70), 1):
        segment(tmp_path / "j", number, NOON + seconds * SECOND)
        log_new_segments(log, str(tmp_path / "j"), 10.0)
    assert [line.watermark for line in log.read()] == [
        None,
        NOON - 10 * SECOND,
        NOON + 40 * SECOND,
        NOON + 40 * SECOND,
    ]


def test_segments_arriving_together_are_ordered_by_time(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    segment(tmp_path / "j", 1, NOON + 500 * SECOND, "a")
    segment(tmp_path / "j", 1, NOON, "b")
    log_new_segments(log, str(tmp_path / "j"), 10)
    assert [line.name for line in log.read()] == ["b-000001", "a-000001"]


def test_incomplete_line_is_ignored_and_overwritten(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    segment(tmp_path / "j", 1, NOON)
    log_new_segments(log, str(tmp_path / "j"), 10)
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"name": "r1-00')
    assert len(log.read()) == 1
    segment(tmp_path / "j", 2, NOON)
    assert log_new_segments(log, str(tmp_path / "j"), 10) == 2
    assert [line.name for line in log.read()] == ["r1-000001", "r1-000002"]


def test_unreadable_segment_is_logged_with_its_error(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    path = segment(tmp_path / "j", 1, NOON)
    path.write_bytes(path.read_bytes()[:50])
    assert log_new_segments(log, str(tmp_path / "j"), 10) == 1
    (line,) = log.read()
    assert str(path) in line.error


def test_segment_without_records_has_no_newest_time(tmp_path: Path) -> None:
    path = captures.write_segment(tmp_path, [], 1)
    assert newest_record_time(str(path)) == (None, "")
