"""The parts of a stream that have come, for whoever takes them one by one."""

import asyncio
from collections import deque
from typing import Final

from fiveways.app.values import Budget

_PART_COST: Final = 128


class Inflow:
    """Parts as bytes, in order; then the end, or what went wrong.

    At most `most` bytes wait, and no more than the budget has for all streams together.
    """

    __slots__ = ("_budget", "_coming", "_error", "_is_over", "_most", "_size", "_waiting")

    def __init__(self, most: int, budget: Budget) -> None:
        self._most = most
        self._budget = budget
        self._size = 0
        self._waiting: deque[bytes] = deque()
        self._is_over = False
        self._error: Exception | None = None
        self._coming: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self._is_over

    def put(self, part: bytes) -> bool:
        """Take one more; False if too much waits already."""
        size = len(part) + _PART_COST
        if self._is_over or self._size + size > self._most or not self._budget.take(size):
            return False
        self._size += size
        self._waiting.append(part)
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
        self._waiting.clear()
        self._budget.give(self._size)
        self._size = 0
        self.end()

    async def next(self) -> bytes | None:
        """Return the next one, None at the end."""
        while not self._waiting:
            if self._is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._coming = asyncio.get_running_loop().create_future()
            await self._coming
        part = self._waiting.popleft()
        size = len(part) + _PART_COST
        self._size -= size
        self._budget.give(size)
        return part

    def _wake(self) -> None:
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(None)
