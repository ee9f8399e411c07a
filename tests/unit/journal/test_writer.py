import grp
import os
import shutil
import stat
import time
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.journal.errors import BadSegment, JournalError
from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.journal.reader import check_segment, list_segments, read_batches
from fiveways.journal.schema import SCHEMA, split_ops
from fiveways.journal.segment_closing import close_segment, delete_expired_segments, find_abandoned_segments
from fiveways.journal.writer import JournalWriter
from fiveways.journal.writer_messages import SegmentRules, WriterConfig
from fiveways.model.secret_names import DEFAULT_SECRET_NAMES
from fiveways.wire.packet import Packet, join_operations
from tests.support.journal_writing import RUN, RecordedJournal, records


def test_recorded_frames_are_read_back(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path)
    recorder = written.track("lrpm-json")
    recorder.record_marker("open", "in")
    recorder.record_received(7, Packet(b"[40,1]"), "1")
    recorder.set_peer("ann")
    recorder.record_sent(9, Packet(b"\x01\x02", is_text=False), "1", since=4)
    recorder.record_marker("drop", "out", "too slow", "p3", "a.b")
    written.stop()
    opened, received, sent, dropped = records(tmp_path)
    assert list(received) == SCHEMA.names
    # The peer was set before the record was written.
    frame = {"kind": "text", "op": "1", "payload": b"[40,1]", "size": 6}
    assert received == opened | frame | {"seq": 1, "at": 7, "peer": "ann"}
    assert (sent["peer"], sent["direction"], sent["kind"], sent["queued_ns"]) == ("ann", "out", "binary", 5)
    assert (dropped["op"], dropped["channel"], dropped["reason"], dropped["payload"]) == ("p3", "a.b", "too slow", None)
    assert [opened["node"], opened["run"], opened["at"]] == ["node", RUN, 1_000_000_000]


def test_flushed_records_survive_a_kill(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path, rules=SegmentRules(0.01, segment_age=1e9))
    for number in range(10_000):
        written.hear(b"[41,%d,0,{}]" % number)
    written.turn()
    while written.journal.written_records < 10_000:
        pass
    (segment,) = list_segments(str(tmp_path))
    assert not segment.is_closed
    total = len(records(tmp_path))
    assert total == 10_000
    # A kill may truncate the file at any offset.
    for cut in (0, 1, 700, segment.size // 2, segment.size - 1):
        directory = tmp_path / "truncated"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        truncated = directory / Path(segment.path).name
        truncated.write_bytes(Path(segment.path).read_bytes()[:cut])
        readable = records(directory)
        assert [row["seq"] for row in readable] == list(range(len(readable)))
        assert find_abandoned_segments(directory) == [truncated]
        closed = close_segment(truncated)
        assert (closed is not None) == bool(readable)
        assert records(directory) == readable
        assert [path.name for path in directory.iterdir()] == ([closed.name] if closed else [])
    written.stop()


def test_full_segment_is_closed(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path, rules=SegmentRules(0.01, segment_bytes=1 << 16))
    for number in range(20_000):
        written.hear(os.urandom(50), "mqtt-rpc", str(number), is_text=False)
    written.stop()
    segments = list_segments(str(tmp_path))
    assert len(segments) > 1
    assert all(segment.is_closed for segment in segments)
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert [row["seq"] for row in records(tmp_path)] == list(range(20_000))


def test_segment_of_another_writer_is_not_closed(tmp_path: Path) -> None:
    alive = RecordedJournal(tmp_path, run="other")
    alive.hear(b"[]")
    assert find_abandoned_segments(tmp_path) == []
    second = RecordedJournal(tmp_path)
    second.hear(b"[]")
    second.stop()
    assert [segment.is_closed for segment in list_segments(str(tmp_path))] == [True, False]
    alive.stop()
    assert [segment.is_closed for segment in list_segments(str(tmp_path))] == [True, True]


@pytest.mark.parametrize(("max_payload_bytes", "payload"), [(3, b"[41"), (0, None)])
def test_truncated_payload_keeps_its_size(tmp_path: Path, max_payload_bytes: int, payload: bytes | None) -> None:
    written = RecordedJournal(tmp_path, most=max_payload_bytes)
    written.hear(b"[41,1,0,{}]")
    written.hear(b'[2,"geheim",{}]')
    written.stop()
    plain, hello = records(tmp_path)
    assert (plain["payload"], plain["size"]) == (payload, 11)
    assert (hello["payload"], hello["size"]) == (payload and b"[2,", 12)


def test_expired_and_excess_segments_are_deleted(tmp_path: Path) -> None:
    for number, age in enumerate([50, 9, 5, 1]):
        path = tmp_path / f"run-{number:06}.parquet"
        path.write_bytes(b"x" * 100)
        os.utime(path, (100_000_000 - age * 86_400, 100_000_000 - age * 86_400))
    deleted = delete_expired_segments(tmp_path, keep_bytes=250, keep_days=30, now=100_000_000)
    assert sorted(path.name for path in deleted) == ["run-000000.parquet", "run-000001.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-000002.parquet", "run-000003.parquet"]


def test_clock_jump_suspends_deletion_until_confirmed(tmp_path: Path) -> None:
    day, steady, wall = 86_400.0, [0.0], [1e9]
    old = tmp_path / "run-000000.parquet"
    old.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    config = WriterConfig(str(tmp_path), "node", RUN, DEFAULT_SECRET_NAMES, rules=SegmentRules(0.01), clock_jump=day)
    journal = JournalWriter(config, lambda: wall[0], steady_clock=lambda: steady[0])
    assert journal._retention_days() == 30
    steady[0], wall[0] = 10 * day, 1e9 + 10 * day
    assert journal._retention_days() == 30
    wall[0] += 40 * day
    assert journal._retention_days() == inf
    wall[0] -= 40 * day
    assert journal._retention_days() == 30
    wall[0] += 40 * day
    journal.set_deletion_held(is_held=True)
    assert delete_expired_segments(tmp_path, keep_bytes=1 << 30, keep_days=journal._retention_days(), now=wall[0]) == []
    journal.set_deletion_held(is_held=False)
    assert delete_expired_segments(tmp_path, keep_bytes=1 << 30, keep_days=journal._retention_days(), now=wall[0]) == [
        old
    ]


def test_full_disk_loses_records_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = RecordedJournal(tmp_path)
    written.hear(b"[41,1,0,{}]")
    written.turn()
    while not written.journal.written_records:
        pass
    with monkeypatch.context() as patch:

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fdatasync", full)
        written.hear(b"[41,2,0,{}]")
        written.turn()
        while not written.journal.lost_records:
            pass
    assert "No space left on device" in caplog.text
    written.hear(b"[41,3,0,{}]")
    written.stop()
    assert written.journal.lost_records == 1
    assert [row["payload"] for row in records(tmp_path)] == [b"[41,1,0,{}]", b"[41,2,0,{}]", b"[41,3,0,{}]"]


@pytest.mark.parametrize("is_moved", [False, True])
def test_removed_directory_is_logged_once_and_recreated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_moved: bool
) -> None:
    directory = tmp_path / "journal"
    written = RecordedJournal(directory)
    written.hear(b"[41,1,0,{}]")
    written.turn()
    while not written.journal.written_records:
        pass
    if is_moved:
        directory.rename(tmp_path / "moved")
    else:
        shutil.rmtree(directory)
    for number in (2, 3):
        written.hear(b"[41,%d,0,{}]" % number)
        written.turn()
        while written.journal.written_records < number:
            pass
    written.stop()
    assert [row["payload"] for row in records(directory)] == [b"[41,2,0,{}]", b"[41,3,0,{}]"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "was removed or moved" in message
    assert written.journal.lost_records == written.journal.removed_from_disk == (0 if is_moved else 1)
    if is_moved:
        assert len(records(tmp_path / "moved")) == 1


def test_unwritable_directory_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "journal"
    written = RecordedJournal(directory)
    shutil.rmtree(directory)
    directory.touch()
    for number in range(1, 5):
        written.hear(b"[]")
        written.turn()
        while written.journal.lost_records < number:
            pass
    removed, gaps = [record.getMessage() for record in caplog.records]
    assert "was removed or moved" in removed
    assert gaps.startswith("the journal has gaps")
    directory.unlink()
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert [row["payload"] for row in records(directory)] == [b"[41,1,0,{}]"]


def test_records_are_synchronized_under_permanent_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = RecordedJournal(tmp_path)
    monkeypatch.setattr(written.journal._queue, "empty", lambda: False)  # as under permanent load
    written.hear(b"[41,1,0,{}]")
    written.turn()
    deadline = time.monotonic() + 60
    while not written.journal.written_records:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    written.stop()


def modes(directory: Path) -> dict[str, int]:
    return {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.iterdir()]}


def test_journal_is_readable_by_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    written = RecordedJournal(directory)
    assert modes(directory) == {"": 0o700, ".arrow": 0o600}
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert modes(directory) == {"": 0o700, ".parquet": 0o600}


def test_journal_is_readable_by_its_group(tmp_path: Path) -> None:
    group = grp.getgrgid(max(os.getgroups(), default=os.getegid())).gr_name
    directory = tmp_path / "journal"
    written = RecordedJournal(directory, group=group)
    assert modes(directory) == {"": 0o2750, ".arrow": 0o640}
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert modes(directory) == {"": 0o2750, ".parquet": 0o640}
    assert {path.group() for path in [directory, *directory.iterdir()]} == {group}


def test_unknown_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no group 'nobody-has-this'"):
        RecordedJournal(tmp_path, group="nobody-has-this")


def test_malformed_frame_is_omitted(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path)
    for payload, op in ((b"[40,1,geheim,{}]", ""), (b"[40,1,2,{}]", ""), (b"[41,1,0,{}]", "1")):
        written.hear(payload, op=op)
    written.stop()
    malformed, *others = records(tmp_path)
    assert (malformed["payload"], malformed["size"], malformed["kind"]) == (None, 16, "text")
    assert str(malformed["reason"]).startswith("malformed: 16 bytes, digest ")
    assert [(row["payload"], row["reason"]) for row in others] == [(b"[40,1,2,{}]", None), (b"[41,1,0,{}]", None)]


def test_batch_size_is_limited() -> None:
    buffer = FrameBuffer(lambda: 1)
    recorder = ConnectionRecorder(buffer, "s", "", "nq", "ws")
    for size in (1, 1 << 23, 1 << 23, 1 << 25, 1):
        recorder.record_received(1, Packet(b"x" * size), "")
    recorder.record_marker("close", "in", "away")
    batches = list(iter(lambda: buffer.take(4096), None))
    assert [len(batch.payloads) for batch in batches] == [1 + (1 << 23), 1 << 23, 1 << 25, 1]
    assert [batch.first_seq for batch in batches] == [0, 2, 3, 4]
    assert {index: no_payload.reason for index, no_payload in batches[-1].no_payloads.items()} == {1: "away"}


def test_frames_sent_together_are_separate_records(tmp_path: Path) -> None:
    written = RecordedJournal(tmp_path)
    one, other = written.track("mqtt-rpc", "one"), written.track("umq", "other")
    one.record_received(5, Packet(b"[40,1]"), "1")
    other.record_sent_many([Packet(b"M1\na"), Packet(b"M2\nb"), Packet(b"M3\nc")], ["1", "", "p2"])
    other.record_received(6, Packet(b"R1\na"), "1")
    one.record_sent_many([Packet(b"[41,1]"), Packet(b"\1", is_text=False)], ["1", ""])
    one.record_sent_many([Packet(b"\2", is_text=False), Packet(b"\3", is_text=False)], ["", ""])
    one.record_sent_many([Packet(b"[41,2]"), Packet(b"[41,3]")], ["3", "4"], since=1)
    one.record_sent_many([Packet(b"[41,4]")], ["5"])
    one.record_marker("close", "in", "away")
    written.stop()
    rows = records(tmp_path)
    values = [(row["session"], row["kind"], row["op"], row["payload"], row["queued_ns"]) for row in rows]
    second = 1_000_000_000
    assert values == [
        ("one", "text", "1", b"[40,1]", None),
        ("other", "text", "1", b"M1\na", 0),
        ("other", "text", None, b"M2\nb", 0),
        ("other", "text", "p2", b"M3\nc", 0),
        ("other", "text", "1", b"R1\na", None),
        ("one", "text", "1", b"[41,1]", 0),
        ("one", "binary", None, b"\1", 0),
        ("one", "binary", None, b"\2", 0),
        ("one", "binary", None, b"\3", 0),
        ("one", "text", "3", b"[41,2]", 4 * second - 1),
        ("one", "text", "4", b"[41,3]", 4 * second - 1),
        ("one", "text", "5", b"[41,4]", 0),
        ("one", "close", None, None, None),
    ]
    assert [row["seq"] for row in rows] == list(range(13))
    assert [row["at"] for row in rows[:8]] == [5, second, second, second, 6, 2 * second, 2 * second, 3 * second]


def test_batches_are_split_between_entries() -> None:
    buffer = FrameBuffer(lambda: 1_000)
    recorder = ConnectionRecorder(buffer, "s", "", "nq", "ws")
    for number in range(3):
        recorder.record_received(number, Packet(b"in"), "")
        recorder.record_sent_many([Packet(b"out"), Packet(b"out")], ["a", "b"])
        recorder.record_sent(1_000, Packet(b"late"), "c", since=400 + number)
    batches = list(iter(lambda: buffer.take(4), None))
    assert [(batch.first_seq, len(batch)) for batch in batches] == [(0, 5), (5, 6), (11, 1)]
    assert [batch.payloads for batch in batches] == [b"inoutoutlatein", b"outoutlateinoutout", b"late"]
    assert [batch.ops for batch in batches] == [b"\na\nb\nc\n", b"a\nb\nc\n\na\nb", b"c"]
    assert [batch.queue_times for batch in batches] == [{2: 600}, {1: 599}, {0: 598}]
    assert not len(buffer)


def test_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot be written to"):
        RecordedJournal(tmp_path / "file")


# Captures from other tools.


def table(**changes: pa.Array) -> pa.Table:
    values = {
        field.name: pa.array([1 if pa.types.is_integer(field.type) else b"x" if field.type == pa.binary() else "x"])
        for field in SCHEMA
    }
    columns = {name: pa.array(column, SCHEMA.field(name).type) for name, column in values.items()}
    return pa.table({name: column for name, column in (columns | changes).items() if column is not None})


def test_foreign_parquet_files_with_the_columns_are_a_journal(tmp_path: Path) -> None:
    odd = {"queued_ns": None, "peer": pa.array(["a"]).dictionary_encode(), "more": pa.array([1]), "node": None}
    parquet.write_table(table(**(odd | {"node": pa.array(["n"], pa.large_string())})), tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert check_segment(str(tmp_path / "a.parquet")) == [f"{tmp_path}/a.parquet: the column more is ignored"]
    (row,) = records(tmp_path)
    assert list(row) == SCHEMA.names
    assert (row["peer"], row["node"], row["queued_ns"]) == ("a", "n", None)
    (batch,) = read_batches(str(tmp_path / "a.parquet"), ["peer", "at"], encoded=True)
    assert batch.to_pylist() == [{"peer": "a", "at": 1}]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"session": None}, "a.parquet has no column session"),
        ({"at": pa.array(["yesterday"])}, "a.parquet: the column at is string, expected int64"),
        ({"run": pa.array([None], pa.string())}, "a.parquet: the column run is null in 1 records"),
    ],
)
def test_bad_column_is_named(tmp_path: Path, changes: dict[str, pa.Array], sentence: str) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(table(**changes), path)
    with pytest.raises(BadSegment, match=sentence):
        list(read_batches(str(path)))


def test_truncated_parquet_file_raises_bad_segment(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:-10])
    for read in (check_segment, lambda name: list(read_batches(name))):
        with pytest.raises(BadSegment, match=r"a\.parquet is not a complete Parquet file"):
            read(str(path))


def test_operations_of_a_frame_are_split() -> None:
    assert split_ops(join_operations(["1", "", "p2"]), 3) == ["1", None, "p2"]
    assert split_ops(join_operations(["", ""]), 2) == [None, None]
    assert split_ops("1 2", 3) == [None, None, None]
    assert split_ops(None, 1) == [None]
