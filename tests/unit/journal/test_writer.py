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
from tests.support.journal_writing import RUN, Written, records


def test_what_was_noted_is_read_again(tmp_path: Path) -> None:
    written = Written(tmp_path)
    track = written.track("lrpm-json")
    track.record_marker("open", "in")
    track.record_received(7, Packet(b"[40,1]"), "1")
    track.set_peer("ann")
    track.record_sent(9, Packet(b"\x01\x02", is_text=False), "1", since=4)
    track.record_marker("drop", "out", "too slow", "p3", "a.b")
    written.stop()
    opened, heard, said, dropped = records(tmp_path)
    assert list(heard) == SCHEMA.names
    # Who it is became known before it was written.
    frame = {"kind": "text", "op": "1", "payload": b"[40,1]", "size": 6}
    assert heard == opened | frame | {"seq": 1, "at": 7, "peer": "ann"}
    assert (said["peer"], said["direction"], said["kind"], said["queued_ns"]) == ("ann", "out", "binary", 5)
    assert (dropped["op"], dropped["channel"], dropped["reason"], dropped["payload"]) == ("p3", "a.b", "too slow", None)
    assert [opened["node"], opened["run"], opened["at"]] == ["node", RUN, 1_000_000_000]


def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    written = Written(tmp_path, rules=SegmentRules(0.01, segment_age=1e9))
    for number in range(10_000):
        written.hear(b"[41,%d,0,{}]" % number)
    written.turn()
    while written.journal.written_records < 10_000:
        pass
    (segment,) = list_segments(str(tmp_path))
    assert not segment.is_closed
    whole = len(records(tmp_path))
    assert whole == 10_000
    # As a kill leaves it, at any place.
    for cut in (0, 1, 700, segment.size // 2, segment.size - 1):
        place = tmp_path / "torn"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        torn = place / Path(segment.path).name
        torn.write_bytes(Path(segment.path).read_bytes()[:cut])
        left = records(place)
        assert [row["seq"] for row in left] == list(range(len(left)))
        assert find_abandoned_segments(place) == [torn]
        closed = close_segment(torn)
        assert (closed is not None) == bool(left)
        assert records(place) == left
        assert [each.name for each in place.iterdir()] == ([closed.name] if closed else [])
    written.stop()


def test_segments_are_closed_when_they_are_full(tmp_path: Path) -> None:
    written = Written(tmp_path, rules=SegmentRules(0.01, segment_bytes=1 << 16))
    for number in range(20_000):
        written.hear(os.urandom(50), "mqtt-rpc", str(number), is_text=False)
    written.stop()
    found = list_segments(str(tmp_path))
    assert len(found) > 1
    assert all(each.is_closed for each in found)
    assert [each.number for each in found] == list(range(len(found)))
    assert [row["seq"] for row in records(tmp_path)] == list(range(20_000))


def test_a_segment_that_another_hub_writes_is_left_alone(tmp_path: Path) -> None:
    alive = Written(tmp_path, run="other")
    alive.hear(b"[]")
    assert find_abandoned_segments(tmp_path) == []
    second = Written(tmp_path)
    second.hear(b"[]")
    second.stop()
    assert [each.is_closed for each in list_segments(str(tmp_path))] == [True, False]
    alive.stop()
    assert [each.is_closed for each in list_segments(str(tmp_path))] == [True, True]


@pytest.mark.parametrize(("most", "kept"), [(3, b"[41"), (0, None)])
def test_payloads_may_be_cut_and_their_sizes_are_still_told(tmp_path: Path, most: int, kept: bytes | None) -> None:
    written = Written(tmp_path, most=most)
    written.hear(b"[41,1,0,{}]")
    written.hear(b'[2,"geheim",{}]')
    written.stop()
    plain, hello = records(tmp_path)
    assert (plain["payload"], plain["size"]) == (kept, 11)
    assert (hello["payload"], hello["size"]) == (kept and b"[2,", 12)


def test_what_is_old_or_too_much_is_deleted(tmp_path: Path) -> None:
    for number, age in enumerate([50, 9, 5, 1]):
        path = tmp_path / f"run-{number:06}.parquet"
        path.write_bytes(b"x" * 100)
        os.utime(path, (100_000_000 - age * 86_400, 100_000_000 - age * 86_400))
    gone = delete_expired_segments(tmp_path, most=250, days=30, now=100_000_000)
    assert sorted(path.name for path in gone) == ["run-000000.parquet", "run-000001.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-000002.parquet", "run-000003.parquet"]


def test_clock_that_jumps_deletes_no_segment_until_it_is_trusted(tmp_path: Path) -> None:
    day, steady, wall = 86_400.0, [0.0], [1e9]
    old = tmp_path / "run-000000.parquet"
    old.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    orders = WriterConfig(str(tmp_path), "node", RUN, DEFAULT_SECRET_NAMES, rules=SegmentRules(0.01), clock_jump=day)
    journal = JournalWriter(orders, lambda: wall[0], steady=lambda: steady[0])
    assert journal._retention_days() == 30
    steady[0], wall[0] = 10 * day, 1e9 + 10 * day
    assert journal._retention_days() == 30
    wall[0] += 40 * day
    assert journal._retention_days() == inf
    wall[0] -= 40 * day
    assert journal._retention_days() == 30
    wall[0] += 40 * day
    journal.set_deletion_held(is_held=True)
    assert delete_expired_segments(tmp_path, most=1 << 30, days=journal._retention_days(), now=wall[0]) == []
    journal.set_deletion_held(is_held=False)
    assert delete_expired_segments(tmp_path, most=1 << 30, days=journal._retention_days(), now=wall[0]) == [old]


def test_a_disk_that_takes_nothing_costs_records_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path)
    written.hear(b"[41,1,0,{}]")
    written.turn()
    while not written.journal.written_records:
        pass
    with monkeypatch.context() as trouble:

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        trouble.setattr(os, "fdatasync", full)
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
def test_removed_directory_is_noticed_once_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_moved: bool
) -> None:
    place = tmp_path / "journal"
    written = Written(place)
    written.hear(b"[41,1,0,{}]")
    written.turn()
    while not written.journal.written_records:
        pass
    if is_moved:
        place.rename(tmp_path / "moved")
    else:
        shutil.rmtree(place)
    for number in (2, 3):
        written.hear(b"[41,%d,0,{}]" % number)
        written.turn()
        while written.journal.written_records < number:
            pass
    written.stop()
    assert [row["payload"] for row in records(place)] == [b"[41,2,0,{}]", b"[41,3,0,{}]"]
    (told,) = [each.getMessage() for each in caplog.records]
    assert "was removed or moved while it was written" in told
    assert written.journal.lost_records == written.journal.removed_from_disk == (0 if is_moved else 1)
    if is_moved:
        assert len(records(tmp_path / "moved")) == 1


def test_directory_that_cannot_be_made_again_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "journal"
    written = Written(place)
    shutil.rmtree(place)
    place.touch()
    for number in range(1, 5):
        written.hear(b"[]")
        written.turn()
        while written.journal.lost_records < number:
            pass
    removed, gaps = [each.getMessage() for each in caplog.records]
    assert "was removed or moved" in removed
    assert gaps.startswith("the journal has gaps")
    place.unlink()
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert [row["payload"] for row in records(place)] == [b"[41,1,0,{}]"]


def test_records_reach_the_disk_while_more_keep_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(tmp_path)
    monkeypatch.setattr(written.journal._queue, "empty", lambda: False)  # as under load without end
    written.hear(b"[41,1,0,{}]")
    written.turn()
    patience = time.monotonic() + 60
    while not written.journal.written_records:
        assert time.monotonic() < patience
        time.sleep(0.001)
    written.stop()


def modes(directory: Path) -> dict[str, int]:
    return {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.iterdir()]}


def test_only_the_owner_reads_a_journal(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    written = Written(place)
    assert modes(place) == {"": 0o700, ".arrow": 0o600}
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert modes(place) == {"": 0o700, ".parquet": 0o600}


def test_group_reads_a_journal_that_is_given_to_it(tmp_path: Path) -> None:
    group = grp.getgrgid(max(os.getgroups(), default=os.getegid())).gr_name
    place = tmp_path / "journal"
    written = Written(place, group=group)
    assert modes(place) == {"": 0o2750, ".arrow": 0o640}
    written.hear(b"[41,1,0,{}]")
    written.stop()
    assert modes(place) == {"": 0o2750, ".parquet": 0o640}
    assert {path.group() for path in [place, *place.iterdir()]} == {group}


def test_unknown_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no group 'nobody-has-this'"):
        Written(tmp_path, group="nobody-has-this")


def test_malformed_frame_of_a_peer_is_left_out(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for payload, op in ((b"[40,1,geheim,{}]", ""), (b"[40,1,2,{}]", ""), (b"[41,1,0,{}]", "1")):
        written.hear(payload, op=op)
    written.stop()
    malformed, *others = records(tmp_path)
    assert (malformed["payload"], malformed["size"], malformed["kind"]) == (None, 16, "text")
    assert str(malformed["reason"]).startswith("malformed: 16 bytes, digest ")
    assert [(row["payload"], row["reason"]) for row in others] == [(b"[40,1,2,{}]", None), (b"[41,1,0,{}]", None)]


def test_a_page_is_not_too_long_to_be_passed_on() -> None:
    tape = FrameBuffer(lambda: 1)
    track = ConnectionRecorder(tape, "s", "", "nq", "ws")
    for size in (1, 1 << 23, 1 << 23, 1 << 25, 1):
        track.record_received(1, Packet(b"x" * size), "")
    track.record_marker("close", "in", "away")
    pages = list(iter(lambda: tape.take(4096), None))
    assert [len(page.payloads) for page in pages] == [1 + (1 << 23), 1 << 23, 1 << 25, 1]
    assert [page.first_seq for page in pages] == [0, 2, 3, 4]
    assert {place: note.reason for place, note in pages[-1].no_payloads.items()} == {1: "away"}


def test_frames_that_go_out_together_are_as_many_records(tmp_path: Path) -> None:
    written = Written(tmp_path)
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
    told = [(row["session"], row["kind"], row["op"], row["payload"], row["queued_ns"]) for row in rows]
    second = 1_000_000_000
    assert told == [
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


def test_pages_are_cut_between_entries() -> None:
    tape = FrameBuffer(lambda: 1_000)
    track = ConnectionRecorder(tape, "s", "", "nq", "ws")
    for number in range(3):
        track.record_received(number, Packet(b"in"), "")
        track.record_sent_many([Packet(b"out"), Packet(b"out")], ["a", "b"])
        track.record_sent(1_000, Packet(b"late"), "c", since=400 + number)
    pages = list(iter(lambda: tape.take(4), None))
    assert [(page.first_seq, len(page)) for page in pages] == [(0, 5), (5, 6), (11, 1)]
    assert [page.payloads for page in pages] == [b"inoutoutlatein", b"outoutlateinoutout", b"late"]
    assert [page.ops for page in pages] == [b"\na\nb\nc\n", b"a\nb\nc\n\na\nb", b"c"]
    assert [page.queue_times for page in pages] == [{2: 600}, {1: 599}, {0: 598}]
    assert not len(tape)


def test_nothing_can_be_written_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot be written to"):
        Written(tmp_path / "file")


# What others hand in.


def table(**changes: pa.Array) -> pa.Table:
    values = {
        field.name: pa.array([1 if pa.types.is_integer(field.type) else b"x" if field.type == pa.binary() else "x"])
        for field in SCHEMA
    }
    columns = {name: pa.array(column, SCHEMA.field(name).type) for name, column in values.items()}
    return pa.table({name: column for name, column in (columns | changes).items() if column is not None})


def test_any_directory_of_parquet_files_with_the_columns_is_a_journal(tmp_path: Path) -> None:
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
        ({"at": pa.array(["yesterday"])}, "a.parquet: the column at is string, where int64 is wanted"),
        ({"run": pa.array([None], pa.string())}, "a.parquet: the column run is null in 1 records"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_column(
    tmp_path: Path, changes: dict[str, pa.Array], sentence: str
) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(table(**changes), path)
    with pytest.raises(BadSegment, match=sentence):
        list(read_batches(str(path)))


def test_half_a_parquet_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:-10])
    for read in (check_segment, lambda name: list(read_batches(name))):
        with pytest.raises(BadSegment, match=r"a\.parquet is no whole Parquet file"):
            read(str(path))


def test_operations_of_a_frame_are_told_apart() -> None:
    assert split_ops(join_operations(["1", "", "p2"]), 3) == ["1", None, "p2"]
    assert split_ops(join_operations(["", ""]), 2) == [None, None]
    assert split_ops("1 2", 3) == [None, None, None]
    assert split_ops(None, 1) == [None]
