"""`pipeline watch`: the same step as `pipeline run`, taken by Structured Streaming whenever segments are closed.

The tables themselves say which segments they were made from, and a step puts both in place at once. Spark's checkpoint
says how far the stream is. So it does not matter when the stream is killed: a batch that comes again finds its segments
in the tables already, or does them again from the start.
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
from fiveways.pipeline import batch_run, bronze
from fiveways.pipeline.errors import BadInput, PipelineError
from fiveways.pipeline.increment import JOB_GROUP, Increment, empty_state
from fiveways.pipeline.progress import NoProgress, ProgressReporter
from fiveways.pipeline.segment_log import (
    LINE_COLUMN,
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
"""Seconds between two looks at the query; Ctrl-C waits no longer."""
_START_TIMEOUT: Final = 300.0
"""Seconds in which the query is started again: Spark gives the Python process of a source 10 seconds, too few on a busy
machine, where six attempts in a row have failed."""
_WORKER_TIMEOUT_TEXT: Final = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the user wants."""

    journal: str
    out: Path
    settings: SparkSettings = field(default_factory=SparkSettings)
    delay: float = 600.0
    """Seconds that a record may be older than the newest one before it."""
    every: float = 1.0
    until_end: bool = False
    checkpoint: Path | None = None
    access: FilePermissions = OWNER_ONLY
    """The readers of the tables."""


@dataclass(frozen=True, slots=True)
class IncrementReport:
    """One step that was taken."""

    batch: int
    segments: int
    records: int
    lag: float
    """Seconds from the landing of the oldest of these segments, or from the stream's start, to its rows in tables."""
    seconds: float
    state: PipelineState
    notes: list[str]


def watch(
    wish: WatchOptions,
    told: Callable[[IncrementReport], None],
    teller: ProgressReporter | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Follow a journal until Ctrl-C, or to its end; tell of each step."""
    output = TableDirectory(wish.out, wish.access)
    journal = batch_run.journal_location(wish.journal)
    with output.lock():
        before = _existing_state(output, wish, journal)
        if not bronze.closed_segments(journal) and wish.until_end and before is None:
            raise BadInput(f"{wish.journal} has no closed segment, that is no file *.parquet")
        checkpoint = wish.checkpoint or output.path.parent / f".{output.path.name}.checkpoint"
        log = SegmentLog(checkpoint / _LOG_FILE)
        _reconcile_log(checkpoint, log, journal, before)
        OWNER_ONLY.make_directory(checkpoint)
        teller = teller or NoProgress()
        teller.start_phase("starting Spark")
        with batch_run.prepared_spark(wish.settings, spark, [journal, str(output.path.parent)]) as running:
            stream = _StreamingQueryRunner(running, output, before or empty_state(journal, None, None), teller, told)
            stream.run(wish, journal, checkpoint)


def _existing_state(output: TableDirectory, wish: WatchOptions, journal: str) -> PipelineState | None:
    before = output.read_state()
    if before is None:
        return None
    if before.journal != journal:
        raise PipelineError(f"{wish.out} was made from {before.journal}; give another --out")
    if before.from_at is not None or before.to_at is not None:
        raise PipelineError(f"{wish.out} was made with --from or --to; give another --out")
    return before


def _reconcile_log(checkpoint: Path, log: SegmentLog, journal: str, before: PipelineState | None) -> None:
    """Let log and tables agree: what the tables have is in the log; a log that has more than they is begun anew."""
    known = {each.name: each for each in before.segments} if before else {}
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
    there = {each.name: each for each in bronze.closed_segments(journal)}
    missing = [each for each in known.values() if each.name not in logged]
    missing.sort(key=lambda each: (each.last_at or 0, each.name))
    gone = Segment("", 0, "", 0, is_closed=True)
    log.append([_with_name(log_entry(there.get(each.name, gone), each.last_at), each.name) for each in missing])


def _with_name(line: LogEntry, name: str) -> LogEntry:
    return msgspec.structs.replace(line, name=name)


def _recheck_entry(line: LogEntry) -> LogEntry:
    """Return the line of a segment that may have been mended since it was found to be bad."""
    if not line.error or not segment_exists(line):
        return line
    last_at, error = newest_record_time(line.path)
    return msgspec.structs.replace(line, last_at=last_at, error=error)


def _committed_entries(checkpoint: Path) -> int:
    """Return how many lines are in batches that Spark will not begin again."""
    commits = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdigit()]
    if not commits:
        return 0
    offset = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[-1]
    return int(msgspec.json.decode(offset.encode())["landed"])


class _StreamingQueryRunner:
    """A running query, and the tables that it brings forward."""

    def __init__(
        self,
        spark: SparkSession,
        output: TableDirectory,
        state: PipelineState,
        teller: ProgressReporter,
        told: Callable[[IncrementReport], None],
    ) -> None:
        self._spark = spark
        self._output = output
        self._state = state
        self._progress = teller
        self._on_increment = told
        self._started = time.time()
        self._failure: Exception | None = None

    def run(self, wish: WatchOptions, journal: str, checkpoint: Path) -> None:
        """Read the journal as a stream, until it ends or is ended."""
        self._spark.dataSource.register(SegmentLogSource)
        options = {"journal": journal, "log": str(checkpoint / _LOG_FILE), "delay": repr(wish.delay)}
        lines = self._spark.readStream.format(SOURCE_FORMAT).options(**options).load()
        writer = lines.writeStream.foreachBatch(self._process_batch).option(
            "checkpointLocation", f"file://{checkpoint}"
        )
        if wish.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{wish.every} seconds")
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
                with suppress(Exception):  # it may have ended by itself
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
        """Take one step; Spark calls this for each batch, and again for one that it does not know the end of."""
        lines = [msgspec.json.decode(row[LINE_COLUMN], type=LogEntry) for row in frame.collect()]
        # What Spark counts to the query is cancelled with it: a step has threads, and a group, of its own.
        with ThreadPoolExecutor(1, thread_name_prefix="step") as own:
            try:
                own.submit(self._run_increment, lines, batch).result()
            except Exception as exc:
                self._failure = exc
                raise

    def _run_increment(self, lines: Sequence[LogEntry], batch: int) -> None:
        started = time.time()
        known = {each.name for each in self._state.segments}
        new, notes = _readable_entries([line for line in lines if line.name not in known])
        if not new:
            return
        notes += bronze.check_segments(line.path for line in new)
        step = Increment(self._spark, self._output, self._state)
        step.begin(keep_late=True)
        segments = [Segment("", 0, line.path, line.size, is_closed=True) for line in new]
        self._progress.start_phase("reading segments", len(new))
        tasks = [step.decode_task(segment, line.watermark) for segment, line in zip(segments, new, strict=True)]
        found = batch_run.decode_segments(self._spark, step, tasks, self._progress)
        records = sum(each.records for each in found)
        if not records and not self._state.parts:
            return  # nothing to make tables of yet
        self._state = step.commit(list(zip(segments, found, strict=True)), self._progress, keep_late=True)
        now = time.time()
        lag = now - max(self._started, min(line.landed_at for line in new))
        self._on_increment(IncrementReport(batch, len(new), records, lag, now - started, self._state, notes))
        self._progress.start_phase("waiting for segments")


def _readable_entries(lines: Sequence[LogEntry]) -> tuple[list[LogEntry], list[str]]:
    """Return what is to be read, and notes on what is there no longer."""
    here = [line for line in lines if segment_exists(line)]
    for line in here:
        if line.error:
            raise BadInput(line.error)
    notes = [f"{line.path} is not there any more" for line in lines if line not in here]
    return here, notes
