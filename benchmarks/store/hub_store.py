"""The store as the hub uses it: each step of a request starts after the previous one has reached the disk."""

import asyncio
import time
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.store.baseline import FAR, MESSAGE, names
from fiveways.model.store_changes import PutAnswer, PutRequest, PutTombstone
from fiveways.store.errors import StoreError
from fiveways.store.store import Store


class Load:
    """A number of requests in flight; each finished one starts the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = names()
        self._last: asyncio.Future[None] | None = None
        self._open = 0
        self.finished = 0

    def start(self) -> None:
        """Write a request."""
        self._open += 1
        peer, key = next(self._names)
        self._store.write(PutRequest(peer, key, MESSAGE, FAR), partial(self._answer, peer, key))

    async def stop(self) -> None:
        """Start no more requests, and wait for the open ones."""
        self._last = asyncio.get_running_loop().create_future()
        await self._last

    def _answer(self, peer: str, key: str, error: StoreError | None) -> None:
        _expect_none(error)
        self._store.write(PutAnswer(peer, key, MESSAGE, FAR), partial(self._forget, peer, key))

    def _forget(self, peer: str, key: str, error: StoreError | None) -> None:
        _expect_none(error)
        self._store.write(PutTombstone(peer, key, FAR), self._finish)

    def _finish(self, error: StoreError | None) -> None:
        _expect_none(error)
        self.finished += 1
        self._open -= 1
        if self._last is None:
            self.start()
        elif not self._open:
            self._last.set_result(None)


async def measure(path: Path, in_flight: int, seconds: float) -> float:
    """Return the requests per second that are written, answered and forgotten."""
    store = Store.open(path, now=time.time)
    try:
        load, started = Load(store), perf_counter()
        for _ in range(in_flight):
            load.start()
        await asyncio.sleep(seconds)
        finished, elapsed = load.finished, perf_counter() - started
        await load.stop()
        return finished / elapsed
    finally:
        store.close()


def _expect_none(error: StoreError | None) -> None:
    if error is not None:
        raise error
