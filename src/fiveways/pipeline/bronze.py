"""The journal as it was written: which segments are to be read, and whether they can be."""

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fiveways.journal import reader
from fiveways.journal.errors import BadSegment, JournalError
from fiveways.journal.reader import Segment
from fiveways.journal.schema import SCHEMA
from fiveways.pipeline.errors import BadInput
from fiveways.pipeline.state import PipelineState, SegmentRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARALLEL_CHECKS: Final = 8
"""Segments whose columns are looked at together: where they lie far away, each look is a wait."""


@dataclass(frozen=True, slots=True)
class PendingSegments:
    """What a run has to read."""

    new_segments: list[Segment]
    """Segments that nobody has read yet."""
    segments_with_late_records: list[tuple[Segment, SegmentRecord]] = field(default_factory=list)
    """Segments with records that were too late for the stream."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.new_segments or self.segments_with_late_records)


def closed_segments(journal: str) -> list[Segment]:
    """Return the segments of a journal that are whole, in order; BadInput if there is no such journal."""
    try:
        return [each for each in reader.list_segments(journal) if each.is_closed]
    except JournalError as exc:
        raise BadInput(str(exc)) from exc


def find_pending_segments(journal: str, before: PipelineState | None) -> PendingSegments:
    """Return what has to be read of a journal whose beginning may have been read before."""
    found = closed_segments(journal)
    if not found and before is None:
        raise BadInput(f"{journal} has no closed segment, that is no file *.parquet; one that is open is read later")
    known = {each.name: each for each in before.segments} if before else {}
    there = {each.name: each for each in found}
    for name, read in known.items():
        if name in there and there[name].size != read.size:
            raise BadInput(
                f"{there[name].path} has changed since it was read (then {read.size} bytes, now {there[name].size});"
                " --full makes all tables anew"
            )
    late = [read for read in known.values() if read.late]
    notes = [f"{read.name} is gone, and with it {read.late} late records" for read in late if read.name not in there]
    fresh = [each for each in found if each.name not in known]
    again = [(there[read.name], read) for read in late if read.name in there]
    return PendingSegments(fresh, again, [*notes, *check_segments(each.path for each in fresh)])


def check_segments(paths: Iterable[str]) -> list[str]:
    """Return notes on segments; BadInput with the file, and the column, if one of them cannot be read."""
    with ThreadPoolExecutor(_PARALLEL_CHECKS) as pool:
        try:
            return _deduplicate_notes([note for notes in pool.map(reader.check_segment, paths) for note in notes])
        except BadSegment as exc:
            raise BadInput(str(exc)) from exc


def _deduplicate_notes(notes: Collection[str]) -> list[str]:
    """Return notes without those that say the same of another file."""
    first: dict[str, str] = {}
    counts: dict[str, int] = {}
    for note in notes:
        what = note.rpartition(": ")[2]
        first.setdefault(what, note)
        counts[what] = counts.get(what, 0) + 1
    return [f"{note} (and in {counts[what] - 1} more)" if counts[what] > 1 else note for what, note in first.items()]


def bronze(spark: "SparkSession", paths: list[str]) -> "DataFrame":
    """One row per record of these closed segments, as it was written."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    schema = from_arrow_schema(SCHEMA)
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
