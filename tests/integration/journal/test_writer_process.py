"""The writer process: if it ends, the hub continues; if the hub ends, no forwarded record is lost."""

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


def config(directory: Path) -> WriterConfig:
    return WriterConfig(
        str(directory), "node", RUN, DEFAULT_SECRET_NAMES, (), UNLIMITED, SegmentRules(flush_interval=0.01)
    )


def until(condition: Callable[[], bool], client: WriterClient | None = None) -> None:
    """Wait for a condition, and poll the client meanwhile."""
    deadline = time.monotonic() + hubs.PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        if client is not None:
            client.poll()
        time.sleep(0.01)


def writer_pid(client: WriterClient) -> int:
    assert client._process is not None
    return client._process._process.pid


def test_killed_process_is_replaced_and_losses_are_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = FrameBuffer(time.time_ns)
    recorder, client = ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws"), WriterClient(buffer, config(tmp_path))
    client.start()
    recorder.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: client.written_records == 1, client)
    freeze(writer_pid(client))  # later records reach its pipe, but not the disk
    recorder.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    client.poll()
    os.kill(writer_pid(client), signal.SIGKILL)
    until(lambda: client.lost_records == 1, client)
    recorder.record_received(3, Packet(b"[41,3,0,{}]"), "3")
    until(lambda: client.written_records == 3, client)
    client.stop()
    rows = records(tmp_path)
    losses = [int(str(row["reason"]).split()[0]) for row in rows if row["kind"] == "drop"]
    assert sum(losses) == client.lost_records >= 1
    assert client.written_records == len(rows)
    assert "the journal has gaps: its writer process ended (-9)" in caplog.text
    numbers = [int(str(row["seq"])) for row in rows]
    assert numbers == sorted(set(numbers))
    assert {row["op"] for row in rows if row["kind"] == "text"} == {"1", "3"}
    assert [(segment.number, segment.is_closed) for segment in list_segments(str(tmp_path))] == [(0, True), (1, True)]


def test_stuck_process_loses_records_but_does_not_block_the_hub(tmp_path: Path) -> None:
    buffer = FrameBuffer(time.time_ns)
    recorder, client = (
        ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws"),
        WriterClient(buffer, config(tmp_path), max_waiting_bytes=1 << 20),
    )
    client.start()
    freeze(writer_pid(client))
    for number in range(1000):
        recorder.record_received(number, Packet(b"x" * 10_000), "")
        client.poll()
    assert client._process is not None
    assert client._process.waiting_bytes < 2 << 20
    lost = client.lost_records
    assert 700 < lost < 900  # some records are in the pipe, some in the queue
    thaw(writer_pid(client))
    until(lambda: not client._process or not client._process.waiting_bytes, client)
    client.stop()
    rows = records(tmp_path)
    assert len(rows) + lost - 1 == 1000  # one record reports the lost ones
    assert sum(int(str(row["reason"]).split()[0]) for row in rows if row["kind"] == "drop") == lost


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_of_a_backlog_is_released(tmp_path: Path) -> None:
    buffer = FrameBuffer(time.time_ns)
    recorder, client = ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws"), WriterClient(buffer, config(tmp_path))
    client.start()
    before, others = resident(), list[bytes]()
    freeze(writer_pid(client))
    assert client._process is not None
    while client._process.waiting_bytes < 128 << 20:
        for number in range(200):
            recorder.record_received(number, Packet(b'[41,1,"%s",{}]' % (b"x" * 2000)), "")
        client.poll()
        others.append(bytes(20_000))  # like the memory of a new session that stays
    stuck = resident()
    thaw(writer_pid(client))
    until(lambda: not client._process or not client._process.waiting_bytes, client)
    client.poll()
    assert resident() - before < (stuck - before) / 2
    client.stop()
    assert (client.lost_records, len(others) > 100) == (0, True)


def test_removed_directory_is_recorded_as_lost_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer, place = FrameBuffer(time.time_ns), tmp_path / "journal"
    recorder, client = ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws"), WriterClient(buffer, config(place))
    client.start()
    recorder.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: client.written_records == 1, client)
    shutil.rmtree(place)
    until(lambda: client.lost_records == 1, client)  # noticed without new records
    recorder.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    client.stop()
    rows = records(place)
    assert [row["op"] for row in rows if row["kind"] == "text"] == ["2"]
    assert [row["reason"] for row in rows if row["kind"] == "drop"] == ["1 records could not be written"]
    assert (client.lost_records, client.written_records) == (1, 3)
    assert caplog.text.count("was removed or moved") == len(caplog.records) == 1


def test_process_ignores_termination_signals(tmp_path: Path) -> None:
    buffer = FrameBuffer(time.time_ns)
    recorder, client = ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws"), WriterClient(buffer, config(tmp_path))
    client.start()
    recorder.record_received(1, Packet(b"[41,1,0,{}]"), "1")
    until(lambda: client.written_records == 1, client)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(writer_pid(client), number)
    recorder.record_received(2, Packet(b"[41,2,0,{}]"), "2")
    client.stop()
    assert ([row["op"] for row in records(tmp_path)], client.written_records, client.lost_records) == (["1", "2"], 2, 0)


def test_forwarded_records_survive_a_killed_hub(tmp_path: Path) -> None:
    with hubs.serving("--journal", str(tmp_path), "--set", "journal.flush_interval=0.01") as hub:
        with fiveways.connect_sync(hub.url("lrpm")) as peer:
            for number in range(100):
                assert peer.call("hub.echo", number, timeout=hubs.PATIENCE) == number
        until(lambda: _echoes(tmp_path) == 100)
        hub.signal(signal.SIGKILL)
        hub.process.communicate(timeout=hubs.PATIENCE)  # the writer process has the same stderr, so it has ended too
    assert [segment.is_closed for segment in list_segments(str(tmp_path))] == [True]
    assert _echoes(tmp_path) == 100


def _echoes(directory: Path) -> int:
    return sum(b"hub.echo" in row["payload"] for row in records(directory) if isinstance(row["payload"], bytes))


def test_no_process_is_started_for_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client = WriterClient(FrameBuffer(time.time_ns), config(tmp_path / "file"))
    with pytest.raises(JournalError, match="it must be a directory"):
        client.start()
    assert client._process is None


def test_process_does_not_import_pandas(tmp_path: Path) -> None:
    buffer = FrameBuffer(time.time_ns)
    recorder = ConnectionRecorder(buffer, "s", "", "lrpm-json", "ws")
    recorder.record_marker("open", "in")
    recorder.record_received(1, Packet(b'[2,"token",{}]'), "1")
    batch = buffer.take(10)
    assert batch is not None
    stdin = pack(config(tmp_path)) + pack(batch)
    command = [sys.executable, "-X", "importtime", "-m", "fiveways.journal.writer_process"]
    done = subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=hubs.PATIENCE)  # noqa: S603
    assert b"pyarrow.parquet" in done.stderr
    assert b"pandas" not in done.stderr
    assert [row["payload"] for row in records(tmp_path)] == [None, b'[2,"***",{}]']


def test_hub_does_not_import_pyarrow() -> None:
    code = "import sys, fiveways.runtime.hub_journal, fiveways.runtime.server; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=hubs.PATIENCE)  # noqa: S603
    assert done.stdout == b"False\n"
