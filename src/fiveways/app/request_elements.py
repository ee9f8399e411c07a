"""Elements of a streamed request, read one by one or collected into a list."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from fiveways.app.memory_budget import MemoryBudget, memory_cost
from fiveways.app.responses import Fail
from fiveways.errors import FivewaysError
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

MAX_BUFFERED: Final = 16 << 20
"""Approximate bytes of elements of one call that wait for its method; above it the call fails."""


class ElementStream:
    """Argument of a parameter annotated `AsyncIterator[T]`: `initial` elements, then those that arrive."""

    def __init__(self, read: Callable[[object], object], budget: MemoryBudget, initial: Iterable[object] = ()) -> None:
        self._read = read
        self._budget = budget
        self._initial = iter(initial)
        self._buffer: deque[Payload] = deque()
        self._buffered_bytes = 0
        self._element_number = 0
        self._is_ended = False
        self._arrival: asyncio.Future[None] | None = None

    def put(self, body: Payload) -> bool:
        """Queue an element; return False if too many bytes wait."""
        size = memory_cost(body)
        if self._buffered_bytes + size > MAX_BUFFERED or not self._budget.acquire(size):
            return False
        self._buffer.append(body)
        self._buffered_bytes += size
        self._wake()
        return True

    def end(self) -> None:
        """End the stream after the queued elements."""
        self._is_ended = True
        self._wake()

    def drop(self) -> None:
        """Drop queued elements: nothing reads the stream any more."""
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
            # The method is running: the failure must not be reported as bad arguments.
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
    """Elements for a method that takes them as one list; `on_complete` gets the list."""

    def __init__(self, on_complete: Callable[[list[object]], None], limits: Limits, budget: MemoryBudget) -> None:
        self._on_complete = on_complete
        self._limits = limits
        self._budget = budget
        self._values: list[object] = []
        self._buffered_bytes = 0

    def put(self, body: Payload) -> bool:
        """Add an element; return False if there are too many. Unrepresentable if it cannot be decoded."""
        size = memory_cost(body)
        fits = len(self._values) < self._limits.max_stream and self._buffered_bytes + size <= MAX_BUFFERED
        if not fits or not self._budget.acquire(size):
            return False
        self._buffered_bytes += size
        self._values.append(body.value())
        return True

    def end(self) -> None:
        """Pass the elements on."""
        values = self._values
        self.drop()
        self._on_complete(values)

    def drop(self) -> None:
        """Drop the elements."""
        self._budget.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self._values = []
