"""An event loop with a virtual clock, and a store that writes in it: scenarios are reproducible and never wait."""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, nextafter
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, Self

from fiveways.store import store_file, writer_thread
from fiveways.store.batch_statement import Step
from fiveways.store.contents import StoreContents
from fiveways.store.request_log import RequestLog
from fiveways.store.state_file import StateFile
from fiveways.store.store import MAX_WAITING, MAX_WAITING_BYTES, Store
from fiveways.store.writer_thread import Change, CommitFunction, Outcome, WriterThread
from tests.support.store_helpers import Model

EPOCH: Final = 1_700_000_000.0
"""Unix time at time 0 of the loop's clock."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that advances its clock to the next timer instead of waiting; no sockets, no threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._selector = self
        self._clock_resolution = 0.0
        self._ready: Any
        self._scheduled: Any

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """Advance the clock; replaces a selector."""
        if timeout is None:
            raise AssertionError("deadlock: nothing is ready and no timer is set")
        if self._scheduled and not self._ready:
            # A timer is due only after its time.
            self._now = max(self._now, nextafter(self._scheduled[0]._when, inf))
        return []

    def _process_events(self, _events: object) -> None:
        """Do nothing: there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop does not sleep."""

    @property
    def is_busy(self) -> bool:
        """Whether callbacks other than the current one are ready."""
        return bool(self._ready)

    def forget_all(self) -> None:
        """Drop all callbacks and timers, like a killed process; the caller continues."""
        self._ready.clear()
        self._scheduled.clear()


class InlineWriter(WriterThread):
    """A writer in the event loop instead of a thread; it writes `delay` seconds after a batch's first change."""

    delay = 0.0
    is_full = False
    """Whether the disk is full."""

    def __init__(
        self,
        path: Path,
        opened: tuple[sqlite3.Connection, StateFile],
        log: RequestLog,
        tell: Callable[[list[Outcome], int], None],
        now: Callable[[], float],
        commit: CommitFunction,
        mark: Callable[[], str] | None,
    ) -> None:
        super().__init__(path, *opened, log, tell, now, self._commit_unless_full, mark)
        self._commit_batch = commit
        self.model = Model()
        """The records on disk, tracked independently of SQL."""
        self._append = self._changes.put
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()
        self.put: Any = self._put

    def _put(self, change: Change | None) -> None:
        self._append(change)
        if not self._is_scheduled:
            self._is_scheduled = True
            if self.delay:
                self._loop.call_later(self.delay, self._work)
            else:
                self._loop.call_soon(self._work)

    def _commit_unless_full(self, connection: sqlite3.Connection, last: Step) -> None:
        if self.is_full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        self._commit_batch(connection, last)

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def _work(self) -> None:
        self._is_scheduled = False
        while not self._changes.empty():
            batch, control = self._next_batch()
            outcomes = self._write(batch)
            for (record, _), (_, error) in zip(batch, outcomes, strict=True):
                if error is None:
                    self.model.apply(record)
            self._on_batch_done(outcomes, sum(writer_thread.record_size(record) for record, _ in batch))
            self._update_state_file()
            if control is writer_thread.RESUME:
                self._stop_error = None
            self._clean_up()

    def close(self) -> None:
        """Write pending changes and close the file."""
        self._work()
        self.write_mark()
        store_file.close(self._connection, self._state)

    def kill(self) -> None:
        """Leave the files as they are, without pending changes: SQLite would move the WAL into the database."""
        contents = {path: path.read_bytes() for path in self._files()}
        self._connection.close()
        self._state.close()
        for path in self._files():
            path.unlink()
        for path, data in contents.items():
            path.write_bytes(data)

    def _files(self) -> list[Path]:
        return [path for path in self._path.parent.glob(f"{self._path.name}*") if not path.name.endswith("-shm")]


class InlineStore(Store):
    """A store without a thread and without fsync."""

    inherited: ClassVar[tuple[Model, float]] = (Model(), 0.0)
    """Contents that the next opened store should have, and its delay."""
    loaded: StoreContents
    """The contents that the hub loaded."""
    expected: StoreContents
    """The contents that the hub should have loaded."""
    _writer: InlineWriter

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
        """Open the store of a hub."""
        loop, path = loop or asyncio.get_running_loop(), Path(path)
        opened = store_file.connect(path)
        opened[0].execute("PRAGMA synchronous = OFF")
        limits = {"max_waiting": max_waiting, "max_waiting_bytes": max_waiting_bytes}
        store = cls(path, opened, now=now, loop=loop, commit=commit, mark=mark, **limits)
        store._writer = InlineWriter(path, opened, store._log, store._on_batch_done, now, commit, mark)
        store._writer.model, store._writer.delay = cls.inherited
        store._enqueue = store._writer.put
        return store

    def load(self) -> StoreContents:
        """Return the contents, and remember them."""
        self.expected = self.model.load(unix_time())
        self.loaded = super().load()
        return self.loaded

    @property
    def model(self) -> Model:
        """The records that were written."""
        return self._writer.model

    def fill(self, *, is_full: bool) -> None:
        """Set whether the disk is full."""
        self._writer.is_full = is_full

    def kill(self) -> None:
        """Close without writing pending changes."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.kill()


def now() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


def unix_time() -> float:
    """Return the Unix time of the running loop."""
    return EPOCH + now()


@contextmanager
def simulated_environment(random: Random) -> Iterator[None]:
    """Make the hub's modules use the loop's clock, seeded random numbers and the inline store."""
    replacements: dict[str, object] = {
        "steady_clock": now,
        "boot_clock": now,
        "wall_clock": unix_time,
        "SystemRandom": lambda: random,
        "Store": InlineStore,
    }
    patched = [
        (module, name, vars(module)[name])
        for key, module in list(sys.modules.items())
        if key.startswith("fiveways.runtime.")
        for name in replacements
        if name in vars(module)
    ]
    for module, name, _ in patched:
        setattr(module, name, replacements[name])
    try:
        yield
    finally:
        for module, name, original in patched:
            setattr(module, name, original)
