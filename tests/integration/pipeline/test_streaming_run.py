"""`pipeline watch`: the tables of a stream equal those of a batch run, even after interruptions."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from fiveways.pipeline import batch_run, streaming_run
from fiveways.pipeline.errors import BadInput, TablesLocked
from fiveways.pipeline.streaming_run import IncrementReport, WatchOptions
from tests.support import captures
from tests.support.captures import NOON, SECOND, RecordBuilder
from tests.support.waiting import until_sync

TIMEOUT = 600.0


def watch(spark: SparkSession, journal: Path, out: Path, delay: float = 600.0) -> list[IncrementReport]:
    steps: list[IncrementReport] = []
    streaming_run.watch(WatchOptions(str(journal), out, delay=delay, until_end=True), steps.append, spark=spark)
    return steps


def batch(spark: SparkSession, journal: Path, out: Path) -> dict[str, captures.Rows]:
    batch_run.run(batch_run.RunOptions(str(journal), out), spark=spark)
    return captures.read_tables(out)


def test_stream_gives_the_same_tables_as_a_batch(
    spark: SparkSession, over_midnight: captures.JournalTables, tmp_path: Path
) -> None:
    journal, out = tmp_path / "journal", tmp_path / "stream"
    records = captures.over_midnight()
    Random(1).shuffle(records)  # disorder within the allowed lateness
    paths = captures.write_segments(tmp_path / "all", records, 4)
    journal.mkdir()
    for added in (paths[:1], paths[1:]):  # segments that arrive between two streams are found by the next one
        for path in added:
            (journal / path.name).write_bytes(path.read_bytes())
        (step,) = watch(spark, journal, out, delay=86_400 * 4)
        assert step.segments == len(added)
    assert watch(spark, journal, out) == []
    assert captures.read_tables(out) == over_midnight.tables
    assert captures.leftover_files(out) == []


@pytest.mark.usefixtures("few_tables")
def test_late_records_are_included_by_the_next_batch_run(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_calls(range(10))
    early = builder.records[:20]
    builder.at = NOON + 60 * SECOND
    builder.add_calls(range(10, 20))
    captures.write_segment(journal, builder.records[20:], 1)
    watch(spark, journal, out, delay=30.0)
    captures.write_segment(journal, early, 2)
    (step,) = watch(spark, journal, out, delay=30.0)
    assert (step.state.late, step.state.rows["late"]) == (20, 20)
    assert captures.count_rows(out, "late", watermark=builder.at - 30 * SECOND) == 20
    assert captures.count_rows(out, "messages") == len(builder.records) - 20
    assert captures.count_rows(out, "calls", outcome="result") < 20
    assert captures.count_rows(out, "orphans") > 0
    # Copies of records that were read, late or not, are skipped.
    (journal / "copy-1.parquet").write_bytes((journal / "r1-000001.parquet").read_bytes())
    (journal / "copy-2.parquet").write_bytes((journal / "r1-000002.parquet").read_bytes())
    (step,) = watch(spark, journal, out, delay=30.0)
    assert (step.segments, step.records, step.state.late, step.state.rows["late"]) == (2, 0, 20, 20)
    captures.write_segment(journal, [*early[:5], *builder.records[-5:]], 3)
    report = batch_run.run(batch_run.RunOptions(str(journal), out), spark=spark)
    assert (report.segments, report.records, report.state.late) == (2, 20, 0)
    assert captures.read_tables(out) == batch(spark, journal, tmp_path / "batch")
    assert captures.count_rows(out, "calls", outcome="result") == 20
    assert watch(spark, journal, out, delay=30.0) == []


@pytest.mark.usefixtures("few_tables")
def test_query_is_restarted_after_a_slow_source_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, started, python = tmp_path / "journal", tmp_path / "started", tmp_path / "python"
    # Spark waits for 10 seconds, even for a process that has ended.
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *streaming_source_runner*) echo >>{started}; [ $(wc -l <{started}) -gt 1 ] || exit 1;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    builder = RecordBuilder()
    builder.add_calls(range(8))
    captures.write_segments(journal, builder.records, 2)
    (step,) = watch(spark, journal, tmp_path / "out")
    assert step.segments == 2
    # On a busy machine more starts may be too slow than the one that fails here.
    assert len(started.read_text().splitlines()) >= 2


@pytest.mark.usefixtures("few_tables")
def test_deleted_tables_are_rebuilt_by_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_calls(range(8))
    captures.write_segments(journal, builder.records, 2)
    watch(spark, journal, out)
    out.rename(tmp_path / "away")
    (step,) = watch(spark, journal, out)
    assert step.segments == 2
    assert captures.read_tables(out) == captures.read_tables(tmp_path / "away")


@pytest.mark.usefixtures("few_tables")
def test_unreadable_segment_stops_the_stream_until_it_is_repaired(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_calls(range(8))
    captures.write_segment(journal, builder.records[:16], 1)
    watch(spark, journal, out)
    before = captures.read_tables(out)
    path = captures.write_segment(journal, builder.records[16:], 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(BadInput, match=str(path)):
        watch(spark, journal, out)
    assert captures.read_tables(out) == before
    path.write_bytes(whole)
    (step,) = watch(spark, journal, out)
    assert step.segments == 1
    assert captures.read_tables(out) == batch(spark, journal, tmp_path / "batch")


@pytest.mark.usefixtures("few_tables")
def test_stream_follows_a_growing_journal(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    journal.mkdir()
    builder = RecordBuilder()
    builder.add_calls(range(12))
    steps: list[IncrementReport] = []
    options = WatchOptions(str(journal), out, every=0.1)
    ended: list[BaseException] = []

    def follow() -> None:
        try:
            streaming_run.watch(options, steps.append, spark=spark)
        except BaseException as exc:  # noqa: BLE001  checked below
            ended.append(exc)

    thread = Thread(target=follow, daemon=True)
    thread.start()
    for number in range(3):
        captures.write_segment(journal, builder.records[number * 16 : number * 16 + 16], number + 1)
        until_sync(lambda: sum(step.segments for step in steps) > number or bool(ended))  # noqa: B023  ends before the next
    assert not ended
    assert all(step.lag >= 0 for step in steps)
    with pytest.raises(TablesLocked):
        batch_run.run(batch_run.RunOptions(str(journal), out), spark=spark)
    for query in spark.streams.active:
        query.stop()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert captures.read_tables(out) == batch(spark, journal, tmp_path / "batch")


@contextmanager
def watching(journal: Path, out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `fiveways pipeline watch` in a process, and kill it at the end, with its Java."""
    arguments = ["pipeline", "watch", "--journal", str(journal), "--out", str(out), "--master", "local[2]", *more]
    arguments += captures.quick_java_options()
    code = "import sys; from tests.support import captures; sys.exit(captures.main_with_few_tables())"
    process = subprocess.Popen(  # noqa: S603  own program
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)


@pytest.mark.usefixtures("few_tables")
def test_killed_stream_resumes_with_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    builder = RecordBuilder()
    builder.add_open_sessions()
    builder.add_calls(range(40))
    paths = captures.write_segments(tmp_path / "all", builder.records, 4)
    journal.mkdir()
    moments: list[Callable[[], bool]] = [  # during a batch, and between two batches
        (tmp_path / ".out.next" / "calls").exists,
        lambda: segments_in(out) >= 2,
    ]
    for added, moment in zip((paths[:2], paths[2:3]), moments, strict=True):
        with watching(journal, out) as process:
            for path in added:
                (journal / path.name).write_bytes(path.read_bytes())
            until_sync(lambda: moment() or process.poll() is not None)  # noqa: B023  ends before the next turn
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
    (journal / paths[3].name).write_bytes(paths[3].read_bytes())
    watch(spark, journal, out)
    assert captures.read_tables(out) == batch(spark, journal, tmp_path / "batch")
    assert captures.leftover_files(out) == []


def segments_in(out: Path) -> int:
    try:
        return (out / "_run.json").read_text().count('"records"')
    except FileNotFoundError:
        return 0
