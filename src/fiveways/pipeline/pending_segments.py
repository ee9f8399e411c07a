"""Selection and validation of the journal segments that a run has to read."""

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from fiveways.journal import reader
from fiveways.journal.errors import BadSegment, JournalError
from fiveways.journal.reader import Segment
from fiveways.pipeline.errors import BadInput
from fiveways.pipeline.state import PipelineState, SegmentRecord

_PARALLEL_CHECKS: Final = 8
"""Segments validated in parallel; on remote storage each check waits for the network."""


@dataclass(frozen=True, slots=True)
class PendingSegments:
    """Segments that a run has to read."""

    new_segments: list[Segment]
    """Segments that no run has read."""
    segments_with_late_records: list[tuple[Segment, SegmentRecord]] = field(default_factory=list)
    """Segments with records that arrived behind the watermark of the stream."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if the run has nothing to read."""
        return not (self.new_segments or self.segments_with_late_records)


def closed_segments(journal: str) -> list[Segment]:
    """Return the closed segments of a journal in order; raise BadInput if the journal does not exist."""
    try:
        return [segment for segment in reader.list_segments(journal) if segment.is_closed]
    except JournalError as exc:
        raise BadInput(str(exc)) from exc


def find_pending_segments(journal: str, before: PipelineState | None) -> PendingSegments:
    """Return the segments of a journal that the run behind `before` has not read."""
    closed = closed_segments(journal)
    if not closed and before is None:
        raise BadInput(
            f"{journal} has no closed segment (no file *.parquet); an open segment is read after it was closed"
        )
    read = {record.name: record for record in before.segments} if before else {}
    present = {segment.name: segment for segment in closed}
    for name, record in read.items():
        if name in present and present[name].size != record.size:
            raise BadInput(
                f"{present[name].path} has changed since it was read (then {record.size} bytes,"
                f" now {present[name].size}); use --full to rebuild all tables"
            )
    late = [record for record in read.values() if record.late]
    notes = [
        f"{record.name} was deleted, and with it {record.late} late records"
        for record in late
        if record.name not in present
    ]
    new = [segment for segment in closed if segment.name not in read]
    again = [(present[record.name], record) for record in late if record.name in present]
    return PendingSegments(new, again, [*notes, *check_segments(segment.path for segment in new)])


def check_segments(paths: Iterable[str]) -> list[str]:
    """Return notes on segments; raise BadInput, naming file and column, if a segment cannot be read."""
    with ThreadPoolExecutor(_PARALLEL_CHECKS) as pool:
        try:
            return _deduplicate_notes([note for notes in pool.map(reader.check_segment, paths) for note in notes])
        except BadSegment as exc:
            raise BadInput(str(exc)) from exc


def _deduplicate_notes(notes: Collection[str]) -> list[str]:
    """Merge notes that differ only in the file they name."""
    first: dict[str, str] = {}
    counts: dict[str, int] = {}
    for note in notes:
        text = note.rpartition(": ")[2]
        first.setdefault(text, note)
        counts[text] = counts.get(text, 0) + 1
    return [f"{note} (and in {counts[text] - 1} more)" if counts[text] > 1 else note for text, note in first.items()]
