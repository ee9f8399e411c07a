"""Whether the other end is still there."""

import asyncio
from collections.abc import Callable
from typing import Final

_SLACK: Final = 0.01
"""Seconds that a timer may come too early."""


class Pulse:
    """Asks for a sign of life twice a keepalive, and gives up when there was none for one and a half."""

    __slots__ = ("_ask", "_due", "_give_up", "_half", "_loop", "_timer", "heard_at", "is_paused")

    def __init__(self, keepalive: float, ask: Callable[[], None], give_up: Callable[[float], None]) -> None:
        """Make it; a keepalive of 0 never asks. `give_up` is told for how many seconds nothing came."""
        self._loop = asyncio.get_running_loop()
        self._half = keepalive / 2
        self._ask = ask
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.heard_at = self._loop.time()
        """When something came last, by the loop's clock; who reads sets it."""
        self.is_paused = False
        """Nobody listens now, so silence means nothing."""

    def start(self) -> None:
        """Begin to listen, and to ask in a while."""
        self.heard_at = self._loop.time()
        if self._half:
            self._wait(self._half)

    def stop(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        now, half = self._loop.time(), self._half
        if self.is_paused:
            self.heard_at = now
        elif now - self._due > half:
            # This process slept: what the other end said may be waiting to be read.
            self.heard_at = max(self.heard_at, now - 2 * half)
        silent = now - self.heard_at
        if silent > 3 * half - _SLACK:
            self._timer = None
            self._give_up(silent)
            return
        self._wait(min(half, 3 * half - silent))
        self._ask()

    def _wait(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due, self._beat)
