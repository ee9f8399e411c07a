"""Those who want to be woken: each at the earliest of the times that it asked for."""

import asyncio
from abc import ABC, abstractmethod


class Sleeper(ABC):
    """Somebody with one alarm."""

    _timer: asyncio.TimerHandle | None = None
    _timer_at: float = 0.0
    """When that is: uvloop's own handle does not tell where the time has come."""

    @abstractmethod
    def _wake(self) -> None:
        """Do what is due."""

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _sleep_on(self) -> None:
        """Be woken no more, unless it is asked for again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
