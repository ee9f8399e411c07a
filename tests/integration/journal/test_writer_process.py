"""The process that writes a hub's journal: its end costs the hub nothing, and the hub's costs no records."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fiveways
from fiveways.journal.errors import JournalError
from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.journal.reader import list_segments
from fiveways.journal.writer_client import WriterClient
from fiveways.journal.writer_messages import UNLIMITED, SegmentRules, WriterConfig, pack
from fiveways.model.secret_names import DEFAULT_SECRET_NAMES
from fiveways.wire.packet import Packet
from tests.support import hubs
from tests.support.freezing import freeze, thaw
from tests.support.journal_writing import RUN, records


def orders(directory: Path) -> WriterConfig:
    return WriterConfig(
        str(directory), "node", RUN, DEFAULT_SECRET_NAMES, (), UNLIMITED, SegmentRules(flush_interval=0.01)
    )


def until(is_so: Callable[[], bool], feed: WriterClient | None = None) -> None:
    """Wait for something that nobody tells of, and look after a journal meanwhile."""
    patience = time.monotonic() + hubs.PATIENCE
    while not is_so():
        assert time.monotonic() < patience
        if feed is not None:
            feed.poll()
        time.sleep(0.01)


def scribe_of(feed: WriterClient) -> int:
    assert feed._process is not None
    return feed._process._process.pid


def test_when_it_is_killed_another_goes_on_and_what_is_missing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tape = FrameBuffer(time.time_ns)
    track, feed = ConnectionRecorder(tape, "s", "", "lrpm-json", "ws"), WriterClient(tape, orders(tmp_path))
    feed.start()
    track.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: feed.written_records == 1, feed)
    freeze(scribe_of(feed))  # so that what comes now reaches its pipe, and no disk
    track.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    feed.poll()
    os.kill(scribe_of(feed), signal.SIGKILL)
    until(lambda: feed.lost_records == 1, feed)
    track.record_received(3, Packet(b"[41,3,0,{}]"), "3")
    until(lambda: feed.written_records == 3, feed)
    feed.stop()
    rows = records(tmp_path)
    told = [int(str(row["reason"]).split()[0]) for row in rows if row["kind"] == "drop"]
    assert sum(told) == feed.lost_records >= 1
    assert feed.written_records == len(rows)
    assert "the journal has gaps: its process ended (-9)" in caplog.text
    numbers = [int(str(row["seq"])) for row in rows]
    assert numbers == sorted(set(numbers))
    assert {row["op"] for row in rows if row["kind"] == "text"} == {"1", "3"}
    assert [(each.number, each.is_closed) for each in list_segments(str(tmp_path))] == [(0, True), (1, True)]


def test_one_that_is_stuck_costs_records_and_neither_time_nor_memory(tmp_path: Path) -> None:
    tape = FrameBuffer(time.time_ns)
    track, feed = (
        ConnectionRecorder(tape, "s", "", "lrpm-json", "ws"),
        WriterClient(tape, orders(tmp_path), most=1 << 20),
    )
    feed.start()
    freeze(scribe_of(feed))
    for number in range(1000):
        track.record_received(number, Packet(b"x" * 10_000), "")
        feed.poll()
    assert feed._process is not None
    assert feed._process.waiting_bytes < 2 << 20
    lost = feed.lost_records
    assert 700 < lost < 900  # the pipe has some, and what waits
    thaw(scribe_of(feed))
    until(lambda: not feed._process or not feed._process.waiting_bytes, feed)
    feed.stop()
    rows = records(tmp_path)
    assert len(rows) + lost - 1 == 1000  # one of them tells of the others
    assert sum(int(str(row["reason"]).split()[0]) for row in rows if row["kind"] == "drop") == lost


def resident() -> int:
    """Return how much memory this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_given_back_when_one_that_was_stuck_goes_on(tmp_path: Path) -> None:
    tape = FrameBuffer(time.time_ns)
    track, feed = ConnectionRecorder(tape, "s", "", "lrpm-json", "ws"), WriterClient(tape, orders(tmp_path))
    feed.start()
    before, others = resident(), list[bytes]()
    freeze(scribe_of(feed))
    assert feed._process is not None
    while feed._process.waiting_bytes < 128 << 20:
        for number in range(200):
            track.record_received(number, Packet(b'[41,1,"%s",{}]' % (b"x" * 2000)), "")
        feed.poll()
        others.append(bytes(20_000))  # as of a session that comes meanwhile, and stays
    stuck = resident()
    thaw(scribe_of(feed))
    until(lambda: not feed._process or not feed._process.waiting_bytes, feed)
    feed.poll()
    assert resident() - before < (stuck - before) / 2
    feed.stop()
    assert (feed.lost_records, len(others) > 100) == (0, True)


def test_removed_directory_is_told_as_records_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tape, place = FrameBuffer(time.time_ns), tmp_path / "journal"
    track, feed = ConnectionRecorder(tape, "s", "", "lrpm-json", "ws"), WriterClient(tape, orders(place))
    feed.start()
    track.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: feed.written_records == 1, feed)
    shutil.rmtree(place)
    until(lambda: feed.lost_records == 1, feed)  # though nothing is to be written
    track.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    feed.stop()
    rows = records(place)
    assert [row["op"] for row in rows if row["kind"] == "text"] == ["2"]
    assert [row["reason"] for row in rows if row["kind"] == "drop"] == ["1 records could not be written"]
    assert (feed.lost_records, feed.written_records) == (1, 3)
    assert caplog.text.count("was removed or moved") == len(caplog.records) == 1


def test_it_does_not_end_with_those_who_are_told_to(tmp_path: Path) -> None:
    tape = FrameBuffer(time.time_ns)
    track, feed = ConnectionRecorder(tape, "s", "", "lrpm-json", "ws"), WriterClient(tape, orders(tmp_path))
    feed.start()
    track.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: feed.written_records == 1, feed)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(scribe_of(feed), number)
    track.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    feed.stop()
    assert ([row["op"] for row in records(tmp_path)], feed.written_records, feed.lost_records) == (["1", "2"], 2, 0)


def test_what_a_killed_hub_had_passed_on_is_written_and_closed(tmp_path: Path) -> None:
    with hubs.serving("--journal", str(tmp_path), "--set", "journal.flush_interval=0.01") as hub:
        with fiveways.connect_sync(hub.url("lrpm")) as peer:
            for number in range(100):
                assert peer.call("hub.echo", number, timeout=hubs.PATIENCE) == number
        until(lambda: _echoes(tmp_path) == 100)
        hub.signal(signal.SIGKILL)
        hub.process.communicate(timeout=hubs.PATIENCE)  # who writes the journal has the same stderr, and is gone too
    assert [each.is_closed for each in list_segments(str(tmp_path))] == [True]
    assert _echoes(tmp_path) == 100


def _echoes(directory: Path) -> int:
    return sum(b"hub.echo" in row["payload"] for row in records(directory) if isinstance(row["payload"], bytes))


def test_where_nothing_can_be_written_no_process_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    feed = WriterClient(FrameBuffer(time.time_ns), orders(tmp_path / "file"))
    with pytest.raises(JournalError, match="it must be a directory"):
        feed.start()
    assert feed._process is None


def test_it_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    tape = FrameBuffer(time.time_ns)
    track = ConnectionRecorder(tape, "s", "", "lrpm-json", "ws")
    track.record_marker("open", "in")
    track.record_received(1, Packet(b'[2,"token",{}]'), "1")
    page = tape.take(10)
    assert page is not None
    given = pack(orders(tmp_path)) + pack(page)
    command = [sys.executable, "-X", "importtime", "-m", "fiveways.journal.writer_process"]
    done = subprocess.run(command, input=given, capture_output=True, check=True, timeout=hubs.PATIENCE)  # noqa: S603
    assert b"pyarrow.parquet" in done.stderr
    assert b"pandas" not in done.stderr
    assert [row["payload"] for row in records(tmp_path)] == [None, b'[2,"***",{}]']


def test_hub_with_a_journal_does_not_load_pyarrow() -> None:
    code = "import sys, fiveways.runtime.hub_journal, fiveways.runtime.server; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=hubs.PATIENCE)  # noqa: S603
    assert done.stdout == b"False\n"
