"""Segments, read while a hub goes on writing."""

import time
from pathlib import Path

import pytest

from fiveways.journal.errors import BadSegment
from fiveways.journal.operation_index import OperationIndex
from fiveways.journal.reader import list_segments, read_batches
from tests.support.journal_writing import Written

PATIENCE = 120.0


def test_a_segment_that_was_closed_since_it_was_found_is_read_all_the_same(tmp_path: Path) -> None:
    """Whoever asks for one call of a journal must not hear that a file is gone, which only has another name now."""
    written = Written(tmp_path)
    written.hear(b'[40,1,"a.b",null,{}]', op="7")
    written.turn()
    until = time.monotonic() + PATIENCE
    while not any(len(batch) for each in list_segments(str(tmp_path)) for batch in read_batches(each.path)):
        assert time.monotonic() < until
        time.sleep(0.01)
    (open_segment,) = list_segments(str(tmp_path))
    assert not open_segment.is_closed
    found = OperationIndex(str(tmp_path), "7")
    written.stop()
    assert not Path(open_segment.path).exists()
    assert [row["op"] for batch in read_batches(open_segment.path) for row in batch.to_pylist()] == ["7"]
    assert [record.op for record in found.records(found.runs[0])] == ["7"]


def test_a_segment_that_was_deleted_is_told(tmp_path: Path) -> None:
    for name in ("gone.arrow", "gone.parquet"):
        with pytest.raises(BadSegment, match="is not there any more"):
            list(read_batches(str(tmp_path / name)))
