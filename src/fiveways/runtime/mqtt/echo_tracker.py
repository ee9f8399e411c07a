"""Detection of echoes: a broker sends a publication to all subscribers, its publisher included."""

from collections import deque
from collections.abc import Hashable
from typing import Final

ECHO_TIMEOUT: Final = 60.0
"""Seconds; an idle connection is lost after that time. A message not echoed by then was never forwarded."""


class EchoTracker:
    """Published messages without an echo so far, oldest first, up to a maximum number."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._pending: dict[int, tuple[Hashable, float]] = {}
        """By number: key and time."""
        self._numbers: dict[Hashable, deque[int]] = {}
        """The numbers of equal messages; the first is echoed next."""
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._pending)

    def clear(self) -> None:
        """Expect no more echoes."""
        self._pending.clear()
        self._numbers.clear()

    def add(self, key: Hashable, now: float) -> None:
        """Expect the echo of a message."""
        self._drop_expired(now)
        if len(self._pending) >= self._max_size:
            self._drop(next(iter(self._pending)))
        self._last_number += 1
        self._pending[self._last_number] = key, now
        self._numbers.setdefault(key, deque()).append(self._last_number)

    def take_echo(self, key: Hashable, now: float) -> bool:
        """Return whether a message is an expected echo; each is expected once."""
        self._drop_expired(now)
        if (numbers := self._numbers.get(key)) is None:
            return False
        self._drop(numbers[0])
        return True

    def _drop_expired(self, now: float) -> None:
        while self._pending and now - self._pending[first := next(iter(self._pending))][1] > ECHO_TIMEOUT:
            self._drop(first)

    def _drop(self, number: int) -> None:
        key, _ = self._pending.pop(number)
        numbers = self._numbers[key]
        numbers.popleft()  # the oldest of equal messages goes first
        if not numbers:
            del self._numbers[key]
