"""The threads that write pages: into an open segment at once, which is closed when it is full or old."""

import fcntl
import io
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from pyarrow import ArrowException, PythonFile, RecordBatch, ipc

from fiveways.journal.errors import JournalError
from fiveways.journal.file_permissions import FilePermissions, permissions_for_group
from fiveways.journal.frame_buffer import FrameBatch
from fiveways.journal.memory import release_memory
from fiveways.journal.record_batches import RecordBatchBuilder
from fiveways.journal.redaction import Redactor
from fiveways.journal.schema import SCHEMA
from fiveways.journal.segment_closing import close_segment, delete_expired_segments, find_abandoned_segments, fsync_path
from fiveways.journal.segments import Segment, list_segments, segment_name
from fiveways.journal.suffixes import OPEN_SUFFIX
from fiveways.journal.writer_messages import WriterConfig
from fiveways.model.clock_jumps import ClockJumpDetector

_log = logging.getLogger("fiveways.journal")
_BATCH: Final = 1 << 14
"""Records that are worth a batch, even before it is time for one."""
_BATCH_BYTES: Final = 1 << 28
"""Payloads that are: a column has room for eight times as much."""
_MAX_WAITING_BATCHES: Final = 64
"""Pages that may wait; whoever brings more waits, too."""
_BUFFER: Final = 1 << 20
_boot_clock: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Goes on while the machine sleeps, where the system has such a clock."""
# Columns are too short for several threads to share the work: to hand it over costs more than it saves.
_LZ4: Final = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_WRITE_ERRORS: Final = (OSError, ArrowException)


class JournalWriter:
    """Writes one run of a hub into a directory."""

    def __init__(
        self,
        orders: WriterConfig,
        clock: Callable[[], float],
        told: Callable[[], None] = lambda: None,
        steady: Callable[[], float] = _boot_clock,
    ) -> None:
        """Make it; `clock` tells the seconds since 1970, `told` is called when there is more on disk than before.

        `steady` is a clock that cannot be set: it shows whether `clock` jumps.
        """
        self._directory = Path(orders.directory)
        self._access = permissions_for_group(orders.group)
        self._batch_builder = RecordBatchBuilder(
            orders.node, orders.run, orders.max_payload_bytes, Redactor(orders.redact, orders.patterns)
        )
        self._run = orders.run
        self._rules = orders.rules
        self._clock = clock
        self._on_progress = told
        self._steady_clock = steady
        self._clock_watch = ClockJumpDetector(orders.clock_jump, clock(), steady())
        self._is_deletion_held = orders.is_deletion_held
        self._queue: queue.Queue[FrameBatch | None] = queue.Queue(_MAX_WAITING_BATCHES)
        self._segment: _SegmentWriter | None = None
        self._number = 0
        self._closing_queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run_writer, name="journal", daemon=True)
        self._closer = threading.Thread(target=self._run_closer, name="journal-closer", daemon=True)
        self.written_records = 0
        """Records that are on disk."""
        self.lost_records = 0
        """Records that could not be written, or were removed."""
        self.removed_from_disk = 0
        """Records that were on disk, in an open segment that was removed."""
        self._last_error = ""
        self._batch_started_at = self._synced = monotonic()
        """When the last batch was begun, and when records were on disk."""
        self._had_backlog = False

    def start(self) -> None:
        """Begin; JournalError if nothing can be written there."""
        try:
            self._access.make_directory(self._directory)
            self._number = 1 + max((each.number for each in self._own_segments()), default=-1)
            self._open_segment()
        except _WRITE_ERRORS as exc:
            raise JournalError(f"the journal cannot be written to {self._directory}: {exc}") from exc
        for path in find_abandoned_segments(self._directory):
            self._closing_queue.put(path)
        self._writer.start()
        self._closer.start()

    def _own_segments(self) -> list[Segment]:
        """Return the segments of this run, which another process may have begun."""
        return [each for each in list_segments(str(self._directory)) if each.run == self._run]

    def put(self, page: FrameBatch) -> None:
        """Have a page written; wait if many do already."""
        self._queue.put(page)

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Delete no segments for their age, or trust the clock as it is now."""
        if not is_held:
            self._clock_watch.accept_wall_clock(self._clock(), self._steady_clock())
        self._is_deletion_held = is_held

    def _retention_days(self) -> float:
        """Return after how many days a segment is deleted."""
        self._clock_watch.trusted_time(self._clock(), self._steady_clock())
        return inf if self._is_deletion_held or self._clock_watch.jump else self._rules.keep_days

    def stop(self) -> None:
        """Write the rest, and close the last segment."""
        self._queue.put(None)
        self._writer.join()
        self._closer.join()

    # The writer's thread.

    def _run_writer(self) -> None:
        is_over = False
        while not is_over:
            pages, is_over = self._gather_batches()
            self._write_batches(pages)
            self._release_backlog_memory(pages)
        self._finish_segment()
        self._closing_queue.put(None)

    def _gather_batches(self) -> tuple[list[FrameBatch], bool]:
        """Gather pages for a while: together, each record costs less. Return them, and whether they are the last."""
        # Counted from the last batch: what came while that was written has waited already.
        pages, records, size, until = list[FrameBatch](), 0, 0, self._batch_started_at + self._rules.flush_interval / 2
        with suppress(queue.Empty):
            while records < _BATCH and size < _BATCH_BYTES:
                page = self._queue.get(timeout=max(0.0, until - monotonic()))
                if page is None:
                    return pages, True
                pages.append(page)
                records += len(page)
                size += len(page.payloads)
        self._batch_started_at = monotonic()
        return pages, False

    def _release_backlog_memory(self, pages: list[FrameBatch]) -> None:
        """Give back the memory of a backlog that is gone."""
        if pages:
            self._had_backlog |= sum(map(len, pages)) >= _BATCH
        elif self._had_backlog:
            self._had_backlog = False
            release_memory()

    def _write_batches(self, pages: list[FrameBatch]) -> None:
        """Write pages, and have them on disk as soon as no more wait, or it is time for that."""
        at_hand = sum(map(len, pages))
        try:
            if self._segment is not None and not self._segment.is_at_path():
                self._replace_removed_segment(self._segment)
            if pages:
                segment = self._segment or self._open_segment()
                segment.write(self._batch_builder.build(pages))
                at_hand = 0
                if segment.size >= self._rules.segment_bytes:
                    self._rotate(segment)
            is_due = self._queue.empty() or monotonic() - self._synced >= self._rules.flush_interval / 2
            if self._segment is not None and is_due:
                self._sync(self._segment)
                if self._clock() - self._segment.opened_at >= self._rules.segment_age:
                    self._rotate(self._segment)
            if pages:
                self._last_error = ""
        except Exception as exc:  # noqa: BLE001  whatever it is, what comes next is written
            self.lost_records += at_hand
            self._handle_write_error(exc)
            self._on_progress()

    def _sync(self, segment: "_SegmentWriter") -> None:
        if synced := segment.sync():
            self.written_records += synced
            self._on_progress()
        self._synced = monotonic()

    def _replace_removed_segment(self, segment: "_SegmentWriter") -> None:
        """Begin another segment in place of one that was removed or moved away, with the directory or without."""
        self._segment = None
        gone = segment.records if segment.is_deleted() else 0
        self.removed_from_disk += gone - segment.unsynced if gone else 0
        self.lost_records += gone
        segment.close()
        _log.error("%s was removed or moved while it was written: %d records are lost", segment.path, gone)
        self._on_progress()
        self._open_segment()

    def _rotate(self, segment: "_SegmentWriter") -> None:
        """Begin a new segment, unless there is nothing in this one."""
        if segment.records:
            self._sync(segment)
            self._finish_segment()

    def _handle_write_error(self, error: Exception) -> None:
        # The text of an OSError has the name of a file, which is another one at each attempt.
        trouble = f"{type(error).__name__} {error.errno}" if isinstance(error, OSError) else str(error)
        if trouble != self._last_error:
            self._last_error = trouble
            known = isinstance(error, _WRITE_ERRORS)
            _log.error("the journal has gaps: %s", error, exc_info=None if known else error)
        if self._segment is not None and isinstance(error, _WRITE_ERRORS):
            # What is half written ends this segment; the rest of it is good.
            self.lost_records += self._segment.unsynced
            self._finish_segment()

    def _open_segment(self) -> "_SegmentWriter":
        path = self._directory / (segment_name(self._run, self._number) + OPEN_SUFFIX)
        self._number += 1
        self._access.make_directory(self._directory)
        self._segment = _SegmentWriter(path, self._clock(), self._access)
        fsync_path(self._directory)
        return self._segment

    def _finish_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
            self._closing_queue.put(segment.path)

    # The closer's thread: what takes long must not keep others waiting.

    def _run_closer(self) -> None:
        while (path := self._closing_queue.get()) is not None:
            try:
                close_segment(path, self._access)
                for old in delete_expired_segments(
                    self._directory, self._rules.keep_bytes, self._retention_days(), self._clock()
                ):
                    _log.info("%s is over", old.name)
            except Exception as exc:  # noqa: BLE001  it stays as it is, and the next start tries again
                _log.error("%s cannot be closed: %s", path.name, exc)


class _SegmentWriter:
    """One segment that is being written."""

    def __init__(self, path: Path, now: float, access: FilePermissions) -> None:
        self.path = path
        self.opened_at = now
        self.records = 0
        self.unsynced = 0
        """Records that may not be on disk yet."""
        self._file = io.BufferedWriter(io.FileIO(path, "xb", opener=access.open), _BUFFER)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._stream = ipc.new_stream(PythonFile(self._file, "w"), SCHEMA, options=_LZ4)

    @property
    def size(self) -> int:
        return self._file.tell()

    def is_at_path(self) -> bool:
        """Say whether its path still names it."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_deleted(self) -> bool:
        """Say whether no path names it any more."""
        return os.fstat(self._file.fileno()).st_nlink == 0

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
        except _WRITE_ERRORS:
            self._file.raw.close()
