"""Those who want to be woken: each at the earliest of the times that it asked for."""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

_BLOCKED_AFTER: Final = 0.25
"""Seconds after its time from which an alarm shows that the event loop was blocked."""
_READ_GRACE: Final = 0.02
"""Seconds in which such a loop reads what came meanwhile, before anybody is taken for silent."""


class DeadlineTimer(ABC):
    """Somebody with one alarm."""

    _timer: asyncio.TimerHandle | None = None
    _timer_at: float = 0.0
    """When that is: uvloop's own handle does not tell where the time has come."""

    @abstractmethod
    def _on_deadline(self) -> None:
        """Do what is due."""

    def _set_deadline(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = max(deadline, loop.time())  # a time that is over does not show that the loop was blocked
        self._timer = loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() > self._timer_at + _BLOCKED_AFTER:
            # uvloop runs timers before it reads sockets: a sign of life may be in one of them.
            self._timer = loop.call_later(_READ_GRACE, self._fire)
        else:
            self._fire()

    def _fire(self) -> None:
        self._timer = None
        self._on_deadline()

    def _cancel_timer(self) -> None:
        """Be woken no more, unless it is asked for again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
