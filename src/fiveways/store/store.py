"""What must outlive the hub, in one SQLite file."""

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
"""Bytes of bodies that may wait for the disk: a batch of them is in memory twice while it is written."""


class Store:
    """An open store. All of its methods belong to the thread of the event loop."""

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
        """Changes whose `done` was not called yet."""
        self.waiting_bytes = 0
        """The bytes of their bodies."""
        self._now = now
        self._loop = loop
        self._max_waiting, self._max_waiting_bytes = max_waiting, max_waiting_bytes
        self._connection: sqlite3.Connection | None = connection
        """Ours until the first change; then the writer's."""
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
        """Open the store, or make it; StoreError says why that cannot be. `loop` is the running one.

        `mark` tells the time for `last_mark`; it is called in the writer's thread.
        """
        loop = loop or asyncio.get_running_loop()
        path = Path(path).absolute()
        most = {"max_waiting": max_waiting, "max_waiting_bytes": max_waiting_bytes}
        store = cls(path, store_file.connect(path), now=now, loop=loop, commit=commit, mark=mark, **most)
        atexit.register(store._close_files)  # otherwise the interpreter closes the database, and its WAL is gone
        return store

    def last_mark(self) -> str:
        """Return the mark of the last record of an earlier process, before the first change; empty if there is none."""
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
        """Return what the store holds, before the first change is written."""
        if self._connection is None:
            raise StoreError(f"{self.path} is read before the first change, not later")
        try:
            found = contents.load(self._connection, self._log, self._now())
        except sqlite3.Error as exc:
            raise errors.opening_error(self.path, exc) from exc
        self._is_loaded = True
        return found

    def write(self, record: StoreChange, done: DoneCallback) -> None:
        """Let a change be written; `done` is called when it has reached the disk, or with why it has not.

        Changes are written, and `done` is called, in the order of this. Once one could not be written, none is that
        comes after it, until `resume`; but for a new request, and what never can be. StoreError if too many wait.
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
        """Write again what is given from now on."""
        if self._connection is None and not self._is_closed:
            self._enqueue(writer_thread.RESUME)

    def close(self) -> None:
        """Have everything written that waits, and call what waits for it."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._close_files)
        self._close_files()
        self._call_done()

    def _close_files(self) -> None:
        """Have everything written that waits, and close the files in good order."""
        if self._connection is None:
            self._writer.close()
        else:
            if self._is_loaded:
                self._writer.write_mark()
            store_file.close(self._connection, self._state)
            self._connection = None

    def _start_writer(self) -> None:
        """Do what is rare: start the writer, or refuse a change."""
        if self._is_closed:
            raise StoreError(f"it could not be kept in {self.path}: the store is closed")
        if self.waiting >= self._max_waiting or self.waiting_bytes >= self._max_waiting_bytes:
            why = f"{self.waiting} changes wait to be written, {self.waiting_bytes} bytes"
            raise StoreError(f"{self.path} is too slow: {why}", why)
        if not self._is_loaded:  # what is written depends on what is there
            self.load()
        self._connection = None
        self._writer.start()

    def _on_batch_done(self, told: list[Outcome], size: int) -> None:
        """Pass on from the writer's thread what became of a batch."""
        self._outcomes.append((told, size))
        try:
            self._loop.call_soon_threadsafe(self._call_done)
        except RuntimeError:
            # The loop is closed: whoever closes the store is told.
            return

    def _call_done(self) -> None:
        while self._outcomes:
            told, size = self._outcomes.popleft()
            self.waiting -= len(told)
            self.waiting_bytes -= size
            for done, error in told:
                try:
                    done(error)
                except Exception as exc:  # noqa: BLE001  the others must hear of theirs
                    message = f"a change was written to {self.path}, and what was to follow failed"
                    self._loop.call_exception_handler({"message": message, "exception": exc})
