"""Timer for a deadline that moves often and is rarely reached."""

import asyncio
from collections.abc import Callable
from typing import Final

_NEVER: Final = float("inf")


class LazyTimer:
    """Timer with cheap restarts: if the event loop's timer fires before the deadline, it is set again."""

    __slots__ = ("_callback", "_deadline", "_loop", "_timer", "_timer_at")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def restart(self, seconds: float) -> None:
        """Call the callback after this many seconds, and not before."""
        self._deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= self._deadline:
                return
            self._timer.cancel()
        self._start()

    def disarm(self) -> None:
        """Do not call the callback until the next `restart`."""
        self._deadline = _NEVER

    def cancel(self) -> None:
        """Cancel the timer for good and drop the callback."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._callback = _nothing

    def _start(self) -> None:
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() >= self._deadline:
            self._callback()
        elif self._deadline != _NEVER:
            self._start()


def _nothing() -> None: ...
