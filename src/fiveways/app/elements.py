"""The elements of a streamed request, one by one as they come, or gathered until all are there."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from fiveways.app.answers import Fail
from fiveways.app.values import Budget, cost
from fiveways.errors import FivewaysError
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

MAX_WAITING: Final = 16 << 20
"""Bytes, about, of elements of one call that its method has not taken yet; with more of them it fails."""


class Elements:
    """What a parameter annotated `AsyncIterator[T]` gets: those `given` at once, then those that come."""

    def __init__(self, read: Callable[[object], object], budget: Budget, given: Iterable[object] = ()) -> None:
        self._read = read
        self._budget = budget
        self._given = iter(given)
        self._waiting: deque[Payload] = deque()
        self._cost = 0
        self._number = 0
        self._ended = False
        self._coming: asyncio.Future[None] | None = None

    def put(self, body: Payload) -> bool:
        """Take one more; False if too many wait already."""
        size = cost(body)
        if self._cost + size > MAX_WAITING or not self._budget.take(size):
            return False
        self._waiting.append(body)
        self._cost += size
        self._wake()
        return True

    def end(self) -> None:
        """Know that there are no more."""
        self._ended = True
        self._wake()

    def drop(self) -> None:
        """Know that nobody reads on."""
        self._budget.give(self._cost)
        self._cost = 0
        self._waiting.clear()
        self.end()

    def __aiter__(self) -> "Elements":
        return self

    async def __anext__(self) -> object:
        self._number += 1
        try:
            for value in self._given:
                return self._read(value)
            return self._read((await self._next()).value())
        except FivewaysError as exc:
            # The method runs already, so these are not bad arguments any more.
            raise Fail(f"element {self._number}: {exc}") from exc

    async def _next(self) -> Payload:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._coming = asyncio.get_running_loop().create_future()
            await self._coming
        body = self._waiting.popleft()
        size = cost(body)
        self._cost -= size
        self._budget.give(size)
        return body

    def _wake(self) -> None:
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(None)


class Gathered:
    """The elements for a method that wants them all at once; `then` takes them."""

    def __init__(self, then: Callable[[list[object]], None], limits: Limits, budget: Budget) -> None:
        self._then = then
        self._limits = limits
        self._budget = budget
        self._values: list[object] = []
        self._cost = 0

    def put(self, body: Payload) -> bool:
        """Take one more; False if there are too many. Unrepresentable if it has no value."""
        size = cost(body)
        fits = len(self._values) < self._limits.max_stream and self._cost + size <= MAX_WAITING
        if not fits or not self._budget.take(size):
            return False
        self._cost += size
        self._values.append(body.value())
        return True

    def end(self) -> None:
        """Hand them over."""
        values = self._values
        self.drop()
        self._then(values)

    def drop(self) -> None:
        """Know that they are not wanted any more."""
        self._budget.give(self._cost)
        self._cost = 0
        self._values = []
