"""Where plain functions run."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from fiveways.app.daemon_pool import DaemonThreadPool

MAX_THREADS: Final = 32
MAX_THREAD_CALLS: Final = 500
"""Calls of plain functions that run or wait for a thread; the next one is refused as busy."""

T = TypeVar("T")


class ThreadRunner:
    """A pool of threads, made when the first job comes; its jobs see the context variables of whoever started them."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._owns_executor = executor is None
        self._finished: deque[Callable[[], None]] = deque()
        self._is_wakeup_scheduled = False
        self.active = 0
        """Those started by `start` that are not over; one whose answer nobody wants any more still takes its place."""

    @property
    def is_full(self) -> bool:
        """Whether the next job must be refused."""
        return self.active >= MAX_THREAD_CALLS

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Have `work`, which must not raise, done in a thread, and what it returns given to `done` in the loop."""
        self._get_executor().submit(copy_context().run, self._run_and_report, work, done)
        self.active += 1

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a thread and wait for it."""
        return await self._loop.run_in_executor(self._get_executor(), partial(copy_context().run, function, *args))

    def close(self) -> None:
        """Start nothing more. What runs cannot be stopped, and is not waited for, even at the end of the process."""
        if self._owns_executor and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _get_executor(self) -> Executor:
        if self._executor is None:
            self._executor = DaemonThreadPool(MAX_THREADS, "fiveways-app")
        return self._executor

    def _run_and_report(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._finished.append(partial(done, work()))
        # Waking the loop is what costs most here, so all that finish before it is awake share it.
        if self._is_wakeup_scheduled:
            return
        self._is_wakeup_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._run_callbacks)
        except RuntimeError:
            # The loop is closed: there is nobody left to tell.
            return

    def _run_callbacks(self) -> None:
        # First this: what finishes from now on may come too late for the rest of this function.
        self._is_wakeup_scheduled = False
        while self._finished:
            self.active -= 1
            self._finished.popleft()()
