"""A journal that grows: what is there, newest first, and then what comes, each record once."""

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
    """Reads a directory again and again.

    A segment that is being written is kept open and read on where it was left. That goes on to its last record even
    when it has become a closed one in the meantime: its old file is there for as long as somebody has it open.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._is_local = "://" not in directory
        self._open_readers: dict[str, _OpenSegmentReader] = {}
        self._finished_segments: set[str] = set()
        self._last_seqs: dict[str, int] = {}
        """By run, the number of the last record that was given."""

    def read_existing(self) -> Iterator[Iterable[pa.RecordBatch]]:
        """Give the segments that are there, those that are being written first, then the newest; `news` goes on."""
        found = list(reversed(list_segments(self._directory)))
        still_open = [each for each in found if not each.is_closed]
        closed = [each for each in found if each.is_closed]
        # All of them are read now, so that what comes from here on is news.
        begun = [list(self._read_new_records(each)) for each in still_open]
        for each in closed:
            self._finished_segments.add(each.name)
        yield from begun
        for each in closed:
            yield _read_closed_segment(each.path)

    def read_new(self) -> Iterator[pa.RecordBatch]:
        """Give what was written since the last time."""
        listed = list_segments(self._directory)
        names = {each.name for each in listed}
        for name in [name for name in self._open_readers if name not in names]:
            # Closed and retired, since we looked: whoever has it open can still read it.
            yield from self._skip_seen(self._open_readers.pop(name).read_remaining(), numbered=True)
            self._finished_segments.add(name)
        self._finished_segments &= names
        for each in listed:
            if each.name not in self._finished_segments:
                yield from self._read_new_records(each)

    def close(self) -> None:
        """Let go of all files."""
        for each in self._open_readers.values():
            each.close()
        self._open_readers.clear()

    def _read_new_records(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Give what is new in a segment."""
        name = segment.name
        growing = self._open_readers.get(name)
        if growing is None and not segment.is_closed and self._is_local:
            with contextlib.suppress(FileNotFoundError):  # it was closed this very moment
                growing = self._open_readers[name] = _OpenSegmentReader(Path(segment.path))
        if growing is None:
            if segment.is_closed or self._is_local:
                path = segment.path.removesuffix(OPEN_SUFFIX).removesuffix(CLOSED_SUFFIX) + CLOSED_SUFFIX
                yield from self._skip_seen(_read_closed_segment(path), numbered=bool(segment.run))
                self._finished_segments.add(name)
            return
        if not segment.is_closed:
            yield from self._skip_seen(growing.read_complete_batches(), numbered=True)
            return
        # It was finished before it was closed, so that its old file has all there is.
        yield from self._skip_seen(growing.read_remaining(), numbered=True)
        del self._open_readers[name]
        self._finished_segments.add(name)

    def _skip_seen(self, batches: Iterable[pa.RecordBatch], *, numbered: bool) -> Iterator[pa.RecordBatch]:
        """Give the records that were not given before; files that no hub has made are not `numbered` throughout."""
        for batch in batches:
            fresh = batch
            if numbered and len(batch):
                run, seqs = batch.column("run")[0].as_py(), batch.column("seq")
                known = self._last_seqs.get(run, -1)
                if seqs[0].as_py() <= known:
                    fresh = batch.filter(compute.greater(seqs, known))
                self._last_seqs[run] = max(known, seqs[len(seqs) - 1].as_py())
            if len(fresh):
                yield fresh


def _read_closed_segment(path: str) -> Iterator[pa.RecordBatch]:
    """Give the records of a closed segment; none if it was retired meanwhile."""
    try:
        yield from read_batches(path)
    except BadSegment:
        if "://" in path or Path(path).exists():
            raise


class _OpenSegmentReader:
    """An open segment, of which so much was read."""

    def __init__(self, path: Path) -> None:
        self._source = PythonFile(io.BufferedReader(io.FileIO(path), _BUFFER), "r")
        self._schema: pa.Schema | None = None

    def read_complete_batches(self) -> Iterator[pa.RecordBatch]:
        """Give the batches that are whole by now."""
        while (message := self._next_message()) is not None:
            if self._schema is None:
                self._schema = ipc.read_schema(message)
            else:
                yield ipc.read_record_batch(message, self._schema).select(SCHEMA.names)

    def read_remaining(self) -> Iterator[pa.RecordBatch]:
        """Give the last ones, and close it."""
        yield from self.read_complete_batches()
        self.close()

    def close(self) -> None:
        self._source.close()

    def _next_message(self) -> ipc.Message | None:
        """Return the next message; None, and stay where we are, if it is not whole."""
        at = self._source.tell()
        try:
            return ipc.read_message(self._source)
        except (EOFError, ArrowException, OSError):
            self._source.seek(at)
            return None
