"""Threads of the writer process: one writes batches to an open segment, one closes segments that are full or old."""

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
"""Records that are written at once, without waiting for the flush interval."""
_BATCH_BYTES: Final = 1 << 28
"""Payload bytes that are written at once; a column has room for eight times as many."""
_MAX_WAITING_BATCHES: Final = 64
"""Maximum queued batches; `put` blocks while the queue is full."""
_BUFFER: Final = 1 << 20
_boot_clock: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Monotonic clock that includes the time in suspend, if the system has one."""
# Columns are too short for multithreading: the hand-over costs more than it saves.
_LZ4: Final = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_WRITE_ERRORS: Final = (OSError, ArrowException)


class JournalWriter:
    """Writes one run of a hub to a directory."""

    def __init__(
        self,
        config: WriterConfig,
        clock: Callable[[], float],
        on_progress: Callable[[], None] = lambda: None,
        steady_clock: Callable[[], float] = _boot_clock,
    ) -> None:
        """Create a writer.

        Args:
            config: The configuration of the run.
            clock: Returns Unix time.
            on_progress: Called when more records are on disk or lost.
            steady_clock: A clock that cannot be set, to detect jumps of `clock`.
        """
        self._directory = Path(config.directory)
        self._permissions = permissions_for_group(config.group)
        self._batch_builder = RecordBatchBuilder(
            config.node, config.run, config.max_payload_bytes, Redactor(config.redact, config.patterns)
        )
        self._run = config.run
        self._rules = config.rules
        self._clock = clock
        self._on_progress = on_progress
        self._steady_clock = steady_clock
        self._clock_watch = ClockJumpDetector(config.clock_jump, clock(), steady_clock())
        self._is_deletion_held = config.is_deletion_held
        self._queue: queue.Queue[FrameBatch | None] = queue.Queue(_MAX_WAITING_BATCHES)
        self._segment: _SegmentWriter | None = None
        self._number = 0
        self._closing_queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run_writer, name="journal", daemon=True)
        self._closer = threading.Thread(target=self._run_closer, name="journal-closer", daemon=True)
        self.written_records = 0
        """Records on disk."""
        self.lost_records = 0
        """Records that could not be written, or that were removed from disk."""
        self.removed_from_disk = 0
        """Records that were on disk in an open segment that was removed."""
        self._last_error = ""
        self._batch_started_at = self._synced_at = monotonic()
        self._had_backlog = False

    def start(self) -> None:
        """Start both threads; JournalError if the directory is not writable."""
        try:
            self._permissions.make_directory(self._directory)
            self._number = 1 + max((segment.number for segment in self._own_segments()), default=-1)
            self._open_segment()
        except _WRITE_ERRORS as exc:
            raise JournalError(f"the journal cannot be written to {self._directory}: {exc}") from exc
        for path in find_abandoned_segments(self._directory):
            self._closing_queue.put(path)
        self._writer.start()
        self._closer.start()

    def _own_segments(self) -> list[Segment]:
        """Return the segments of this run; a previous writer process may have begun it."""
        return [segment for segment in list_segments(str(self._directory)) if segment.run == self._run]

    def put(self, batch: FrameBatch) -> None:
        """Queue a batch; block while the queue is full."""
        self._queue.put(batch)

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Suspend deletion by age; or resume it, and trust the current time."""
        if not is_held:
            self._clock_watch.accept_wall_clock(self._clock(), self._steady_clock())
        self._is_deletion_held = is_held

    def _retention_days(self) -> float:
        """Return the maximum age of a segment in days."""
        self._clock_watch.trusted_time(self._clock(), self._steady_clock())
        return inf if self._is_deletion_held or self._clock_watch.jump else self._rules.keep_days

    def stop(self) -> None:
        """Write the queued batches, and close the last segment."""
        self._queue.put(None)
        self._writer.join()
        self._closer.join()

    # Writer thread.

    def _run_writer(self) -> None:
        is_over = False
        while not is_over:
            batches, is_over = self._gather_batches()
            self._write_batches(batches)
            self._release_backlog_memory(batches)
        self._finish_segment()
        self._closing_queue.put(None)

    def _gather_batches(self) -> tuple[list[FrameBatch], bool]:
        """Collect batches for a while, because larger writes cost less per record.

        Return the batches, and whether they are the last.
        """
        # Measured from the last batch, because records that arrived during its write have waited already.
        batches, records, size = list[FrameBatch](), 0, 0
        deadline = self._batch_started_at + self._rules.flush_interval / 2
        with suppress(queue.Empty):
            while records < _BATCH and size < _BATCH_BYTES:
                batch = self._queue.get(timeout=max(0.0, deadline - monotonic()))
                if batch is None:
                    return batches, True
                batches.append(batch)
                records += len(batch)
                size += len(batch.payloads)
        self._batch_started_at = monotonic()
        return batches, False

    def _release_backlog_memory(self, batches: list[FrameBatch]) -> None:
        """Release the memory of a backlog that has been written."""
        if batches:
            self._had_backlog |= sum(map(len, batches)) >= _BATCH
        elif self._had_backlog:
            self._had_backlog = False
            release_memory()

    def _write_batches(self, batches: list[FrameBatch]) -> None:
        """Write batches; synchronize when the queue is empty or the flush interval is over."""
        unwritten_records = sum(map(len, batches))
        try:
            if self._segment is not None and not self._segment.is_at_path():
                self._replace_removed_segment(self._segment)
            if batches:
                segment = self._segment or self._open_segment()
                segment.write(self._batch_builder.build(batches))
                unwritten_records = 0
                if segment.size >= self._rules.segment_bytes:
                    self._rotate(segment)
            is_due = self._queue.empty() or monotonic() - self._synced_at >= self._rules.flush_interval / 2
            if self._segment is not None and is_due:
                self._sync(self._segment)
                if self._clock() - self._segment.opened_at >= self._rules.segment_age:
                    self._rotate(self._segment)
            if batches:
                self._last_error = ""
        except Exception as exc:  # noqa: BLE001  after any error, later batches are still written
            self.lost_records += unwritten_records
            self._handle_write_error(exc)
            self._on_progress()

    def _sync(self, segment: "_SegmentWriter") -> None:
        if synced := segment.sync():
            self.written_records += synced
            self._on_progress()
        self._synced_at = monotonic()

    def _replace_removed_segment(self, segment: "_SegmentWriter") -> None:
        """Open a new segment after the file, or the whole directory, was removed or moved."""
        self._segment = None
        lost = segment.records if segment.is_deleted() else 0
        self.removed_from_disk += lost - segment.unsynced if lost else 0
        self.lost_records += lost
        segment.close()
        _log.error(
            "open segment %s was removed or moved, %d records are lost; starting another segment", segment.path, lost
        )
        self._on_progress()
        self._open_segment()

    def _rotate(self, segment: "_SegmentWriter") -> None:
        """Start a new segment, unless the current one is empty."""
        if segment.records:
            self._sync(segment)
            self._finish_segment()

    def _handle_write_error(self, error: Exception) -> None:
        # The text of an OSError contains a file name, which differs at each attempt.
        description = f"{type(error).__name__} {error.errno}" if isinstance(error, OSError) else str(error)
        if description != self._last_error:
            self._last_error = description
            is_expected = isinstance(error, _WRITE_ERRORS)
            _log.error("the journal has gaps: %s", error, exc_info=None if is_expected else error)
        if self._segment is not None and isinstance(error, _WRITE_ERRORS):
            # The incomplete batch ends this segment; earlier batches are readable.
            self.lost_records += self._segment.unsynced
            self._finish_segment()

    def _open_segment(self) -> "_SegmentWriter":
        path = self._directory / (segment_name(self._run, self._number) + OPEN_SUFFIX)
        self._number += 1
        self._permissions.make_directory(self._directory)
        self._segment = _SegmentWriter(path, self._clock(), self._permissions)
        fsync_path(self._directory)
        return self._segment

    def _finish_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
            self._closing_queue.put(segment.path)

    # Closer thread: conversion to Parquet is slow, and must not delay writes.

    def _run_closer(self) -> None:
        while (path := self._closing_queue.get()) is not None:
            try:
                close_segment(path, self._permissions)
                for deleted in delete_expired_segments(
                    self._directory, self._rules.keep_bytes, self._retention_days(), self._clock()
                ):
                    _log.info("deleted expired segment %s", deleted.name)
            except Exception as exc:  # noqa: BLE001  the open segment remains, and the next start retries
                _log.error("segment %s cannot be closed: %s; the next start retries", path.name, exc)


class _SegmentWriter:
    """Writer of one open segment."""

    def __init__(self, path: Path, now: float, permissions: FilePermissions) -> None:
        self.path = path
        self.opened_at = now
        self.records = 0
        self.unsynced = 0
        """Records that may not be on disk yet."""
        self._file = io.BufferedWriter(io.FileIO(path, "xb", opener=permissions.open), _BUFFER)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._stream = ipc.new_stream(PythonFile(self._file, "w"), SCHEMA, options=_LZ4)

    @property
    def size(self) -> int:
        return self._file.tell()

    def is_at_path(self) -> bool:
        """Return whether the path still refers to the open file."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_deleted(self) -> bool:
        """Return whether no path refers to the open file any more."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def write(self, batch: RecordBatch) -> None:
        self._stream.write_batch(batch)
        self.records += len(batch)
        self.unsynced += len(batch)

    def sync(self) -> int:
        """Synchronize the file to disk; return the number of newly synchronized records."""
        if not self.unsynced:
            return 0
        self._file.flush()
        os.fdatasync(self._file.fileno())
        synced, self.unsynced = self.unsynced, 0
        return synced

    def close(self) -> None:
        """Write the end of the stream if there is room; readers accept segments without an end."""
        try:
            self._stream.close()
            self._file.close()
        except _WRITE_ERRORS:
            self._file.raw.close()
