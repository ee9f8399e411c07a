"""`pipeline watch`: Structured Streaming runs an increment whenever segments are closed.

The state file names the segments of the tables, and an increment replaces both at once; Spark's checkpoint has the
position of the stream. The stream may therefore be killed at any time: a repeated batch either finds its segments in
the tables, or decodes them from the start.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fiveways.journal.file_permissions import OWNER_ONLY, FilePermissions
from fiveways.journal.reader import Segment
from fiveways.pipeline import batch_run, pending_segments
from fiveways.pipeline.errors import BadInput, PipelineError
from fiveways.pipeline.increment import JOB_GROUP, Increment, empty_state
from fiveways.pipeline.progress import NoProgress, ProgressReporter
from fiveways.pipeline.segment_log import (
    LINE_COLUMN,
    OFFSET_KEY,
    SOURCE_FORMAT,
    LogEntry,
    SegmentLog,
    SegmentLogSource,
    log_entry,
    newest_record_time,
    segment_exists,
)
from fiveways.pipeline.spark_session import SparkSettings
from fiveways.pipeline.state import PipelineState
from fiveways.pipeline.table_directory import TableDirectory

_LOG_FILE: Final = "landed.jsonl"
_POLL_INTERVAL: Final = 1
"""Seconds between two checks of the query, and the maximum delay of Ctrl-C."""
_START_TIMEOUT: Final = 300.0
"""Seconds in which the query is restarted after a timeout: Spark gives the Python process of a source 10 seconds, too
few on a busy machine, where six attempts in a row have failed."""
_WORKER_TIMEOUT_TEXT: Final = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of `pipeline watch`."""

    journal: str
    out: Path
    settings: SparkSettings = field(default_factory=SparkSettings)
    delay: float = 600.0
    """Allowed lateness in seconds: how much older than the newest earlier record a record may be."""
    every: float = 1.0
    """Seconds between two checks for new segments."""
    until_end: bool = False
    checkpoint: Path | None = None
    access: FilePermissions = OWNER_ONLY
    """File permissions of the tables."""


@dataclass(frozen=True, slots=True)
class IncrementReport:
    """Result of one increment."""

    batch: int
    segments: int
    records: int
    lag: float
    """Seconds from the arrival of the oldest of these segments, or from the stream's start, to the commit."""
    seconds: float
    state: PipelineState
    notes: list[str]


def watch(
    options: WatchOptions,
    on_increment: Callable[[IncrementReport], None],
    progress: ProgressReporter | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Follow a journal until Ctrl-C, or to its end; report each increment."""
    output = TableDirectory(options.out, options.access)
    journal = batch_run.journal_location(options.journal)
    with output.lock():
        before = _existing_state(output, options, journal)
        if not pending_segments.closed_segments(journal) and options.until_end and before is None:
            raise BadInput(f"{options.journal} has no closed segment (no file *.parquet)")
        checkpoint = options.checkpoint or output.path.parent / f".{output.path.name}.checkpoint"
        log = SegmentLog(checkpoint / _LOG_FILE)
        _reconcile_log(checkpoint, log, journal, before)
        OWNER_ONLY.make_directory(checkpoint)
        progress = progress or NoProgress()
        progress.start_phase("starting Spark")
        with batch_run.prepared_spark(options.settings, spark, [journal, str(output.path.parent)]) as running:
            stream = _StreamingQueryRunner(
                running, output, before or empty_state(journal, None, None), progress, on_increment
            )
            stream.run(options, journal, checkpoint)


def _existing_state(output: TableDirectory, options: WatchOptions, journal: str) -> PipelineState | None:
    before = output.read_state()
    if before is None:
        return None
    if before.journal != journal:
        raise PipelineError(f"{options.out} was made from {before.journal}; choose another --out")
    if before.from_at is not None or before.to_at is not None:
        raise PipelineError(f"{options.out} was made with --from or --to; choose another --out")
    return before


def _reconcile_log(checkpoint: Path, log: SegmentLog, journal: str, before: PipelineState | None) -> None:
    """Make the log match the tables: append missing segments, or start anew if the tables lack some of the log."""
    known = {record.name: record for record in before.segments} if before else {}
    lines = log.read()
    committed = _committed_entries(checkpoint)
    if any(line.name not in known and not line.error for line in lines[:committed]):
        with suppress(FileNotFoundError):
            shutil.rmtree(checkpoint)
        lines = []
    elif any(line.error for line in lines):
        lines = [_recheck_entry(line) for line in lines]
        log.rewrite(lines)
    logged = {line.name for line in lines}
    present = {segment.name: segment for segment in pending_segments.closed_segments(journal)}
    missing = [record for record in known.values() if record.name not in logged]
    missing.sort(key=lambda record: (record.last_at or 0, record.name))
    deleted = _segment("", 0)
    log.append(
        [_with_name(log_entry(present.get(record.name, deleted), record.last_at), record.name) for record in missing]
    )


def _segment(path: str, size: int) -> Segment:
    return Segment("", 0, path, size, is_closed=True)


def _with_name(line: LogEntry, name: str) -> LogEntry:
    return msgspec.structs.replace(line, name=name)


def _recheck_entry(line: LogEntry) -> LogEntry:
    """Check again a segment that was unreadable, because it may have been repaired."""
    if not line.error or not segment_exists(line):
        return line
    last_at, error = newest_record_time(line.path)
    return msgspec.structs.replace(line, last_at=last_at, error=error)


def _committed_entries(checkpoint: Path) -> int:
    """Return the number of log lines in batches that Spark has committed."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not commits:
        return 0
    offset = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[-1]
    return int(msgspec.json.decode(offset.encode())[OFFSET_KEY])


class _StreamingQueryRunner:
    """Streaming query and the tables that it extends."""

    def __init__(
        self,
        spark: SparkSession,
        output: TableDirectory,
        state: PipelineState,
        progress: ProgressReporter,
        on_increment: Callable[[IncrementReport], None],
    ) -> None:
        self._spark = spark
        self._output = output
        self._state = state
        self._progress = progress
        self._on_increment = on_increment
        self._started = time.time()
        self._failure: Exception | None = None

    def run(self, options: WatchOptions, journal: str, checkpoint: Path) -> None:
        """Read the journal as a stream until it ends or is interrupted."""
        self._spark.dataSource.register(SegmentLogSource)
        source = {"journal": journal, "log": str(checkpoint / _LOG_FILE), "delay": repr(options.delay)}
        lines = self._spark.readStream.format(SOURCE_FORMAT).options(**source).load()
        writer = lines.writeStream.foreachBatch(self._process_batch).option(
            "checkpointLocation", f"file://{checkpoint}"
        )
        if options.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{options.every} seconds")
        self._progress.start_phase("waiting for segments")
        give_up = time.monotonic() + _START_TIMEOUT
        while True:
            query = writer.start()
            try:
                self._await(query)
            except PySparkException as exc:
                if _WORKER_TIMEOUT_TEXT not in str(exc) or time.monotonic() > give_up:
                    raise
                self._progress.start_phase("waiting for Spark to start a Python process; the machine is busy")
            else:
                return
            finally:
                self._spark.sparkContext.cancelJobGroup(JOB_GROUP)
                with suppress(Exception):  # the query may have ended
                    query.stop()

    def _await(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_INTERVAL):
                pass
        except KeyboardInterrupt:
            return
        except PySparkException as exc:
            if self._failure is not None:
                raise self._failure from exc
            raise

    def _process_batch(self, frame: DataFrame, batch: int) -> None:
        """Run an increment; Spark repeats a batch if it did not record its end."""
        lines = [msgspec.json.decode(row[LINE_COLUMN], type=LogEntry) for row in frame.collect()]
        # Jobs of the query's thread are cancelled with the query; the increment uses its own thread and job group.
        with ThreadPoolExecutor(1, thread_name_prefix="increment") as executor:
            try:
                executor.submit(self._run_increment, lines, batch).result()
            except Exception as exc:
                self._failure = exc
                raise

    def _run_increment(self, lines: Sequence[LogEntry], batch: int) -> None:
        started = time.time()
        known = {record.name for record in self._state.segments}
        new, notes = _readable_entries([line for line in lines if line.name not in known])
        if not new:
            return
        notes += pending_segments.check_segments(line.path for line in new)
        increment = Increment(self._spark, self._output, self._state)
        increment.begin(keep_late=True)
        segments = [_segment(line.path, line.size) for line in new]
        self._progress.start_phase("reading segments", len(new))
        tasks = [increment.decode_task(segment, line.watermark) for segment, line in zip(segments, new, strict=True)]
        summaries = batch_run.decode_segments(self._spark, increment, tasks, self._progress)
        records = sum(summary.records for summary in summaries)
        if not records and not self._state.parts:
            return  # there are no records yet
        self._state = increment.commit(list(zip(segments, summaries, strict=True)), self._progress, keep_late=True)
        now = time.time()
        lag = now - max(self._started, min(line.landed_at for line in new))
        self._on_increment(IncrementReport(batch, len(new), records, lag, now - started, self._state, notes))
        self._progress.start_phase("waiting for segments")


def _readable_entries(lines: Sequence[LogEntry]) -> tuple[list[LogEntry], list[str]]:
    """Return the segments to read, and notes on deleted ones; raise BadInput if a segment is unreadable."""
    present = [line for line in lines if segment_exists(line)]
    for line in present:
        if line.error:
            raise BadInput(line.error)
    notes = [f"{line.path} was deleted" for line in lines if line not in present]
    return present, notes
