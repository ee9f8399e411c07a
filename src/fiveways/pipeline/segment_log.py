"""Log of the closed segments in the order of their arrival; Spark's stream offsets count its lines.

A segment gets its line, with the watermark of that moment, before Spark sees it. A stream that was killed and repeats a
batch therefore finds the same segments in it and treats the same records as late.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fiveways.journal import reader
from fiveways.journal.errors import JournalError
from fiveways.journal.file_permissions import OWNER_ONLY
from fiveways.journal.reader import Segment
from fiveways.journal.segments import resolve_filesystem

SOURCE_FORMAT: Final = "fiveways-journal"
OFFSET_KEY: Final = "landed"
_SECOND: Final = 1_000_000_000
LINE_COLUMN: Final = "line"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Line of the log: one segment."""

    name: str
    path: str
    size: int
    last_at: int | None
    """Time of the newest record."""
    watermark: int | None
    """Watermark at the arrival of the segment; older records in it are late."""
    landed_at: float
    """Modification time of the file, Unix time in seconds."""
    error: str = ""
    """Reason why the segment cannot be read."""


class SegmentLog:
    """Log file; one process writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[LogEntry]:
        """Return all complete lines."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=LogEntry) for line in data.split(b"\n")[:-1]]

    def rewrite(self, lines: Sequence[LogEntry]) -> None:
        """Replace the whole log."""
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(_encode_entries(lines))
        temporary.replace(self._path)

    def append(self, lines: Sequence[LogEntry]) -> None:
        """Append lines; they are on disk when this returns."""
        if not lines:
            return
        OWNER_ONLY.make_directory(self._path.parent)
        with self._path.open("ab+") as file:
            # A process killed while writing left an incomplete line, which no reader has used.
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(_encode_entries(lines))
            file.flush()
            os.fsync(file.fileno())


def _encode_entries(lines: Sequence[LogEntry]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def log_new_segments(log: SegmentLog, journal: str, delay: float) -> int:
    """Append lines for new closed segments; return the number of lines."""
    lines = log.read()
    logged = {line.name for line in lines}
    new = [segment for segment in reader.list_segments(journal) if segment.is_closed and segment.name not in logged]
    # Segments that arrive together are ordered by time, because a name says nothing about it.
    timed = sorted(
        ((newest_record_time(segment.path), segment) for segment in new), key=lambda pair: (pair[0][0] or 0, pair[1])
    )
    last = max((line.last_at for line in lines if line.last_at is not None), default=None)
    entries = []
    for (at, error), segment in timed:
        watermark = None if last is None else last - round(delay * _SECOND)
        entries.append(log_entry(segment, at, watermark, error))
        if at is not None:
            last = at if last is None else max(last, at)
    log.append(entries)
    return len(lines) + len(entries)


def log_entry(segment: Segment, last_at: int | None, watermark: int | None = None, error: str = "") -> LogEntry:
    """Create the log entry of a segment."""
    return LogEntry(
        name=segment.name,
        path=segment.path,
        size=segment.size,
        last_at=last_at,
        watermark=watermark,
        landed_at=_modification_time(segment.path),
        error=error,
    )


def _modification_time(path: str) -> float:
    try:
        system, name = resolve_filesystem(path)
        stamp = system.get_file_info(name).mtime_ns
    except (JournalError, OSError):
        stamp = None
    return time.time() if stamp is None else stamp / _SECOND


def segment_exists(line: LogEntry) -> bool:
    """Return True if the segment's file still exists."""
    try:
        system, name = resolve_filesystem(line.path)
        return bool(line.path) and bool(system.get_file_info(name).is_file)
    except (JournalError, OSError):
        return False


def newest_record_time(path: str) -> tuple[int | None, str]:
    """Return the time of a segment's newest record, or an error text if it is unreadable."""
    try:
        reader.check_segment(path)
        system, name = resolve_filesystem(path)
        with parquet.ParquetFile(name, filesystem=system) as file:
            if not file.metadata.num_rows:
                return None, ""
            index = file.schema_arrow.get_field_index("at")
            groups = (file.metadata.row_group(number).column(index) for number in range(file.num_row_groups))
            maxima = [group.statistics.max if group.is_stats_set else None for group in groups]
            known = [maximum for maximum in maxima if maximum is not None]
            if len(known) == len(maxima):
                return max(known), ""
            return int(pc.max(file.read(columns=["at"]).column("at")).as_py()), ""
    except (JournalError, pa.ArrowException, OSError) as exc:
        return None, str(exc)


@dataclass
class _LogPartition(InputPartition):
    """Lines of the log for one task."""

    entries: list[bytes]

    def __init__(self, lines: list[bytes]) -> None:
        super().__init__(None)
        self.entries = lines


class SegmentLogSource(DataSource):
    """Spark data source that streams the closed segments of a journal as log lines."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the source."""
        return SOURCE_FORMAT

    def schema(self) -> str:
        """Return the columns: a log entry as JSON."""
        return f"{LINE_COLUMN} string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream reader."""
        return _SegmentLogReader(
            self.options["journal"], SegmentLog(Path(self.options["log"])), float(self.options["delay"])
        )


class _SegmentLogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, journal: str, log: SegmentLog, delay: float) -> None:
        self._journal = journal
        self._log = log
        self._delay = delay
        self._final_offset: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {OFFSET_KEY: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final_offset = log_new_segments(self._log, self._journal, self._delay)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {
            OFFSET_KEY: log_new_segments(self._log, self._journal, self._delay)
            if self._final_offset is None
            else self._final_offset
        }

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        lines = self._log.read()[start[OFFSET_KEY] : end[OFFSET_KEY]]
        return [_LogPartition([msgspec.json.encode(line) for line in lines])] if lines else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        if not isinstance(partition, _LogPartition):
            raise AssertionError  # noqa: TRY004  `partitions` creates only this type
        for line in partition.entries:
            yield (line.decode(),)
