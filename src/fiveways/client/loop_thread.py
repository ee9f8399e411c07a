"""An event loop in a thread, which runs coroutines for blocking code."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Generic, TypeVar

from fiveways.errors import ConnectionLost

T = TypeVar("T")
_STOP_TIMEOUT: Final = 10.0
"""Seconds for all tasks to end."""
_CANCEL_DELAY: Final = 1.0
"""Seconds until tasks that do not end are cancelled."""
_POLL_INTERVAL: Final = 1.0
"""Seconds between checks that the thread is alive, while another thread waits for it."""


class CancellableTask(Generic[T]):
    """A coroutine for the loop that the waiting thread may cancel."""

    def __init__(self, work: Coroutine[object, object, T]) -> None:
        self._coroutine = work
        self._task: asyncio.Task[object] | None = None
        self.is_over = False

    async def run(self) -> T:
        """Run the coroutine, in the loop."""
        self._task = asyncio.current_task()
        try:
            return await self._coroutine
        finally:
            self.is_over = True

    def cancel(self) -> None:
        """Cancel the coroutine, in the loop; if it has not started, it never will."""
        if self._task is None:
            self._coroutine.close()
        elif not self.is_over:
            self._task.cancel()


class LoopThread:
    """One event loop in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="fiveways-sync", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the loop and wait for its result; an interrupt of the waiting thread cancels it.

        Raises:
            ConnectionLost: the loop has ended.
            RuntimeError: the loop's own thread would have to wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("an async function cannot block its own event loop: use `connect` and await its methods")
        # Created first: an interrupt may occur at any moment, also before the future has a name.
        task: CancellableTask[T] = CancellableTask(work)
        coroutine = task.run()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            work.close()
            raise ConnectionLost("the connection is closed") from None
        except BaseException:
            self._cancel(task)
            raise
        try:
            return self._wait(future)
        finally:
            self._cancel(task)

    def _cancel(self, task: "CancellableTask[T]") -> None:
        if not task.is_over:
            with suppress(RuntimeError):  # the loop and all its tasks have ended
                self._loop.call_soon_threadsafe(task.cancel)

    def _wait(self, future: Future[T]) -> T:
        while True:
            try:
                return future.result(_POLL_INTERVAL)
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    raise ConnectionLost("the connection was closed during the call") from None

    def iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yield the items of an async generator."""
        try:
            while True:
                try:
                    yield self.run(_anext(source))
                except StopAsyncIteration:
                    return
        finally:
            self.run(source.aclose())

    def stop(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run the coroutine `last`, then end the loop and its thread."""
        if not self._thread.is_alive():
            return
        end = self._shut_down(last)
        if threading.current_thread() is self._thread:
            # The owner is garbage collected in this thread: the loop must end itself.
            self._stop_task = self._loop.create_task(end)
            return
        asyncio.run_coroutine_threadsafe(end, self._loop)
        self._thread.join(_STOP_TIMEOUT)

    async def _shut_down(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await last()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                _, unfinished = await asyncio.wait(others, timeout=_CANCEL_DELAY)
                for task in unfinished:
                    task.cancel()
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()


async def _anext(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
