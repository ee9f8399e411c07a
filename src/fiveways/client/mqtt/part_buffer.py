"""The parts of a stream that have come, for whoever takes them one by one."""

import asyncio
from collections import deque
from typing import Final

from fiveways.app.values import MemoryBudget

_PART_OVERHEAD: Final = 128


class PartBuffer:
    """Parts as bytes, in order; then the end, or what went wrong.

    At most `most` bytes wait, and no more than the budget has for all streams together.
    """

    __slots__ = ("_arrival", "_budget", "_buffered_bytes", "_error", "_is_over", "_max_bytes", "_parts")

    def __init__(self, most: int, budget: MemoryBudget) -> None:
        self._max_bytes = most
        self._budget = budget
        self._buffered_bytes = 0
        self._parts: deque[bytes] = deque()
        self._is_over = False
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self._is_over

    def put(self, part: bytes) -> bool:
        """Take one more; False if too much waits already."""
        size = len(part) + _PART_OVERHEAD
        if self._is_over or self._buffered_bytes + size > self._max_bytes or not self._budget.acquire(size):
            return False
        self._buffered_bytes += size
        self._parts.append(part)
        self._wake()
        return True

    def end(self, error: Exception | None = None) -> None:
        """Know that no more come; who has taken all that came gets the error, if there is one."""
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._wake()

    def drop(self) -> None:
        """Know that nobody takes any more."""
        self._parts.clear()
        self._budget.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self.end()

    async def wait_next(self) -> bytes | None:
        """Return the next one, None at the end."""
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
