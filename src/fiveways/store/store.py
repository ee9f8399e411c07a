"""SQLite store for all data that survives a restart of the hub."""

import asyncio
import atexit
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from fiveways.model.store_changes import StoreChange
from fiveways.store import contents, errors, schema, store_file, writer_thread
from fiveways.store.contents import StoreContents
from fiveways.store.errors import StoreError
from fiveways.store.request_log import RequestLog
from fiveways.store.state_file import StateFile
from fiveways.store.writer_thread import CommitFunction, DoneCallback, Outcome, WriterThread

MAX_WAITING: Final = 100_000
MAX_WAITING_BYTES: Final = 1 << 26
"""Maximum bytes of payloads that wait for the disk: a batch is in memory twice while it is written."""


class Store:
    """Open store. All methods must be called in the thread of the event loop."""

    def __init__(
        self,
        path: Path,
        opened: tuple[sqlite3.Connection, StateFile],
        *,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        max_waiting: int,
        max_waiting_bytes: int,
        commit: CommitFunction,
        mark: Callable[[], str] | None,
    ) -> None:
        connection, state = opened
        self.path = path
        self.waiting = 0
        """Number of changes with a pending callback."""
        self.waiting_bytes = 0
        """Bytes of their payloads."""
        self._now = now
        self._loop = loop
        self._max_waiting, self._max_waiting_bytes = max_waiting, max_waiting_bytes
        self._connection: sqlite3.Connection | None = connection
        """Connection, until the first change moves it to the writer thread."""
        self._state = state
        self._outcomes: deque[tuple[list[Outcome], int]] = deque()
        self._log = RequestLog(connection)
        self._is_loaded = False
        self._writer = WriterThread(path, connection, state, self._log, self._on_batch_done, now, commit, mark)
        self._enqueue = self._writer.enqueue
        self._is_closed = False

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop | None = None,
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        commit: CommitFunction = writer_thread.execute_last,
        mark: Callable[[], str] | None = None,
    ) -> Self:
        """Open or create a store; StoreError if that fails. `loop` defaults to the running loop.

        `mark` returns the time for `last_mark`; it is called in the writer thread.
        """
        loop = loop or asyncio.get_running_loop()
        path = Path(path).absolute()
        limits = {"max_waiting": max_waiting, "max_waiting_bytes": max_waiting_bytes}
        store = cls(path, store_file.connect(path), now=now, loop=loop, commit=commit, mark=mark, **limits)
        atexit.register(store._close_files)  # otherwise the interpreter closes the database, which deletes the WAL
        return store

    def last_mark(self) -> str:
        """Return the mark of an earlier process's last record, or an empty string; for use before the first change."""
        if self._connection is None:
            return ""
        try:
            row = self._connection.execute(
                "SELECT value FROM mark WHERE name = ?", (schema.LAST_RECORD_MARK,)
            ).fetchone()
        except sqlite3.Error as exc:
            raise errors.opening_error(self.path, exc) from exc
        return "" if row is None else str(row[0])

    def load(self) -> StoreContents:
        """Return the contents of the store. Call it before the first change."""
        if self._connection is None:
            raise StoreError(f"{self.path} can only be loaded before the first change")
        try:
            loaded = contents.load(self._connection, self._log, self._now())
        except sqlite3.Error as exc:
            raise errors.opening_error(self.path, exc) from exc
        self._is_loaded = True
        return loaded

    def write(self, record: StoreChange, done: DoneCallback) -> None:
        """Write a change; call `done` when it is on disk, or with an error.

        Changes are written, and their callbacks called, in order. After a failed change, all later ones fail until
        `resume`. A failed new request, or a change that can never be written, does not stop later ones. StoreError if
        too many wait.
        """
        if (
            self.waiting >= self._max_waiting
            or self.waiting_bytes >= self._max_waiting_bytes
            or self._connection is not None
            or self._is_closed
        ):
            self._start_writer()
        self.waiting += 1
        self.waiting_bytes += writer_thread.record_size(record)
        self._enqueue((record, done))

    def resume(self) -> None:
        """Accept changes again after a failure."""
        if self._connection is None and not self._is_closed:
            self._enqueue(writer_thread.RESUME)

    def close(self) -> None:
        """Write all waiting changes, call their callbacks, and close the store."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._close_files)
        self._close_files()
        self._call_done()

    def _close_files(self) -> None:
        """Write all waiting changes, and close the files cleanly."""
        if self._connection is None:
            self._writer.close()
        else:
            if self._is_loaded:
                self._writer.write_mark()
            store_file.close(self._connection, self._state)
            self._connection = None

    def _start_writer(self) -> None:
        """Handle rare cases: start the writer thread, or refuse a change."""
        if self._is_closed:
            raise StoreError(f"it was not stored in {self.path}: the store is closed")
        if self.waiting >= self._max_waiting or self.waiting_bytes >= self._max_waiting_bytes:
            reason = f"{self.waiting} changes with {self.waiting_bytes} bytes wait to be written"
            raise StoreError(f"{self.path} is too slow: {reason}", reason)
        if not self._is_loaded:  # the statements depend on the contents
            self.load()
        self._connection = None
        self._writer.start()

    def _on_batch_done(self, outcomes: list[Outcome], size: int) -> None:
        """Pass the outcomes of a batch from the writer thread to the event loop."""
        self._outcomes.append((outcomes, size))
        try:
            self._loop.call_soon_threadsafe(self._call_done)
        except RuntimeError:
            # The loop is closed; `close` calls the callbacks.
            return

    def _call_done(self) -> None:
        while self._outcomes:
            outcomes, size = self._outcomes.popleft()
            self.waiting -= len(outcomes)
            self.waiting_bytes -= size
            for done, error in outcomes:
                try:
                    done(error)
                except Exception as exc:  # noqa: BLE001  the other callbacks must be called
                    message = f"the callback of a change failed path={self.path}"
                    self._loop.call_exception_handler({"message": message, "exception": exc})
