"""Runs functions in daemon threads."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, ParamSpec, TypeVar

MAX_THREADS: Final = 32
MAX_THREAD_CALLS: Final = 500
"""Calls of functions in threads that run or wait; further calls are refused as overloaded."""

P = ParamSpec("P")
T = TypeVar("T")


class ThreadRunner:
    """A thread pool, created at first use. A function sees the context variables of its caller."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._owns_executor = executor is None
        self._finished: deque[Callable[[], None]] = deque()
        self._is_wakeup_scheduled = False
        self.active = 0
        """Calls by `start` that have not ended, including cancelled ones."""

    @property
    def is_full(self) -> bool:
        """Whether further calls must be refused."""
        return self.active >= MAX_THREAD_CALLS

    def start(self, work: Callable[[], T], on_done: Callable[[T], None]) -> None:
        """Run `work`, which must not raise, in a thread, and pass its result to `on_done` in the event loop."""
        self._get_executor().submit(copy_context().run, self._run_and_report, work, on_done)
        self.active += 1

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a thread and return its result."""
        return await self._loop.run_in_executor(self._get_executor(), partial(copy_context().run, function, *args))

    def close(self) -> None:
        """Start no further functions. Running ones cannot be stopped, and do not delay the end of the process."""
        if self._owns_executor and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _get_executor(self) -> Executor:
        if self._executor is None:
            self._executor = DaemonThreadPool(MAX_THREADS, "fiveways-app")
        return self._executor

    def _run_and_report(self, work: Callable[[], T], on_done: Callable[[T], None]) -> None:
        self._finished.append(partial(on_done, work()))
        # Waking the loop is the main cost: all functions that end before it is awake share one wake-up.
        if self._is_wakeup_scheduled:
            return
        self._is_wakeup_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._run_callbacks)
        except RuntimeError:
            # The event loop is closed.
            return

    def _run_callbacks(self) -> None:
        # Reset first: functions that end from now on may be too late for the rest of this method.
        self._is_wakeup_scheduled = False
        while self._finished:
            self.active -= 1
            self._finished.popleft()()


class _WorkItem:
    """A function to run, and the future of its result."""

    def __init__(self, future: Future[T], function: Callable[[], T]) -> None:
        self.cancel = future.cancel
        self.run = partial(_run_into, future, function)


class DaemonThreadPool(Executor):
    """Up to `max_threads` daemon threads, each created when none is idle.

    Threads of ThreadPoolExecutor would delay the end of the process.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._lock = Lock()
        self._work_items: SimpleQueue[_WorkItem | None] = SimpleQueue()
        """Queue of the threads; None ends a thread."""
        self._threads: list[Thread] = []
        self._idle = 0
        """Threads without work; a negative number counts work that waits for a thread."""
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread; RuntimeError after the shutdown."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the thread pool is shut down")
            if self._idle <= 0 and len(self._threads) < self._max_threads:
                thread = Thread(target=self._run_thread, name=f"{self._name}_{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
            else:
                self._idle -= 1
            self._work_items.put(_WorkItem(future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # the signature of Executor
        """Accept no further work; queued work still runs, unless it is cancelled."""
        with self._lock:
            self._is_closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._work_items.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _cancel_waiting(self) -> None:
        try:
            while True:
                item = self._work_items.get_nowait()
                if item is not None:
                    item.cancel()
        except Empty:
            return

    def _run_thread(self) -> None:
        while (item := self._work_items.get()) is not None:
            item.run()
            del item  # release its references before the wait for the next item
            with self._lock:
                self._idle += 1


def _run_into(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = function()
    except BaseException as exc:  # noqa: BLE001  # raised by the future
        future.set_exception(exc)
    else:
        future.set_result(value)
