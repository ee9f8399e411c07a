"""What must outlive the hub, in one SQLite file."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from fiveways.model.records import Record
from fiveways.store import errors, file, loaded, writer
from fiveways.store.errors import StoreError
from fiveways.store.loaded import Loaded
from fiveways.store.log import Log
from fiveways.store.writer import Commit, Done, Told, Writer

MAX_WAITING: Final = 100_000


class Store:
    """An open store. All of its methods belong to the thread of the event loop."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        max_waiting: int,
        commit: Commit,
    ) -> None:
        self.path = path
        self.waiting = 0
        """Changes whose `done` was not called yet."""
        self._now = now
        self._loop = loop
        self._max_waiting = max_waiting
        self._connection: sqlite3.Connection | None = connection
        """Ours until the first change; then the writer's."""
        self._told: deque[list[Told]] = deque()
        self._log = Log(connection)
        self._is_read = False
        self._writer = Writer(path, connection, self._log, self._hear, now, commit)
        self._put = self._writer.put
        self._is_closed = False

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop | None = None,
        max_waiting: int = MAX_WAITING,
        commit: Commit = writer.commit,
    ) -> Self:
        """Open the store, or make it; StoreError says why that cannot be. `loop` is the running one."""
        loop = loop or asyncio.get_running_loop()
        path = Path(path).absolute()
        return cls(path, file.connect(path), now=now, loop=loop, max_waiting=max_waiting, commit=commit)

    def load(self) -> Loaded:
        """Return what the store holds, before the first change is written."""
        if self._connection is None:
            raise StoreError(f"{self.path} is read before the first change, not later")
        try:
            found = loaded.load(self._connection, self._log, self._now())
        except sqlite3.Error as exc:
            raise errors.opening(self.path, exc) from exc
        self._is_read = True
        return found

    def write(self, record: Record, done: Done) -> None:
        """Let a change be written; `done` is called when it has reached the disk, or with why it has not.

        Changes are written, and `done` is called, in the order of this. Once one could not be written, none is that
        comes after it, until `resume`; but for a new request, and what never can be. StoreError if too many wait.
        """
        if self.waiting >= self._max_waiting or self._connection is not None or self._is_closed:
            self._begin()
        self.waiting += 1
        self._put((record, done))

    def resume(self) -> None:
        """Write again what is given from now on."""
        if self._connection is None and not self._is_closed:
            self._put(writer.RESUME)

    def close(self) -> None:
        """Have everything written that waits, and call what waits for it."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._connection is None:
            self._writer.close()
        else:
            self._connection.close()
            self._connection = None
        self._tell()

    def _begin(self) -> None:
        """Do what is rare: start the writer, or refuse a change."""
        if self._is_closed:
            raise StoreError(f"it could not be kept in {self.path}: the store is closed")
        if self.waiting >= self._max_waiting:
            why = f"{self.waiting} changes wait to be written"
            raise StoreError(f"{why} to {self.path}", why)
        if not self._is_read:  # what is written depends on what is there
            self.load()
        self._connection = None
        self._writer.start()

    def _hear(self, told: list[Told]) -> None:
        """Pass on from the writer's thread what became of a batch."""
        self._told.append(told)
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            # The loop is closed: whoever closes the store is told.
            return

    def _tell(self) -> None:
        while self._told:
            told = self._told.popleft()
            self.waiting -= len(told)
            for done, error in told:
                try:
                    done(error)
                except Exception as exc:  # noqa: BLE001  the others must hear of theirs
                    message = f"a change was written to {self.path}, and what was to follow failed"
                    self._loop.call_exception_handler({"message": message, "exception": exc})
