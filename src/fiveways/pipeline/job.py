"""`pipeline run`: what is new in a journal becomes rows, and the tables that they belong to are made anew."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from fiveways.journal.access import PRIVATE, Access
from fiveways.journal.reader import Segment
from fiveways.pipeline import bronze, session, shipping
from fiveways.pipeline.errors import BadInput, PipelineError, SparkFailed
from fiveways.pipeline.output import Output
from fiveways.pipeline.progress import Silent, Teller
from fiveways.pipeline.session import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fiveways.pipeline.advance import Step
    from fiveways.pipeline.digest import Summary, Task
    from fiveways.pipeline.state import State


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants."""

    journal: str
    out: Path
    settings: Settings = field(default_factory=Settings)
    full: bool = False
    """Whether all segments are read again."""
    from_at: int | None = None
    """Leave out records before that time, in ns since 1970."""
    to_at: int | None = None
    """And those from that time on."""
    access: Access = PRIVATE
    """The readers of the tables."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was done."""

    segments: int
    """Segments that were read now."""
    records: int
    state: "State"
    notes: list[str]
    seconds: float


def run(wish: Wish, teller: Teller | None = None, spark: "SparkSession | None" = None) -> Report:
    """Bring the tables up to the closed segments of a journal.

    Args:
        wish: What is wanted.
        teller: Is told how far it is.
        spark: A Spark that is running already, instead of one of its own.

    Raises:
        PipelineError: It could not be done; the tables are as they were.
    """
    teller = teller or Silent()
    started = perf_counter()
    output = Output(wish.out, wish.access)
    journal = located(wish.journal)
    session.check()
    with output.locked():
        before, notes = standing(output, wish, journal)
        todo = bronze.intake(journal, before)
        notes += todo.notes
        if todo.is_empty and before is not None:
            return Report(0, 0, before, notes, perf_counter() - started)
        teller.begin("starting Spark")
        directories = [journal, str(output.path.parent)]
        with having_spark(wish.settings, spark, directories) as running:
            from fiveways.pipeline import advance  # noqa: PLC0415  pyspark is known to be here

            step = advance.Step(running, output, before or advance.nothing(journal, wish.from_at, wish.to_at))
            step.begin()
            tasks = [*map(step.task, todo.fresh), *(step.late_task(*each) for each in todo.again)]
            read = [*todo.fresh, *(segment for segment, _ in todo.again)]
            teller.begin("reading segments", len(tasks))
            summaries = read_all(running, step, tasks, teller)
            state = step.end(list(zip(read, summaries, strict=True)), teller)
    records = sum(each.records for each in summaries)
    return Report(len(tasks), records, state, notes, perf_counter() - started)


def standing(output: Output, wish: Wish, journal: str) -> tuple["State | None", list[str]]:
    """Return what can be added to, and what there is to say about it; None if all has to be made anew."""
    before = None if wish.full else output.state()
    if before is None:
        is_old = not wish.full and output.path.exists() and any(output.path.iterdir())
        return None, ["the tables are of another version, all are made anew"] if is_old else []
    if before.journal != journal:
        raise PipelineError(f"{wish.out} was made from {before.journal}; --full makes it anew from {wish.journal}")
    if (before.from_at, before.to_at) != (wish.from_at, wish.to_at):
        return None, ["--from or --to are others than before, all tables are made anew"]
    return before, []


def located(journal: str) -> str:
    """Return a journal's path as workers elsewhere know it too; a URL is that already."""
    return journal if "://" in journal else os.path.abspath(journal)  # noqa: PTH100  it need not be there


def read_all(spark: "SparkSession", step: "Step", tasks: Sequence["Task"], teller: Teller) -> list["Summary"]:
    """Read segments; records that are in several of them, or were read before, are taken once. BadInput if one is bad.

    Nobody knows what is in a segment before it is read, and nearly all have records of their own alone: the few others
    are read again.
    """
    summaries = _digest_all(spark, tasks, teller)
    _refuse_bad(summaries)
    again = step.repeats(tasks)
    if again:
        found = _digest_all(spark, list(again.values()), teller)
        _refuse_bad(found)
        for place, summary in zip(again, found, strict=True):
            summaries[place] = summary
    return summaries


def _digest_all(spark: "SparkSession", tasks: Sequence["Task"], teller: Teller) -> list["Summary"]:
    """Read segments, each in one task of Spark."""
    from fiveways.pipeline.advance import GROUP  # noqa: PLC0415
    from fiveways.pipeline.digest import digest  # noqa: PLC0415

    context = spark.sparkContext
    context.setJobGroup(GROUP, "read segments", interruptOnCancel=True)
    teller.follow(context)
    # The largest first: a large one at the end would keep one core busy while the others have nothing left.
    order = sorted(range(len(tasks)), key=lambda each: -_size(tasks[each].path))
    pieces = context.parallelize([tasks[each] for each in order], len(order))
    found = pieces.map(digest).collect()
    back: list[Summary] = [found[0]] * len(found)
    for place, summary in zip(order, found, strict=True):
        back[place] = summary
    return back


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _refuse_bad(summaries: Sequence["Summary"]) -> None:
    """Raise BadInput if a segment could not be read."""
    for summary in summaries:
        if summary.error:
            raise BadInput(summary.error)


@contextmanager
def having_spark(
    settings: Settings, running: "SparkSession | None", directories: Sequence[str]
) -> Iterator["SparkSession"]:
    """Have Spark, one that runs already or one of our own, with workers that can do the work in these directories."""
    started = nullcontext(running) if running is not None else session.running(settings)
    # Java is asked for the words of its own errors, so that these are read while it still runs.
    with started as spark, _blaming_spark(), shipping.shipped(spark.sparkContext, directories):
        yield spark


@contextmanager
def _blaming_spark() -> Iterator[None]:
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


__all__ = ["Report", "Segment", "Wish", "run"]
