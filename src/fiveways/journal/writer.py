"""The threads that write pages: into an open segment at once, which is closed when it is full or old."""

import fcntl
import io
import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from pyarrow import ArrowException, PythonFile, RecordBatch, ipc

from fiveways.journal.batches import Batches
from fiveways.journal.closing import abandoned, close_segment, retire
from fiveways.journal.errors import JournalError
from fiveways.journal.messages import Orders
from fiveways.journal.places import OPEN, Segment, segment_name, segments
from fiveways.journal.record import SCHEMA
from fiveways.journal.redaction import Redaction
from fiveways.journal.tape import Page

_log = logging.getLogger("fiveways.journal")
_BATCH: Final = 1 << 14
"""Records that are worth a batch, even before it is time for one."""
_BATCH_BYTES: Final = 1 << 28
"""Payloads that are: a column has room for eight times as much."""
_WAITING: Final = 256
"""Pages that may wait; whoever brings more waits, too."""
_BUFFER: Final = 1 << 20
# Columns are too short for several threads to share the work: to hand it over costs more than it saves.
_LZ4: Final = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_TROUBLES: Final = (OSError, ArrowException)


class Journal:
    """Writes one run of a hub into a directory."""

    def __init__(self, orders: Orders, clock: Callable[[], float], told: Callable[[], None] = lambda: None) -> None:
        """Make it; `clock` tells the seconds since 1970, `told` is called when there is more on disk than before."""
        self._directory = Path(orders.directory)
        self._batches = Batches(orders.node, orders.run, orders.most, Redaction(orders.redact))
        self._run = orders.run
        self._rules = orders.rules
        self._clock = clock
        self._tell = told
        self._pages: queue.Queue[Page | None] = queue.Queue(_WAITING)
        self._segment: _Open | None = None
        self._number = 0
        self._to_close: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
        self._closer = threading.Thread(target=self._close, name="journal-closer", daemon=True)
        self.written = 0
        """Records that are on disk."""
        self.lost = 0
        """Records that could not be written."""
        self._trouble = ""

    def start(self) -> None:
        """Begin; JournalError if nothing can be written there."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._number = 1 + max((each.number for each in self._ours()), default=-1)
            self._open()
        except _TROUBLES as exc:
            raise JournalError(f"the journal cannot be written to {self._directory}: {exc}") from exc
        for path in abandoned(self._directory):
            self._to_close.put(path)
        self._writer.start()
        self._closer.start()

    def _ours(self) -> list[Segment]:
        """Return the segments of this run, which another process may have begun."""
        return [each for each in segments(str(self._directory)) if each.run == self._run]

    def put(self, page: Page) -> None:
        """Have a page written; wait if many do already."""
        self._pages.put(page)

    def stop(self) -> None:
        """Write the rest, and close the last segment."""
        self._pages.put(None)
        self._writer.join()
        self._closer.join()

    # The writer's thread.

    def _write(self) -> None:
        is_over = False
        while not is_over:
            pages, is_over = self._some()
            self._take(pages)
        self._finish()
        self._to_close.put(None)

    def _some(self) -> tuple[list[Page], bool]:
        """Gather pages for a while: together, each record costs less. Return them, and whether they are the last."""
        pages, records, size, until = list[Page](), 0, 0, monotonic() + self._rules.flush_interval / 2
        with suppress(queue.Empty):
            while records < _BATCH and size < _BATCH_BYTES:
                page = self._pages.get(timeout=max(0.0, until - monotonic()))
                if page is None:
                    return pages, True
                pages.append(page)
                records += len(page)
                size += len(page.payloads)
        return pages, False

    def _take(self, pages: list[Page]) -> None:
        """Write pages, and have them on disk as soon as no more wait."""
        at_hand = sum(map(len, pages))
        try:
            if pages:
                segment = self._segment or self._open()
                segment.write(self._batches.batch(pages))
                at_hand = 0
                if segment.size >= self._rules.segment_bytes:
                    self._rotate(segment)
            if self._segment is not None and self._pages.empty():
                self._sync(self._segment)
                if self._clock() - self._segment.since >= self._rules.segment_age:
                    self._rotate(self._segment)
            self._trouble = ""
        except Exception as exc:  # noqa: BLE001  whatever it is, what comes next is written
            self.lost += at_hand
            self._fail(exc)
            self._tell()

    def _sync(self, segment: "_Open") -> None:
        if synced := segment.sync():
            self.written += synced
            self._tell()

    def _rotate(self, segment: "_Open") -> None:
        """Begin a new segment, unless there is nothing in this one."""
        if segment.records:
            self._sync(segment)
            self._finish()

    def _fail(self, error: Exception) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            known = isinstance(error, _TROUBLES)
            _log.error("the journal has gaps: %s", error, exc_info=None if known else error)
        if self._segment is not None and isinstance(error, _TROUBLES):
            # What is half written ends this segment; the rest of it is good.
            self.lost += self._segment.unsynced
            self._finish()

    def _open(self) -> "_Open":
        path = self._directory / (segment_name(self._run, self._number) + OPEN)
        self._number += 1
        self._segment = _Open(path, self._clock())
        return self._segment

    def _finish(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
            self._to_close.put(segment.path)

    # The closer's thread: what takes long must not keep others waiting.

    def _close(self) -> None:
        while (path := self._to_close.get()) is not None:
            try:
                close_segment(path)
                for old in retire(self._directory, self._rules.keep_bytes, self._rules.keep_days, self._clock()):
                    _log.info("%s is over", old.name)
            except Exception as exc:  # noqa: BLE001  it stays as it is, and the next start tries again
                _log.error("%s cannot be closed: %s", path.name, exc)


class _Open:
    """One segment that is being written."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self.since = now
        self.records = 0
        self.unsynced = 0
        """Records that may not be on disk yet."""
        self._file = io.BufferedWriter(io.FileIO(path, "xb"), _BUFFER)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._stream = ipc.new_stream(PythonFile(self._file, "w"), SCHEMA, options=_LZ4)

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, batch: RecordBatch) -> None:
        self._stream.write_batch(batch)
        self.records += len(batch)
        self.unsynced += len(batch)

    def sync(self) -> int:
        """Have all of it on disk; return how many records were not."""
        if not self.unsynced:
            return 0
        self._file.flush()
        os.fdatasync(self._file.fileno())
        synced, self.unsynced = self.unsynced, 0
        return synced

    def close(self) -> None:
        """End it, if there is room for an end: readers know how to do without."""
        try:
            self._stream.close()
            self._file.close()
        except _TROUBLES:
            self._file.raw.close()
