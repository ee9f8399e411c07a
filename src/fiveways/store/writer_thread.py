"""The thread that writes: all that waits in one transaction, while the next is gathering."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from fiveways.model.store_changes import PutAnswer, PutJob, PutRequest, PutRetained, StoreChange
from fiveways.store import errors, schema, store_file
from fiveways.store.batch_statement import Step
from fiveways.store.errors import StoreError
from fiveways.store.request_log import RequestLog
from fiveways.store.state_file import StateFile

DoneCallback = Callable[[StoreError | None], None]
Change = tuple[StoreChange, DoneCallback]
Outcome = tuple[DoneCallback, StoreError | None]

RESUME: Final[Change] = (StoreChange(), lambda _: None)
"""What lets a writer go on that has stopped."""
_MAX_BATCH: Final = 4096
"""Changes in one transaction."""
_BEGIN: Final[Step] = ("BEGIN", [])
_COMMIT: Final[Step] = ("COMMIT", [])
_STATE_EVERY: Final = 8
"""Commits after which the state file is written: that costs as much as some records, so it is not done each time,"""
_STATE_AFTER: Final = 0.005
"""unless no change comes for so many seconds."""
_PURGE_EVERY: Final = 1.0
_PURGE_LINES: Final = 100_000
_SET_LAST_RECORD: Final = f"REPLACE INTO mark (name, value) VALUES ('{schema.LAST_RECORD_MARK}', ?)"  # noqa: S608
_MARK_EVERY: Final = 60.0
"""Seconds: a mark is a commit of its own."""


_RECORDS_WITH_BODY: Final[frozenset[type[StoreChange]]] = frozenset({PutRequest, PutAnswer, PutJob, PutRetained})
CommitFunction = Callable[[sqlite3.Connection, Step], None]


def execute_last(connection: sqlite3.Connection, last: Step) -> None:
    """Execute the last step of a batch; when this returns, a power cut does not undo any of it."""
    connection.execute(*last)


def record_size(record: StoreChange) -> int:
    """Return the bytes of a record's body."""
    return len(record.word) if type(record) in _RECORDS_WITH_BODY else 0  # type: ignore[attr-defined]


class WriterThread:
    """Owns the connection once it is started. `tell` is called in its thread, once for each batch, in order.

    It gets what became of each change, and the bytes of all of them.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        state: StateFile,
        log: RequestLog,
        tell: Callable[[list[Outcome], int], None],
        now: Callable[[], float],
        commit: CommitFunction,
        mark: Callable[[], str] | None,
    ) -> None:
        self._path = path
        self._connection = connection
        self._state = state
        self._log = log
        self._on_batch_done = tell
        self._now = now
        self._commit = commit
        self._clock_mark = mark
        self._purge_at = self._mark_at = 0.0
        self._commits_since_state = 0
        """Commits since the state file was written."""
        self._stop_error: StoreError | None = None
        """Why nothing is written now: what comes later must not be on disk while what came before is not."""
        self._changes: SimpleQueue[Change | None] = SimpleQueue()
        self.enqueue = self._changes.put
        """Lets a change wait; None ends the thread when all before it is written."""
        self._thread = Thread(target=self._run, name="fiveways-store", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Wait until everything is written, and the file is closed."""
        self.enqueue(None)
        self._thread.join()

    def _run(self) -> None:
        after: Change | None = RESUME
        while after is not None:
            batch, after = self._next_batch()
            self._on_batch_done(self._write(batch), sum(record_size(record) for record, _ in batch))
            # Later than the answers, which need not wait for it: it never tells of more than is on disk.
            self._commits_since_state += 1
            if self._commits_since_state >= _STATE_EVERY:
                self._update_state_file()
            if after is RESUME:
                self._stop_error = None
            self._clean_up()
        self.write_mark()
        store_file.close(self._connection, self._state)

    def _update_state_file(self) -> None:
        """Write down in the state file what has reached the disk."""
        self._commits_since_state = 0
        self._state.record_commit()

    def _next_batch(self) -> tuple[list[Change], Change | None]:
        """Wait for a change, and return all that wait by then; and what came last, which may be no change."""
        get = self._changes.get
        batch: list[Change] = []
        try:
            change = get(timeout=_STATE_AFTER if self._commits_since_state else None)
        except Empty:
            self._update_state_file()
            change = get()
        # Nobody else takes from the queue, so that its size never says too much.
        for _ in range(min(self._changes.qsize(), _MAX_BATCH - 1)):
            if change is None or change is RESUME:
                return batch, change
            batch.append(change)
            change = get()
        if change is not None and change is not RESUME:
            batch.append(change)
        return batch, change

    def _write(self, batch: list[Change]) -> list[Outcome]:
        """Write changes together; if that fails, each half of them, up to the first that cannot be written now."""
        if not batch:
            return []
        if self._stop_error is not None:
            return [(done, self._stop_error) for _, done in batch]
        exc = self._write_transaction(batch)
        if exc is None:
            return [(done, None) for _, done in batch]
        if len(batch) == 1:
            record, done = batch[0]
            error = errors.write_error(self._path, exc)
            # A request that cannot be kept is refused, so that nothing builds on it.
            if not error.is_record_error and not isinstance(record, PutRequest):
                self._stop_error = error
            return [(done, error)]
        middle = len(batch) // 2
        return [*self._write(batch[:middle]), *self._write(batch[middle:])]

    def _write_transaction(self, batch: list[Change]) -> Exception | None:
        """Write changes in one transaction; if that fails, nothing of it is left, and the file is as it was."""
        connection = self._connection
        records = [record for record, _ in batch]
        try:
            steps = [*self._log.steps(records), *schema.steps(records)]
            if len(steps) > 1:  # one alone is a transaction
                steps = [_BEGIN, *steps, _COMMIT]
            last = steps.pop()
            for step in steps:
                connection.execute(*step)
            self._commit(connection, last)
        except Exception as exc:  # noqa: BLE001  whatever it is: those who wait are told, and the thread goes on
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(exc, sqlite3.OperationalError):
                self._state.distrust()
            return exc
        self._log.mark_written(records)
        return None

    def _clean_up(self) -> None:
        """Let go of what says nothing any more; where that cannot be written, it is done later."""
        now = self._now()
        try:
            self._log.sweep()
            if now >= self._purge_at:
                self._purge_at = now + _PURGE_EVERY
                self._log.purge_expired(now, _PURGE_LINES)
        except sqlite3.Error:
            self._state.distrust()
        if now >= self._mark_at:
            self._mark_at = now + _MARK_EVERY
            self.write_mark()

    def write_mark(self) -> None:
        """Write the time of the last record, if that is wanted and there is room."""
        if self._clock_mark is not None:
            try:
                self._connection.execute(_SET_LAST_RECORD, (self._clock_mark(),))
            except sqlite3.Error:
                self._state.distrust()
