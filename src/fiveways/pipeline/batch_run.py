"""`pipeline run`: decode the new segments of a journal and rebuild the tables for the days they affect."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from fiveways.journal.file_permissions import OWNER_ONLY, FilePermissions
from fiveways.journal.reader import Segment
from fiveways.pipeline import executor_setup, pending_segments, spark_session
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
    """Options of `pipeline run`."""

    journal: str
    out: Path
    settings: SparkSettings = field(default_factory=SparkSettings)
    is_full: bool = False
    """Read all segments again."""
    from_at: int | None = None
    """Exclude records before this time, in ns since 1970."""
    to_at: int | None = None
    """Exclude records at or after this time, in ns since 1970."""
    access: FilePermissions = OWNER_ONLY
    """File permissions of the tables."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Result of one run."""

    segments: int
    """Segments read in this run."""
    records: int
    state: "PipelineState"
    notes: list[str]
    seconds: float


def run(
    options: RunOptions, progress: ProgressReporter | None = None, spark: "SparkSession | None" = None
) -> RunReport:
    """Update the tables from the closed segments of a journal.

    Args:
        options: The journal, the output directory and the time range.
        progress: Receives the progress of the run.
        spark: A running Spark session to use instead of starting one.

    Raises:
        PipelineError: The run failed; the tables are unchanged.
    """
    progress = progress or NoProgress()
    started = perf_counter()
    output = TableDirectory(options.out, options.access)
    journal = journal_location(options.journal)
    spark_session.require_spark()
    with output.lock():
        before, notes = reusable_state(output, options, journal)
        pending = pending_segments.find_pending_segments(journal, before)
        notes += pending.notes
        if pending.is_empty and before is not None:
            return RunReport(0, 0, before, notes, perf_counter() - started)
        progress.start_phase("starting Spark")
        directories = [journal, str(output.path.parent)]
        with prepared_spark(options.settings, spark, directories) as running:
            from fiveways.pipeline.increment import Increment, empty_state  # noqa: PLC0415  imports pyspark

            increment = Increment(running, output, before or empty_state(journal, options.from_at, options.to_at))
            increment.begin()
            tasks = [
                *map(increment.decode_task, pending.new_segments),
                *(
                    increment.late_decode_task(segment, record)
                    for segment, record in pending.segments_with_late_records
                ),
            ]
            read = [*pending.new_segments, *(segment for segment, _ in pending.segments_with_late_records)]
            progress.start_phase("reading segments", len(tasks))
            summaries = decode_segments(running, increment, tasks, progress)
            state = increment.commit(list(zip(read, summaries, strict=True)), progress)
    records = sum(summary.records for summary in summaries)
    return RunReport(len(tasks), records, state, notes, perf_counter() - started)


def reusable_state(
    output: TableDirectory, options: RunOptions, journal: str
) -> tuple["PipelineState | None", list[str]]:
    """Return the state to extend, or None for a full rebuild, with notes for the user."""
    before = None if options.is_full else output.read_state()
    if before is None:
        is_old = not options.is_full and output.path.exists() and any(output.path.iterdir())
        return None, ["the tables were written by another version; rebuilding all tables"] if is_old else []
    if before.journal != journal:
        raise PipelineError(
            f"{options.out} was made from {before.journal}; use --full to rebuild it from {options.journal}"
        )
    if (before.from_at, before.to_at) != (options.from_at, options.to_at):
        return None, ["--from or --to changed; rebuilding all tables"]
    return before, []


def journal_location(journal: str) -> str:
    """Return the absolute path of a journal, valid in every worker; return a URL unchanged."""
    return journal if "://" in journal else os.path.abspath(journal)  # noqa: PTH100  the path may not exist


def decode_segments(
    spark: "SparkSession", increment: "Increment", tasks: Sequence["DecodeTask"], progress: ProgressReporter
) -> list["SegmentSummary"]:
    """Decode segments; each record is decoded once, even if it is in several segments.

    Duplicates are known only after decoding. Nearly all segments have none, so only segments with duplicates are
    decoded a second time.

    Raises:
        BadInput: A segment cannot be read.
    """
    summaries = _decode_all(spark, tasks, progress)
    _raise_for_errors(summaries)
    again = increment.tasks_with_duplicates(tasks)
    if again:
        repeated = _decode_all(spark, list(again.values()), progress)
        _raise_for_errors(repeated)
        for index, summary in zip(again, repeated, strict=True):
            summaries[index] = summary
    return summaries


def _decode_all(
    spark: "SparkSession", tasks: Sequence["DecodeTask"], progress: ProgressReporter
) -> list["SegmentSummary"]:
    """Decode segments, one Spark task for each."""
    from fiveways.pipeline.increment import JOB_GROUP  # noqa: PLC0415
    from fiveways.pipeline.segment_decoder import decode_segment  # noqa: PLC0415

    context = spark.sparkContext
    context.setJobGroup(JOB_GROUP, "read segments", interruptOnCancel=True)
    progress.watch_spark(context)
    # Largest first: a large segment at the end would keep one core busy while the others are idle.
    order = sorted(range(len(tasks)), key=lambda index: -_file_size(tasks[index].path))
    distributed = context.parallelize([tasks[index] for index in order], len(order))
    decoded = distributed.map(decode_segment).collect()
    summaries: list[SegmentSummary] = [decoded[0]] * len(decoded)
    for index, summary in zip(order, decoded, strict=True):
        summaries[index] = summary
    return summaries


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _raise_for_errors(summaries: Sequence["SegmentSummary"]) -> None:
    for summary in summaries:
        if summary.error:
            raise BadInput(summary.error)


@contextmanager
def prepared_spark(
    settings: SparkSettings, running: "SparkSession | None", directories: Sequence[str]
) -> Iterator["SparkSession"]:
    """Yield a Spark session, running or new, after checking that its workers can access these directories."""
    started = nullcontext(running) if running is not None else spark_session.open_spark(settings)
    # Translation asks the JVM for its error messages, so it must happen before the JVM stops.
    with (
        started as spark,
        _translate_spark_errors(),
        executor_setup.package_on_workers(spark.sparkContext, directories),
    ):
        yield spark


@contextmanager
def _translate_spark_errors() -> Iterator[None]:
    """Raise SparkFailed, with the root cause in one line, for exceptions of Spark and Java."""
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
