"""Reading of segments while a hub writes."""

import time
from pathlib import Path

import pytest

from fiveways.journal.errors import BadSegment
from fiveways.journal.operation_index import OperationIndex
from fiveways.journal.reader import list_segments, read_batches
from tests.support.journal_writing import RecordedJournal

TIMEOUT = 120.0


def test_segment_closed_after_listing_is_read(tmp_path: Path) -> None:
    """A closed segment has another file name, which must not cause an error about a missing file."""
    written = RecordedJournal(tmp_path)
    written.hear(b'[40,1,"a.b",null,{}]', op="7")
    written.turn()
    deadline = time.monotonic() + TIMEOUT
    while not any(len(batch) for segment in list_segments(str(tmp_path)) for batch in read_batches(segment.path)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (open_segment,) = list_segments(str(tmp_path))
    assert not open_segment.is_closed
    index = OperationIndex(str(tmp_path), "7")
    written.stop()
    assert not Path(open_segment.path).exists()
    assert [row["op"] for batch in read_batches(open_segment.path) for row in batch.to_pylist()] == ["7"]
    assert [record.op for record in index.records(index.runs[0])] == ["7"]


def test_deleted_segment_raises_bad_segment(tmp_path: Path) -> None:
    for name in ("gone.arrow", "gone.parquet"):
        with pytest.raises(BadSegment, match="does not exist any more"):
            list(read_batches(str(tmp_path / name)))
