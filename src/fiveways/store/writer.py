"""The thread that writes: all that waits in one transaction, while the next is gathering."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from fiveways.model.records import PutRequest, Record
from fiveways.store import errors, schema
from fiveways.store.errors import StoreError
from fiveways.store.log import Log
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
_PURGE_EVERY: Final = 1.0
_PURGE_MOST: Final = 100_000


Commit = Callable[[sqlite3.Connection, Step], None]


def commit(connection: sqlite3.Connection, last: Step) -> None:
    """Execute the last step of a batch; when this returns, a power cut does not undo any of it."""
    connection.execute(*last)


class Writer:
    """Owns the connection once it is started. `tell` is called in its thread, once for each batch, in order."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        log: Log,
        tell: Callable[[list[Told]], None],
        now: Callable[[], float],
        commit: Commit,
    ) -> None:
        self._path = path
        self._connection = connection
        self._log = log
        self._tell = tell
        self._now = now
        self._commit = commit
        self._purge_at = 0.0
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
            self._tell(self._write(batch))
            if after is RESUME:
                self._stopped = None
            self._tidy()
        # The last one who closes a database moves the WAL into it. Where there is no room for that, the WAL stays.
        with suppress(sqlite3.Error):
            self._connection.close()

    def _batch(self) -> tuple[list[Change], Change | None]:
        """Wait for a change, and return all that wait by then; and what came last, which may be no change."""
        get = self._changes.get
        batch: list[Change] = []
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
            return exc
        self._log.written(records)
        return None

    def _tidy(self) -> None:
        """Let go of what says nothing any more; where that cannot be written, it is done later."""
        now = self._now()
        with suppress(sqlite3.Error):
            self._log.sweep()
            if now >= self._purge_at:
                self._purge_at = now + _PURGE_EVERY
                self._log.purge(now, _PURGE_MOST)
