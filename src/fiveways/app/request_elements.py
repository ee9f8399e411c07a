"""The elements of a streamed request, one by one as they come, or gathered until all are there."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from fiveways.app.responses import Fail
from fiveways.app.values import MemoryBudget, memory_cost
from fiveways.errors import FivewaysError
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

MAX_BUFFERED: Final = 16 << 20
"""Bytes, about, of elements of one call that its method has not taken yet; with more of them it fails."""


class ElementStream:
    """What a parameter annotated `AsyncIterator[T]` gets: those `given` at once, then those that come."""

    def __init__(self, read: Callable[[object], object], budget: MemoryBudget, given: Iterable[object] = ()) -> None:
        self._read = read
        self._budget = budget
        self._initial = iter(given)
        self._buffer: deque[Payload] = deque()
        self._buffered_bytes = 0
        self._element_number = 0
        self._is_ended = False
        self._arrival: asyncio.Future[None] | None = None

    def put(self, body: Payload) -> bool:
        """Take one more; False if too many wait already."""
        size = memory_cost(body)
        if self._buffered_bytes + size > MAX_BUFFERED or not self._budget.acquire(size):
            return False
        self._buffer.append(body)
        self._buffered_bytes += size
        self._wake()
        return True

    def end(self) -> None:
        """Know that there are no more."""
        self._is_ended = True
        self._wake()

    def drop(self) -> None:
        """Know that nobody reads on."""
        self._budget.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self._buffer.clear()
        self.end()

    def __aiter__(self) -> "ElementStream":
        return self

    async def __anext__(self) -> object:
        self._element_number += 1
        try:
            for value in self._initial:
                return self._read(value)
            return self._read((await self._wait_next()).value())
        except FivewaysError as exc:
            # The method runs already, so these are not bad arguments any more.
            raise Fail(f"element {self._element_number}: {exc}") from exc

    async def _wait_next(self) -> Payload:
        while not self._buffer:
            if self._is_ended:
                raise StopAsyncIteration
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        body = self._buffer.popleft()
        size = memory_cost(body)
        self._buffered_bytes -= size
        self._budget.release(size)
        return body

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class ElementCollector:
    """The elements for a method that wants them all at once; `then` takes them."""

    def __init__(self, then: Callable[[list[object]], None], limits: Limits, budget: MemoryBudget) -> None:
        self._on_complete = then
        self._limits = limits
        self._budget = budget
        self._values: list[object] = []
        self._buffered_bytes = 0

    def put(self, body: Payload) -> bool:
        """Take one more; False if there are too many. Unrepresentable if it has no value."""
        size = memory_cost(body)
        fits = len(self._values) < self._limits.max_stream and self._buffered_bytes + size <= MAX_BUFFERED
        if not fits or not self._budget.acquire(size):
            return False
        self._buffered_bytes += size
        self._values.append(body.value())
        return True

    def end(self) -> None:
        """Hand them over."""
        values = self._values
        self.drop()
        self._on_complete(values)

    def drop(self) -> None:
        """Know that they are not wanted any more."""
        self._budget.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self._values = []
