"""An event loop in a thread, where coroutines are run for code that does not await."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Generic, TypeVar

from fiveways.errors import ConnectionLost

T = TypeVar("T")
_STOP_TIMEOUT: Final = 10.0
"""Seconds for all that runs to end."""
_CANCEL_DELAY: Final = 1.0
"""Seconds until what does not end by itself is cancelled."""
_POLL_INTERVAL: Final = 1.0
"""Seconds after which somebody who waits looks whether the thread is still there."""


class CancellableTask(Generic[T]):
    """Work for the loop, which whoever waits for it may give up."""

    def __init__(self, work: Coroutine[object, object, T]) -> None:
        self._coroutine = work
        self._task: asyncio.Task[object] | None = None
        self.is_over = False

    async def run(self) -> T:
        """Do it, in the loop."""
        self._task = asyncio.current_task()
        try:
            return await self._coroutine
        finally:
            self.is_over = True

    def cancel(self) -> None:
        """Stop it, in the loop; if it has not begun by now, it never will."""
        if self._task is None:
            self._coroutine.close()
        elif not self.is_over:
            self._task.cancel()


class LoopThread:
    """One loop, one thread."""

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
        """Run a coroutine there and wait for it; who is interrupted here cancels it there.

        Raises:
            ConnectionLost: the loop has ended.
            RuntimeError: it would have to wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("an async function cannot wait here: use `connect` and await its verbs instead")
        # An interrupt may come at any moment, even before we have a name for what was begun: so this is there before.
        errand: CancellableTask[T] = CancellableTask(work)
        running = errand.run()
        try:
            future = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:
            running.close()
            work.close()
            raise ConnectionLost("the connection is closed") from None
        except BaseException:
            self._cancel(errand)
            raise
        try:
            return self._wait(future)
        finally:
            self._cancel(errand)

    def _cancel(self, errand: "CancellableTask[T]") -> None:
        if not errand.is_over:
            with suppress(RuntimeError):  # the loop has ended, and everything in it
                self._loop.call_soon_threadsafe(errand.cancel)

    def _wait(self, future: Future[T]) -> T:
        while True:
            try:
                return future.result(_POLL_INTERVAL)
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    raise ConnectionLost("the connection was closed meanwhile") from None

    def iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """Give what an async generator gives."""
        try:
            while True:
                try:
                    yield self.run(_anext(source))
                except StopAsyncIteration:
                    return
        finally:
            self.run(source.aclose())

    def stop(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run `last`, then nothing more."""
        if not self._thread.is_alive():
            return
        end = self._shut_down(last)
        if threading.current_thread() is self._thread:
            # Whoever used it is swept away while the loop runs, so the loop itself must end it.
            self._stop_task = self._loop.create_task(end)
            return
        asyncio.run_coroutine_threadsafe(end, self._loop)
        self._thread.join(_STOP_TIMEOUT)

    async def _shut_down(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await last()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                _, rest = await asyncio.wait(others, timeout=_CANCEL_DELAY)
                for task in rest:
                    task.cancel()
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()


async def _anext(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
