"""The order in which closed segments landed: a log that only grows, and the stream's offsets count its lines.

A segment gets its line, with the time that was closed when it came, before anybody is told of it. So a stream that is
killed and begins a batch again finds the same segments in it, and calls the same records late.
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
_OFFSET_KEY: Final = "landed"
_SECOND: Final = 1_000_000_000
LINE_COLUMN: Final = "line"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log: a segment."""

    name: str
    path: str
    size: int
    last_at: int | None
    """The newest record's time."""
    watermark: int | None
    """Records before that were late when it came."""
    landed_at: float
    """When its file was there, in seconds since 1970."""
    error: str = ""
    """Why it cannot be read."""


class SegmentLog:
    """The lines, in a file that one process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[LogEntry]:
        """Return all whole lines."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=LogEntry) for line in data.split(b"\n")[:-1]]

    def rewrite(self, lines: Sequence[LogEntry]) -> None:
        """Put other lines in the place of all."""
        begun = self._path.with_suffix(".tmp")
        begun.write_bytes(_encode_entries(lines))
        begun.replace(self._path)

    def append(self, lines: Sequence[LogEntry]) -> None:
        """Write lines behind those that are there; they are on disk when it returns."""
        if not lines:
            return
        OWNER_ONLY.make_directory(self._path.parent)
        with self._path.open("ab+") as file:
            # Whoever was killed while writing has left the beginning of a line, of which nobody was told.
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(_encode_entries(lines))
            file.flush()
            os.fsync(file.fileno())


def _encode_entries(lines: Sequence[LogEntry]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def log_new_segments(log: SegmentLog, journal: str, delay: float) -> int:
    """Give new closed segments their lines; return how many lines there are."""
    lines = log.read()
    known = {line.name for line in lines}
    new = [each for each in reader.list_segments(journal) if each.is_closed and each.name not in known]
    # Several that come at once are taken by their time: a name says nothing about it.
    seen = sorted(((newest_record_time(each.path), each) for each in new), key=lambda pair: (pair[0][0] or 0, pair[1]))
    last = max((line.last_at for line in lines if line.last_at is not None), default=None)
    fresh = []
    for (at, error), each in seen:
        watermark = None if last is None else last - round(delay * _SECOND)
        fresh.append(log_entry(each, at, watermark, error))
        if at is not None:
            last = at if last is None else max(last, at)
    log.append(fresh)
    return len(lines) + len(fresh)


def log_entry(segment: Segment, last_at: int | None, watermark: int | None = None, error: str = "") -> LogEntry:
    """Return the line of a segment."""
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
    """Say whether the file of a line can still be found."""
    try:
        system, name = resolve_filesystem(line.path)
        return bool(line.path) and bool(system.get_file_info(name).is_file)
    except (JournalError, OSError):
        return False


def newest_record_time(path: str) -> tuple[int | None, str]:
    """Return the time of a segment's newest record, as Parquet tells it; or why it cannot be read."""
    try:
        reader.check_segment(path)
        system, name = resolve_filesystem(path)
        with parquet.ParquetFile(name, filesystem=system) as file:
            if not file.metadata.num_rows:
                return None, ""
            index = file.schema_arrow.get_field_index("at")
            groups = (file.metadata.row_group(number).column(index) for number in range(file.num_row_groups))
            told = [group.statistics.max if group.is_stats_set else None for group in groups]
            known = [each for each in told if each is not None]
            if len(known) == len(told):
                return max(known), ""
            return int(pc.max(file.read(columns=["at"]).column("at")).as_py()), ""
    except (JournalError, pa.ArrowException, OSError) as exc:
        return None, str(exc)


@dataclass
class _LogPartition(InputPartition):
    """Lines of the log, for one task."""

    entries: list[bytes]

    def __init__(self, lines: list[bytes]) -> None:
        super().__init__(None)
        self.entries = lines


class SegmentLogSource(DataSource):
    """Closed segments as a stream of lines."""

    @classmethod
    def name(cls) -> str:
        """Return how the source is called."""
        return SOURCE_FORMAT

    def schema(self) -> str:
        """Return its columns: a line of the log as JSON."""
        return f"{LINE_COLUMN} string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads it."""
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
        return {_OFFSET_KEY: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final_offset = log_new_segments(self._log, self._journal, self._delay)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {
            _OFFSET_KEY: log_new_segments(self._log, self._journal, self._delay)
            if self._final_offset is None
            else self._final_offset
        }

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        lines = self._log.read()[start[_OFFSET_KEY] : end[_OFFSET_KEY]]
        return [_LogPartition([msgspec.json.encode(line) for line in lines])] if lines else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        if not isinstance(partition, _LogPartition):
            raise AssertionError  # noqa: TRY004  we made it
        for line in partition.entries:
            yield (line.decode(),)
