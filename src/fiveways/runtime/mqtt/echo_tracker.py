"""What we said at a broker, and may hear from it: brokers send everybody's messages to all who listen, us included."""

from collections import deque
from collections.abc import Hashable
from typing import Final

ECHO_TIMEOUT: Final = 60.0
"""Seconds; a link on which nothing comes for so long is lost. What is not back by then was never sent on."""


class EchoTracker:
    """What has not come back yet, in the order in which it was said, as far as there is room."""

    def __init__(self, most: int) -> None:
        self._max_size = most
        self._published: dict[int, tuple[Hashable, float]] = {}
        """By number, what it was, and when."""
        self._numbers: dict[Hashable, deque[int]] = {}
        """Of those that are the same, the first is the next to come back."""
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._published)

    def clear(self) -> None:
        """Know that nothing comes back any more."""
        self._published.clear()
        self._numbers.clear()

    def add(self, what: Hashable, now: float) -> None:
        """Know that this may come back."""
        self._drop_expired(now)
        if len(self._published) >= self._max_size:
            self._drop(next(iter(self._published)))
        self._last_number += 1
        self._published[self._last_number] = what, now
        self._numbers.setdefault(what, deque()).append(self._last_number)

    def take_echo(self, what: Hashable, now: float) -> bool:
        """Say whether this is something of ours that comes back, which it does once."""
        self._drop_expired(now)
        if (same := self._numbers.get(what)) is None:
            return False
        self._drop(same[0])
        return True

    def _drop_expired(self, now: float) -> None:
        while self._published and now - self._published[first := next(iter(self._published))][1] > ECHO_TIMEOUT:
            self._drop(first)

    def _drop(self, number: int) -> None:
        what, _ = self._published.pop(number)
        same = self._numbers[what]
        same.popleft()  # whichever goes is the first of its kind
        if not same:
            del self._numbers[what]
