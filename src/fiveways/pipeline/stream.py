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

from fiveways.journal.access import PRIVATE, Access
from fiveways.journal.reader import Segment
from fiveways.pipeline import bronze, job
from fiveways.pipeline.advance import GROUP, Step, nothing
from fiveways.pipeline.errors import BadInput, PipelineError
from fiveways.pipeline.landing import COLUMN, FORMAT, Landed, Log, Source, is_there, line_of, newest
from fiveways.pipeline.output import Output
from fiveways.pipeline.progress import Silent, Teller
from fiveways.pipeline.session import Settings
from fiveways.pipeline.state import State

_LOG: Final = "landed.jsonl"
_LOOK: Final = 1
"""Seconds between two looks at the query; Ctrl-C waits no longer."""
_START_WITHIN: Final = 300.0
"""Seconds in which the query is started again: Spark gives the Python process of a source 10 seconds, too few on a busy
machine, where six attempts in a row have failed."""
_TOO_SLOW: Final = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants."""

    journal: str
    out: Path
    settings: Settings = field(default_factory=Settings)
    delay: float = 600.0
    """Seconds that a record may be older than the newest one before it."""
    every: float = 1.0
    until_end: bool = False
    checkpoint: Path | None = None
    access: Access = PRIVATE
    """The readers of the tables."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step that was taken."""

    batch: int
    segments: int
    records: int
    lag: float
    """Seconds from the landing of the oldest of these segments, or from the stream's start, to its rows in tables."""
    seconds: float
    state: State
    notes: list[str]


def watch(
    wish: Wish,
    told: Callable[[Stepped], None],
    teller: Teller | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Follow a journal until Ctrl-C, or to its end; tell of each step."""
    output = Output(wish.out, wish.access)
    journal = job.located(wish.journal)
    with output.locked():
        before = _standing(output, wish, journal)
        if not bronze.closed(journal) and wish.until_end and before is None:
            raise BadInput(f"{wish.journal} has no closed segment, that is no file *.parquet")
        checkpoint = wish.checkpoint or output.path.parent / f".{output.path.name}.checkpoint"
        log = Log(checkpoint / _LOG)
        _reconcile(checkpoint, log, journal, before)
        PRIVATE.make_directory(checkpoint)
        teller = teller or Silent()
        teller.begin("starting Spark")
        with job.having_spark(wish.settings, spark, [journal, str(output.path.parent)]) as running:
            stream = _Stream(running, output, before or nothing(journal, None, None), teller, told)
            stream.run(wish, journal, checkpoint)


def _standing(output: Output, wish: Wish, journal: str) -> State | None:
    before = output.state()
    if before is None:
        return None
    if before.journal != journal:
        raise PipelineError(f"{wish.out} was made from {before.journal}; give another --out")
    if before.from_at is not None or before.to_at is not None:
        raise PipelineError(f"{wish.out} was made with --from or --to; give another --out")
    return before


def _reconcile(checkpoint: Path, log: Log, journal: str, before: State | None) -> None:
    """Let log and tables agree: what the tables have is in the log; a log that has more than they is begun anew."""
    known = {each.name: each for each in before.segments} if before else {}
    lines = log.read()
    committed = _committed(checkpoint)
    if any(line.name not in known and not line.error for line in lines[:committed]):
        with suppress(FileNotFoundError):
            shutil.rmtree(checkpoint)
        lines = []
    elif any(line.error for line in lines):
        lines = [_looked_at_again(line) for line in lines]
        log.rewrite(lines)
    logged = {line.name for line in lines}
    there = {each.name: each for each in bronze.closed(journal)}
    missing = [each for each in known.values() if each.name not in logged]
    missing.sort(key=lambda each: (each.last_at or 0, each.name))
    gone = Segment("", 0, "", 0, is_closed=True)
    log.add([_renamed(line_of(there.get(each.name, gone), each.last_at), each.name) for each in missing])


def _renamed(line: Landed, name: str) -> Landed:
    return msgspec.structs.replace(line, name=name)


def _looked_at_again(line: Landed) -> Landed:
    """Return the line of a segment that may have been mended since it was found to be bad."""
    if not line.error or not is_there(line):
        return line
    last_at, error = newest(line.path)
    return msgspec.structs.replace(line, last_at=last_at, error=error)


def _committed(checkpoint: Path) -> int:
    """Return how many lines are in batches that Spark will not begin again."""
    commits = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdigit()]
    if not commits:
        return 0
    offset = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[-1]
    return int(msgspec.json.decode(offset.encode())["landed"])


class _Stream:
    """A running query, and the tables that it brings forward."""

    def __init__(
        self, spark: SparkSession, output: Output, state: State, teller: Teller, told: Callable[[Stepped], None]
    ) -> None:
        self._spark = spark
        self._output = output
        self._state = state
        self._teller = teller
        self._told = told
        self._started = time.time()
        self._failure: Exception | None = None

    def run(self, wish: Wish, journal: str, checkpoint: Path) -> None:
        """Read the journal as a stream, until it ends or is ended."""
        self._spark.dataSource.register(Source)
        options = {"journal": journal, "log": str(checkpoint / _LOG), "delay": repr(wish.delay)}
        lines = self._spark.readStream.format(FORMAT).options(**options).load()
        writer = lines.writeStream.foreachBatch(self._batch).option("checkpointLocation", f"file://{checkpoint}")
        if wish.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{wish.every} seconds")
        self._teller.begin("waiting for segments")
        give_up = time.monotonic() + _START_WITHIN
        while True:
            query = writer.start()
            try:
                self._await(query)
            except PySparkException as exc:
                if _TOO_SLOW not in str(exc) or time.monotonic() > give_up:
                    raise
                self._teller.begin("waiting for Spark to start a Python process; the machine is busy")
            else:
                return
            finally:
                self._spark.sparkContext.cancelJobGroup(GROUP)
                with suppress(Exception):  # it may have ended by itself
                    query.stop()

    def _await(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_LOOK):
                pass
        except KeyboardInterrupt:
            return
        except PySparkException as exc:
            if self._failure is not None:
                raise self._failure from exc
            raise

    def _batch(self, frame: DataFrame, batch: int) -> None:
        """Take one step; Spark calls this for each batch, and again for one that it does not know the end of."""
        lines = [msgspec.json.decode(row[COLUMN], type=Landed) for row in frame.collect()]
        # What Spark counts to the query is cancelled with it: a step has threads, and a group, of its own.
        with ThreadPoolExecutor(1, thread_name_prefix="step") as own:
            try:
                own.submit(self._step, lines, batch).result()
            except Exception as exc:
                self._failure = exc
                raise

    def _step(self, lines: Sequence[Landed], batch: int) -> None:
        started = time.time()
        known = {each.name for each in self._state.segments}
        new, notes = _readable([line for line in lines if line.name not in known])
        if not new:
            return
        notes += bronze.look(line.path for line in new)
        step = Step(self._spark, self._output, self._state)
        step.begin(keep_late=True)
        segments = [Segment("", 0, line.path, line.size, is_closed=True) for line in new]
        self._teller.begin("reading segments", len(new))
        tasks = [step.task(segment, line.watermark) for segment, line in zip(segments, new, strict=True)]
        found = job.read_all(self._spark, step, tasks, self._teller)
        records = sum(each.records for each in found)
        if not records and not self._state.parts:
            return  # nothing to make tables of yet
        self._state = step.end(list(zip(segments, found, strict=True)), self._teller, keep_late=True)
        now = time.time()
        lag = now - max(self._started, min(line.landed_at for line in new))
        self._told(Stepped(batch, len(new), records, lag, now - started, self._state, notes))
        self._teller.begin("waiting for segments")


def _readable(lines: Sequence[Landed]) -> tuple[list[Landed], list[str]]:
    """Return what is to be read, and notes on what is there no longer."""
    here = [line for line in lines if is_there(line)]
    for line in here:
        if line.error:
            raise BadInput(line.error)
    notes = [f"{line.path} is not there any more" for line in lines if line not in here]
    return here, notes
