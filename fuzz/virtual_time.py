"""An event loop with a virtual clock, and a store that writes in it: a story runs alike each time, and never waits."""

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
"""Unix time at which the loop's clock shows 0."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Advances its clock to the next timer instead of waiting for it. There are no sockets and no threads in it."""

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
        """Advance the clock, in place of a selector."""
        if timeout is None:
            raise AssertionError("everybody waits for something that nobody does")
        if self._scheduled and not self._ready:
            # A timer is due when its time is over.
            self._now = max(self._now, nextafter(self._scheduled[0]._when, inf))
        return []

    def _process_events(self, _events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing has to be woken: the loop does not sleep."""

    @property
    def is_busy(self) -> bool:
        """Whether anything but the caller is to be run before time advances."""
        return bool(self._ready)

    def forget_all(self) -> None:
        """Drop all callbacks and timers, like a process that is killed; the caller goes on."""
        self._ready.clear()
        self._scheduled.clear()


class InlineWriter(WriterThread):
    """Writes in the event loop in place of a thread, `delay` seconds after the first change of a batch."""

    delay = 0.0
    is_full = False
    """There is no room on the disk."""

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
        self._really_commit = commit
        self.model = Model()
        """The records that are on disk, kept independently of SQL."""
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
        self._really_commit(connection, last)

    def start(self) -> None:
        """There is no thread to start."""

    def _work(self) -> None:
        self._is_scheduled = False
        while not self._changes.empty():
            batch, after = self._next_batch()
            told = self._write(batch)
            for (record, _), (_, error) in zip(batch, told, strict=True):
                if error is None:
                    self.model.apply(record)
            self._on_batch_done(told, sum(writer_thread.record_size(record) for record, _ in batch))
            self._update_state_file()
            if after is writer_thread.RESUME:
                self._stop_error = None
            self._clean_up()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._work()
        self.write_mark()
        store_file.close(self._connection, self._state)

    def kill(self) -> None:
        """Leave the files as they are, without what waits: SQLite would move the WAL into the database."""
        left = {each: each.read_bytes() for each in self._files()}
        self._connection.close()
        self._state.close()
        for each in self._files():
            each.unlink()
        for each, data in left.items():
            each.write_bytes(data)

    def _files(self) -> list[Path]:
        return [each for each in self._path.parent.glob(f"{self._path.name}*") if not each.name.endswith("-shm")]


class InlineStore(Store):
    """A store without a thread and without fsync."""

    inherited: ClassVar[tuple[Model, float]] = (Model(), 0.0)
    """The records that the store that is opened next should hold, and its delay."""
    loaded: StoreContents
    """The records that it gave to the hub,"""
    expected: StoreContents
    """and those that it should have given."""
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
        most = {"max_waiting": max_waiting, "max_waiting_bytes": max_waiting_bytes}
        made = cls(path, opened, now=now, loop=loop, commit=commit, mark=mark, **most)
        made._writer = InlineWriter(path, opened, made._log, made._on_batch_done, now, commit, mark)
        made._writer.model, made._writer.delay = cls.inherited
        made._enqueue = made._writer.put
        return made

    def load(self) -> StoreContents:
        """Return what it holds, and remember it."""
        self.expected = self.model.load(unix_time())
        self.loaded = super().load()
        return self.loaded

    @property
    def model(self) -> Model:
        """The records that were written."""
        return self._writer.model

    def fill(self, *, is_full: bool) -> None:
        """Leave no room on its disk, or make some again."""
        self._writer.is_full = is_full

    def kill(self) -> None:
        """End it without writing what waits, unless it is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.kill()


def now() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


def unix_time() -> float:
    """Return the same as Unix time."""
    return EPOCH + now()


@contextmanager
def replaced(random: Random) -> Iterator[None]:
    """Let all parts of a hub use the loop's clock, seeded chance and a store without a thread."""
    clocks: dict[str, object] = {
        "steady_clock": now,
        "boot_clock": now,
        "wall_clock": unix_time,
        "SystemRandom": lambda: random,
        "Store": InlineStore,
    }
    found = [
        (module, name, vars(module)[name])
        for key, module in list(sys.modules.items())
        if key.startswith("fiveways.runtime.")
        for name in clocks
        if name in vars(module)
    ]
    for module, name, _ in found:
        setattr(module, name, clocks[name])
    try:
        yield
    finally:
        for module, name, before in found:
            setattr(module, name, before)
