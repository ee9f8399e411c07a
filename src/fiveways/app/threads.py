"""Where plain functions run."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from fiveways.app.pool import DaemonPool

MAX_THREADS: Final = 32
MAX_JOBS: Final = 500
"""Calls of plain functions that run or wait for a thread; the next one is refused as busy."""

T = TypeVar("T")


class Threads:
    """A pool of threads, made when the first job comes; its jobs see the context variables of whoever started them."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._is_ours = executor is None
        self._finished: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self.jobs = 0
        """Those started by `start` that are not over; one whose answer nobody wants any more still takes its place."""

    @property
    def is_full(self) -> bool:
        """Whether the next job must be refused."""
        return self.jobs >= MAX_JOBS

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Have `work`, which must not raise, done in a thread, and what it returns given to `done` in the loop."""
        self._pool().submit(copy_context().run, self._work, work, done)
        self.jobs += 1

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a thread and wait for it."""
        return await self._loop.run_in_executor(self._pool(), partial(copy_context().run, function, *args))

    def close(self) -> None:
        """Start nothing more. What runs cannot be stopped, and is not waited for, even at the end of the process."""
        if self._is_ours and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _pool(self) -> Executor:
        if self._executor is None:
            self._executor = DaemonPool(MAX_THREADS, "fiveways-app")
        return self._executor

    def _work(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._finished.append(partial(done, work()))
        # Waking the loop is what costs most here, so all that finish before it is awake share it.
        if self._is_woken:
            return
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._take_finished)
        except RuntimeError:
            # The loop is closed: there is nobody left to tell.
            return

    def _take_finished(self) -> None:
        # First this: what finishes from now on may come too late for the rest of this function.
        self._is_woken = False
        while self._finished:
            self.jobs -= 1
            self._finished.popleft()()
