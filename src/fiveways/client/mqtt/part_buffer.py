"""Parts of a stream that wait for the reader."""

import asyncio
from collections import deque
from typing import Final

from fiveways.app.memory_budget import MemoryBudget

_PART_OVERHEAD: Final = 128


class PartBuffer:
    """Parts as bytes, in order, then the end or an error.

    At most `max_bytes` wait, within a budget that all streams share.
    """

    __slots__ = ("_arrival", "_budget", "_buffered_bytes", "_error", "_is_over", "_max_bytes", "_parts")

    def __init__(self, max_bytes: int, budget: MemoryBudget) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._buffered_bytes = 0
        self._parts: deque[bytes] = deque()
        self._is_over = False
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no further part will arrive."""
        return self._is_over

    def put(self, part: bytes) -> bool:
        """Add a part; return False if the limit is exceeded."""
        size = len(part) + _PART_OVERHEAD
        if self._is_over or self._buffered_bytes + size > self._max_bytes or not self._budget.acquire(size):
            return False
        self._buffered_bytes += size
        self._parts.append(part)
        self._wake()
        return True

    def end(self, error: Exception | None = None) -> None:
        """End the stream; after the last part the reader gets the error, if there is one."""
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._wake()

    def drop(self) -> None:
        """Discard all parts: there is no reader any more."""
        self._parts.clear()
        self._budget.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self.end()

    async def wait_next(self) -> bytes | None:
        """Return the next part, None at the end."""
        while not self._parts:
            if self._is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        part = self._parts.popleft()
        size = len(part) + _PART_OVERHEAD
        self._buffered_bytes -= size
        self._budget.release(size)
        return part

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
