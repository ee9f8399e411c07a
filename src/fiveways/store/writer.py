"""The thread that writes: all that waits in one transaction, while the next is gathering."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from fiveways.model.records import PutAnswer, PutItem, PutRequest, PutRetained, Record
from fiveways.store import errors, file, schema
from fiveways.store.errors import StoreError
from fiveways.store.log import Log
from fiveways.store.state import StateFile
from fiveways.store.statement import Step

Done = Callable[[StoreError | None], None]
Change = tuple[Record, Done]
Told = tuple[Done, StoreError | None]

RESUME: Final[Change] = (Record(), lambda _: None)
"""What lets a writer go on that has stopped."""
_MOST: Final = 4096
"""Changes in one transaction."""
_BEGIN: Final[Step] = ("BEGIN", [])
_COMMIT: Final[Step] = ("COMMIT", [])
_NOTE_EVERY: Final = 8
"""Commits after which the state file is written: that costs as much as some records, so it is not done each time,"""
_NOTE_AFTER: Final = 0.005
"""unless no change comes for so many seconds."""
_PURGE_EVERY: Final = 1.0
_PURGE_MOST: Final = 100_000
_MARK: Final = f"REPLACE INTO mark (name, value) VALUES ('{schema.LAST}', ?)"  # noqa: S608
_MARK_EVERY: Final = 60.0
"""Seconds: a mark is a commit of its own."""


_WITH_BODY: Final[frozenset[type[Record]]] = frozenset({PutRequest, PutAnswer, PutItem, PutRetained})
Commit = Callable[[sqlite3.Connection, Step], None]


def commit(connection: sqlite3.Connection, last: Step) -> None:
    """Execute the last step of a batch; when this returns, a power cut does not undo any of it."""
    connection.execute(*last)


def size_of(record: Record) -> int:
    """Return the bytes of a record's body."""
    return len(record.word) if type(record) in _WITH_BODY else 0  # type: ignore[attr-defined]


class Writer:
    """Owns the connection once it is started. `tell` is called in its thread, once for each batch, in order.

    It gets what became of each change, and the bytes of all of them.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        state: StateFile,
        log: Log,
        tell: Callable[[list[Told], int], None],
        now: Callable[[], float],
        commit: Commit,
        mark: Callable[[], str] | None,
    ) -> None:
        self._path = path
        self._connection = connection
        self._state = state
        self._log = log
        self._tell = tell
        self._now = now
        self._commit = commit
        self._mark = mark
        self._purge_at = self._mark_at = 0.0
        self._unnoted = 0
        """Commits since the state file was written."""
        self._stopped: StoreError | None = None
        """Why nothing is written now: what comes later must not be on disk while what came before is not."""
        self._changes: SimpleQueue[Change | None] = SimpleQueue()
        self.put = self._changes.put
        """Lets a change wait; None ends the thread when all before it is written."""
        self._thread = Thread(target=self._run, name="fiveways-store", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Wait until everything is written, and the file is closed."""
        self.put(None)
        self._thread.join()

    def _run(self) -> None:
        after: Change | None = RESUME
        while after is not None:
            batch, after = self._batch()
            self._tell(self._write(batch), sum(size_of(record) for record, _ in batch))
            # Later than the answers, which need not wait for it: it never tells of more than is on disk.
            self._unnoted += 1
            if self._unnoted >= _NOTE_EVERY:
                self._note()
            if after is RESUME:
                self._stopped = None
            self._tidy()
        self.write_mark()
        file.close(self._connection, self._state)

    def _note(self) -> None:
        """Write down in the state file what has reached the disk."""
        self._unnoted = 0
        self._state.note()

    def _batch(self) -> tuple[list[Change], Change | None]:
        """Wait for a change, and return all that wait by then; and what came last, which may be no change."""
        get = self._changes.get
        batch: list[Change] = []
        try:
            change = get(timeout=_NOTE_AFTER if self._unnoted else None)
        except Empty:
            self._note()
            change = get()
        # Nobody else takes from the queue, so that its size never says too much.
        for _ in range(min(self._changes.qsize(), _MOST - 1)):
            if change is None or change is RESUME:
                return batch, change
            batch.append(change)
            change = get()
        if change is not None and change is not RESUME:
            batch.append(change)
        return batch, change

    def _write(self, batch: list[Change]) -> list[Told]:
        """Write changes together; if that fails, each half of them, up to the first that cannot be written now."""
        if not batch:
            return []
        if self._stopped is not None:
            return [(done, self._stopped) for _, done in batch]
        exc = self._try(batch)
        if exc is None:
            return [(done, None) for _, done in batch]
        if len(batch) == 1:
            record, done = batch[0]
            error = errors.writing(self._path, exc)
            # A request that cannot be kept is refused, so that nothing builds on it.
            if not error.is_its_own and not isinstance(record, PutRequest):
                self._stopped = error
            return [(done, error)]
        middle = len(batch) // 2
        return [*self._write(batch[:middle]), *self._write(batch[middle:])]

    def _try(self, batch: list[Change]) -> Exception | None:
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
        self._log.written(records)
        return None

    def _tidy(self) -> None:
        """Let go of what says nothing any more; where that cannot be written, it is done later."""
        now = self._now()
        try:
            self._log.sweep()
            if now >= self._purge_at:
                self._purge_at = now + _PURGE_EVERY
                self._log.purge(now, _PURGE_MOST)
        except sqlite3.Error:
            self._state.distrust()
        if now >= self._mark_at:
            self._mark_at = now + _MARK_EVERY
            self.write_mark()

    def write_mark(self) -> None:
        """Write the time of the last record, if that is wanted and there is room."""
        if self._mark is not None:
            try:
                self._connection.execute(_MARK, (self._mark(),))
            except sqlite3.Error:
                self._state.distrust()
