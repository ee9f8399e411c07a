"""`pipeline run`: what is new in a journal becomes rows, and the tables that they belong to are made anew."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from fiveways.journal.file_permissions import OWNER_ONLY, FilePermissions
from fiveways.journal.reader import Segment
from fiveways.pipeline import bronze, executor_setup, spark_session
from fiveways.pipeline.errors import BadInput, PipelineError, SparkFailed
from fiveways.pipeline.progress import NoProgress, ProgressReporter
from fiveways.pipeline.spark_session import SparkSettings
from fiveways.pipeline.table_directory import TableDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fiveways.pipeline.increment import Increment
    from fiveways.pipeline.segment_decoder import DecodeTask, SegmentSummary
    from fiveways.pipeline.state import PipelineState


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user wants."""

    journal: str
    out: Path
    settings: SparkSettings = field(default_factory=SparkSettings)
    is_full: bool = False
    """Whether all segments are read again."""
    from_at: int | None = None
    """Leave out records before that time, in ns since 1970."""
    to_at: int | None = None
    """And those from that time on."""
    access: FilePermissions = OWNER_ONLY
    """The readers of the tables."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What was done."""

    segments: int
    """Segments that were read now."""
    records: int
    state: "PipelineState"
    notes: list[str]
    seconds: float


def run(wish: RunOptions, teller: ProgressReporter | None = None, spark: "SparkSession | None" = None) -> RunReport:
    """Bring the tables up to the closed segments of a journal.

    Args:
        wish: What is wanted.
        teller: Is told how far it is.
        spark: A Spark that is running already, instead of one of its own.

    Raises:
        PipelineError: It could not be done; the tables are as they were.
    """
    teller = teller or NoProgress()
    started = perf_counter()
    output = TableDirectory(wish.out, wish.access)
    journal = journal_location(wish.journal)
    spark_session.require_spark()
    with output.lock():
        before, notes = reusable_state(output, wish, journal)
        todo = bronze.find_pending_segments(journal, before)
        notes += todo.notes
        if todo.is_empty and before is not None:
            return RunReport(0, 0, before, notes, perf_counter() - started)
        teller.start_phase("starting Spark")
        directories = [journal, str(output.path.parent)]
        with prepared_spark(wish.settings, spark, directories) as running:
            from fiveways.pipeline import increment  # noqa: PLC0415  pyspark is known to be here

            step = increment.Increment(
                running, output, before or increment.empty_state(journal, wish.from_at, wish.to_at)
            )
            step.begin()
            tasks = [
                *map(step.decode_task, todo.new_segments),
                *(step.late_decode_task(*each) for each in todo.segments_with_late_records),
            ]
            read = [*todo.new_segments, *(segment for segment, _ in todo.segments_with_late_records)]
            teller.start_phase("reading segments", len(tasks))
            summaries = decode_segments(running, step, tasks, teller)
            state = step.commit(list(zip(read, summaries, strict=True)), teller)
    records = sum(each.records for each in summaries)
    return RunReport(len(tasks), records, state, notes, perf_counter() - started)


def reusable_state(output: TableDirectory, wish: RunOptions, journal: str) -> tuple["PipelineState | None", list[str]]:
    """Return what can be added to, and what there is to say about it; None if all has to be made anew."""
    before = None if wish.is_full else output.read_state()
    if before is None:
        is_old = not wish.is_full and output.path.exists() and any(output.path.iterdir())
        return None, ["the tables are of another version, all are made anew"] if is_old else []
    if before.journal != journal:
        raise PipelineError(f"{wish.out} was made from {before.journal}; --full makes it anew from {wish.journal}")
    if (before.from_at, before.to_at) != (wish.from_at, wish.to_at):
        return None, ["--from or --to are others than before, all tables are made anew"]
    return before, []


def journal_location(journal: str) -> str:
    """Return a journal's path as workers elsewhere know it too; a URL is that already."""
    return journal if "://" in journal else os.path.abspath(journal)  # noqa: PTH100  it need not be there


def decode_segments(
    spark: "SparkSession", step: "Increment", tasks: Sequence["DecodeTask"], teller: ProgressReporter
) -> list["SegmentSummary"]:
    """Read segments; records that are in several of them, or were read before, are taken once. BadInput if one is bad.

    Nobody knows what is in a segment before it is read, and nearly all have records of their own alone: the few others
    are read again.
    """
    summaries = _decode_all(spark, tasks, teller)
    _raise_for_errors(summaries)
    again = step.tasks_with_duplicates(tasks)
    if again:
        found = _decode_all(spark, list(again.values()), teller)
        _raise_for_errors(found)
        for place, summary in zip(again, found, strict=True):
            summaries[place] = summary
    return summaries


def _decode_all(
    spark: "SparkSession", tasks: Sequence["DecodeTask"], teller: ProgressReporter
) -> list["SegmentSummary"]:
    """Read segments, each in one task of Spark."""
    from fiveways.pipeline.increment import JOB_GROUP  # noqa: PLC0415
    from fiveways.pipeline.segment_decoder import decode_segment  # noqa: PLC0415

    context = spark.sparkContext
    context.setJobGroup(JOB_GROUP, "read segments", interruptOnCancel=True)
    teller.watch_spark(context)
    # The largest first: a large one at the end would keep one core busy while the others have nothing left.
    order = sorted(range(len(tasks)), key=lambda each: -_file_size(tasks[each].path))
    pieces = context.parallelize([tasks[each] for each in order], len(order))
    found = pieces.map(decode_segment).collect()
    back: list[SegmentSummary] = [found[0]] * len(found)
    for place, summary in zip(order, found, strict=True):
        back[place] = summary
    return back


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _raise_for_errors(summaries: Sequence["SegmentSummary"]) -> None:
    """Raise BadInput if a segment could not be read."""
    for summary in summaries:
        if summary.error:
            raise BadInput(summary.error)


@contextmanager
def prepared_spark(
    settings: SparkSettings, running: "SparkSession | None", directories: Sequence[str]
) -> Iterator["SparkSession"]:
    """Have Spark, one that runs already or one of our own, with workers that can do the work in these directories."""
    started = nullcontext(running) if running is not None else spark_session.open_spark(settings)
    # Java is asked for the words of its own errors, so that these are read while it still runs.
    with (
        started as spark,
        _translate_spark_errors(),
        executor_setup.package_on_workers(spark.sparkContext, directories),
    ):
        yield spark


@contextmanager
def _translate_spark_errors() -> Iterator[None]:
    """Turn what Spark and Java raise into a sentence."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JError, PySparkException) as exc:
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        reason = causes[-1] if causes else next(iter(lines), type(exc).__name__)
        raise SparkFailed(f"Spark failed: {reason}") from exc


__all__ = ["RunOptions", "RunReport", "Segment", "run"]
