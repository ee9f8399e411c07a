"""A deadline that is moved much more often than it comes."""

import asyncio
from collections.abc import Callable
from typing import Final

_NEVER: Final = float("inf")


class LazyTimer:
    """Rings when its time has come. To move it later costs nothing: the timer goes off early, and is set again."""

    __slots__ = ("_callback", "_deadline", "_loop", "_timer", "_timer_at")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._callback = ring
        self._loop = asyncio.get_running_loop()
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def restart(self, wait: float) -> None:
        """Ring in so many seconds, and not before."""
        self._deadline = self._loop.time() + wait
        if self._timer is not None:
            if self._timer_at <= self._deadline:
                return
            self._timer.cancel()
        self._start()

    def disarm(self) -> None:
        """Do not ring until it is set again."""
        self._deadline = _NEVER

    def cancel(self) -> None:
        """Never ring again, and hold nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._callback = _nothing

    def _start(self) -> None:
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._go_off)

    def _go_off(self) -> None:
        self._timer = None
        if self._loop.time() >= self._deadline:
            self._callback()
        elif self._deadline != _NEVER:
            self._start()


def _nothing() -> None: ...
