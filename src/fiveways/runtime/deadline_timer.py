"""Timers of participants: each fires at the earliest of its deadlines."""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

_BLOCKED_AFTER: Final = 0.25
"""Seconds of delay from which a late timer shows that the event loop was blocked."""
_READ_GRACE: Final = 0.02
"""Seconds in which an event loop that was blocked reads its sockets, before a deadline fires."""


class DeadlineTimer(ABC):
    """An object with one timer."""

    _timer: asyncio.TimerHandle | None = None
    _timer_at: float = 0.0
    """The deadline of the timer; uvloop's handle does not return the monotonic time."""

    @abstractmethod
    def _on_deadline(self) -> None:
        """Handle the deadline."""

    def _set_deadline(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = max(deadline, loop.time())  # a deadline in the past does not show a blocked loop
        self._timer = loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() > self._timer_at + _BLOCKED_AFTER:
            # uvloop runs timers before it reads sockets: a heartbeat may wait in one of them.
            self._timer = loop.call_later(_READ_GRACE, self._fire)
        else:
            self._fire()

    def _fire(self) -> None:
        self._timer = None
        self._on_deadline()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
