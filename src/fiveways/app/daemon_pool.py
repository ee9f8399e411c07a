"""Threads that do not hold up the end of the process, as those of ThreadPoolExecutor do."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _WorkItem:
    """A function to be called, and the future of what it returns."""

    def __init__(self, future: Future[T], function: Callable[[], T]) -> None:
        self.cancel = future.cancel
        self.run = partial(_run_into, future, function)


class DaemonThreadPool(Executor):
    """Up to `most` daemon threads, each made when a job comes and none is idle."""

    def __init__(self, most: int, name: str) -> None:
        self._max_threads = most
        self._name = name
        self._lock = Lock()
        self._work_items: SimpleQueue[_WorkItem | None] = SimpleQueue()
        """None ends the thread that gets it."""
        self._threads: list[Thread] = []
        self._idle = 0
        """Threads that no job is meant for; below 0, jobs that wait for one."""
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called in a thread; RuntimeError after the shutdown."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the threads are shut down")
            if self._idle <= 0 and len(self._threads) < self._max_threads:
                thread = Thread(target=self._run_thread, name=f"{self._name}_{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
            else:
                self._idle -= 1
            self._work_items.put(_WorkItem(future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # an Executor's
        """Take no more jobs; those that wait are done all the same, or cancelled."""
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
                job = self._work_items.get_nowait()
                if job is not None:
                    job.cancel()
        except Empty:
            return

    def _run_thread(self) -> None:
        while (job := self._work_items.get()) is not None:
            job.run()
            del job  # what it holds must not live until the next one comes
            with self._lock:
                self._idle += 1


def _run_into(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = function()
    except BaseException as exc:  # noqa: BLE001  # whoever waits for it gets it
        future.set_exception(exc)
    else:
        future.set_result(value)
