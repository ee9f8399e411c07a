"""Follower of a growing journal: existing records, newest segment first, then new records, each once."""

import contextlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ArrowException, PythonFile, compute, ipc

from fiveways.journal.errors import BadSegment
from fiveways.journal.reader import read_batches
from fiveways.journal.schema import SCHEMA
from fiveways.journal.segments import Segment, list_segments
from fiveways.journal.suffixes import CLOSED_SUFFIX, OPEN_SUFFIX

_BUFFER: Final = 1 << 16


class JournalFollower:
    """Reader of a journal directory that is called repeatedly.

    An open segment stays open and is read on from its last position. If the segment is closed meanwhile, it is read to
    its last record: the deleted file is readable while it is open.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._is_local = "://" not in directory
        self._open_readers: dict[str, _OpenSegmentReader] = {}
        self._finished_segments: set[str] = set()
        self._last_seqs: dict[str, int] = {}
        """Sequence number of the last returned record, by run."""

    def read_existing(self) -> Iterator[Iterable[pa.RecordBatch]]:
        """Yield the batches of each existing segment: open segments first, then closed ones, newest first.

        `read_new` continues after these records.
        """
        segments = list(reversed(list_segments(self._directory)))
        open_segments = [segment for segment in segments if not segment.is_closed]
        closed_segments = [segment for segment in segments if segment.is_closed]
        # Read open segments now, so that read_new returns only later records.
        open_batches = [list(self._read_new_records(segment)) for segment in open_segments]
        for segment in closed_segments:
            self._finished_segments.add(segment.name)
        yield from open_batches
        for segment in closed_segments:
            yield _read_closed_segment(segment.path)

    def read_new(self) -> Iterator[pa.RecordBatch]:
        """Yield the records since the last call."""
        segments = list_segments(self._directory)
        names = {segment.name for segment in segments}
        for name in [name for name in self._open_readers if name not in names]:
            # The segment was closed and deleted since the last call; the open file is still readable.
            yield from self._skip_seen(self._open_readers.pop(name).read_remaining(), is_numbered=True)
            self._finished_segments.add(name)
        self._finished_segments &= names
        for segment in segments:
            if segment.name not in self._finished_segments:
                yield from self._read_new_records(segment)

    def close(self) -> None:
        """Close all files."""
        for reader in self._open_readers.values():
            reader.close()
        self._open_readers.clear()

    def _read_new_records(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        name = segment.name
        reader = self._open_readers.get(name)
        if reader is None and not segment.is_closed and self._is_local:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                reader = self._open_readers[name] = _OpenSegmentReader(Path(segment.path))
        if reader is None:
            if segment.is_closed or self._is_local:
                path = segment.path.removesuffix(OPEN_SUFFIX).removesuffix(CLOSED_SUFFIX) + CLOSED_SUFFIX
                yield from self._skip_seen(_read_closed_segment(path), is_numbered=bool(segment.run))
                self._finished_segments.add(name)
            return
        if not segment.is_closed:
            yield from self._skip_seen(reader.read_complete_batches(), is_numbered=True)
            return
        # The writer completes a segment before it is closed, so the old file has all records.
        yield from self._skip_seen(reader.read_remaining(), is_numbered=True)
        del self._open_readers[name]
        self._finished_segments.add(name)

    def _skip_seen(self, batches: Iterable[pa.RecordBatch], *, is_numbered: bool) -> Iterator[pa.RecordBatch]:
        """Yield the records that were not returned before. `is_numbered` is False for files that no hub wrote."""
        for batch in batches:
            fresh = batch
            if is_numbered and len(batch):
                run, seqs = batch.column("run")[0].as_py(), batch.column("seq")
                last_seq = self._last_seqs.get(run, -1)
                if seqs[0].as_py() <= last_seq:
                    fresh = batch.filter(compute.greater(seqs, last_seq))
                self._last_seqs[run] = max(last_seq, seqs[len(seqs) - 1].as_py())
            if len(fresh):
                yield fresh


def _read_closed_segment(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a closed segment; none if it was deleted meanwhile."""
    try:
        yield from read_batches(path)
    except BadSegment:
        if "://" in path or Path(path).exists():
            raise


class _OpenSegmentReader:
    """Reader of an open segment, with its position."""

    def __init__(self, path: Path) -> None:
        self._source = PythonFile(io.BufferedReader(io.FileIO(path), _BUFFER), "r")
        self._schema: pa.Schema | None = None

    def read_complete_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are complete by now."""
        while (message := self._next_message()) is not None:
            if self._schema is None:
                self._schema = ipc.read_schema(message)
            else:
                yield ipc.read_record_batch(message, self._schema).select(SCHEMA.names)

    def read_remaining(self) -> Iterator[pa.RecordBatch]:
        """Yield the last batches, and close the file."""
        yield from self.read_complete_batches()
        self.close()

    def close(self) -> None:
        self._source.close()

    def _next_message(self) -> ipc.Message | None:
        """Return the next message; None if it is incomplete, without a change of the position."""
        position = self._source.tell()
        try:
            return ipc.read_message(self._source)
        except (EOFError, ArrowException, OSError):
            self._source.seek(position)
            return None
