"""Writer thread of a store: each transaction contains all changes that arrived during the previous one."""

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
"""Change that lets a stopped writer continue."""
_MAX_BATCH: Final = 4096
"""Maximum number of changes in one transaction."""
_BEGIN: Final[Step] = ("BEGIN", [])
_COMMIT: Final[Step] = ("COMMIT", [])
_STATE_EVERY: Final = 8
"""Commits between two writes of the state file; each write costs as much as some records."""
_STATE_AFTER: Final = 0.005
"""Seconds without a change after which the state file is written earlier."""
_PURGE_EVERY: Final = 1.0
_PURGE_LINES: Final = 100_000
_SET_LAST_RECORD: Final = f"REPLACE INTO mark (name, value) VALUES ('{schema.LAST_RECORD_MARK}', ?)"  # noqa: S608
_MARK_EVERY: Final = 60.0
"""Seconds between two marks; a mark is a separate commit."""


_RECORDS_WITH_BODY: Final[frozenset[type[StoreChange]]] = frozenset({PutRequest, PutAnswer, PutJob, PutRetained})
CommitFunction = Callable[[sqlite3.Connection, Step], None]


def execute_last(connection: sqlite3.Connection, last: Step) -> None:
    """Execute the last step of a batch; after it, the batch survives a power cut."""
    connection.execute(*last)


def record_size(record: StoreChange) -> int:
    """Return the size of a record's payload in bytes."""
    return len(record.payload) if type(record) in _RECORDS_WITH_BODY else 0  # type: ignore[attr-defined]


class WriterThread:
    """Owner of the connection after its start. `on_batch_done` is called in its thread for each batch, in order.

    It gets the outcome of each change, and the bytes of all payloads.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        state: StateFile,
        log: RequestLog,
        on_batch_done: Callable[[list[Outcome], int], None],
        now: Callable[[], float],
        commit: CommitFunction,
        mark: Callable[[], str] | None,
    ) -> None:
        self._path = path
        self._connection = connection
        self._state = state
        self._log = log
        self._on_batch_done = on_batch_done
        self._now = now
        self._commit = commit
        self._clock_mark = mark
        self._purge_at = self._mark_at = 0.0
        self._commits_since_state = 0
        """Commits since the state file was written."""
        self._stop_error: StoreError | None = None
        """Error that stopped the writer: a later change must not be on disk without an earlier one."""
        self._changes: SimpleQueue[Change | None] = SimpleQueue()
        self.enqueue = self._changes.put
        """Queues a change; None ends the thread after all changes before it."""
        self._thread = Thread(target=self._run, name="fiveways-store", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Wait until all changes are written and the files are closed."""
        self.enqueue(None)
        self._thread.join()

    def _run(self) -> None:
        last: Change | None = RESUME
        while last is not None:
            batch, last = self._next_batch()
            self._on_batch_done(self._write(batch), sum(record_size(record) for record, _ in batch))
            # After the callbacks, which need not wait for it: the state file never claims more than is on disk.
            self._commits_since_state += 1
            if self._commits_since_state >= _STATE_EVERY:
                self._update_state_file()
            if last is RESUME:
                self._stop_error = None
            self._clean_up()
        self.write_mark()
        store_file.close(self._connection, self._state)

    def _update_state_file(self) -> None:
        """Write the last frame on disk to the state file."""
        self._commits_since_state = 0
        self._state.record_commit()

    def _next_batch(self) -> tuple[list[Change], Change | None]:
        """Wait for a change; return all waiting ones, and the last item of the queue, which may be None or RESUME."""
        get = self._changes.get
        batch: list[Change] = []
        try:
            change = get(timeout=_STATE_AFTER if self._commits_since_state else None)
        except Empty:
            self._update_state_file()
            change = get()
        # Only this thread takes from the queue, so its size is a lower bound.
        for _ in range(min(self._changes.qsize(), _MAX_BATCH - 1)):
            if change is None or change is RESUME:
                return batch, change
            batch.append(change)
            change = get()
        if change is not None and change is not RESUME:
            batch.append(change)
        return batch, change

    def _write(self, batch: list[Change]) -> list[Outcome]:
        """Write changes together; if that fails, write each half, up to the first change that cannot be written."""
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
            # A failed request is refused, so no later change depends on it.
            if not error.is_record_error and not isinstance(record, PutRequest):
                self._stop_error = error
            return [(done, error)]
        middle = len(batch) // 2
        return [*self._write(batch[:middle]), *self._write(batch[middle:])]

    def _write_transaction(self, batch: list[Change]) -> Exception | None:
        """Write changes in one transaction, which is rolled back if it fails."""
        connection = self._connection
        records = [record for record, _ in batch]
        try:
            steps = [*self._log.steps(records), *schema.steps(records)]
            if len(steps) > 1:  # a single statement is a transaction
                steps = [_BEGIN, *steps, _COMMIT]
            last = steps.pop()
            for step in steps:
                connection.execute(*step)
            self._commit(connection, last)
        except Exception as exc:  # noqa: BLE001  all callbacks get the error, and the thread continues
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(exc, sqlite3.OperationalError):
                self._state.distrust()
            return exc
        self._log.mark_written(records)
        return None

    def _clean_up(self) -> None:
        """Delete obsolete and expired lines; if that fails, it is repeated later."""
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
        """Write the time of the last record if the store has a clock; ignore errors such as a full disk."""
        if self._clock_mark is not None:
            try:
                self._connection.execute(_SET_LAST_RECORD, (self._clock_mark(),))
            except sqlite3.Error:
                self._state.distrust()
