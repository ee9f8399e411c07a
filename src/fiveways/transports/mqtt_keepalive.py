"""Whether the other end is still there."""

import asyncio
from collections.abc import Callable
from typing import Final

_SLACK: Final = 0.01
"""Seconds that a timer may come too early."""


class Keepalive:
    """Asks for a sign of life twice a keepalive, and gives up when there was none for one and a half."""

    __slots__ = ("_check_at", "_half", "_loop", "_on_silence", "_send_ping", "_timer", "is_paused", "received_at")

    def __init__(self, keepalive: float, ask: Callable[[], None], give_up: Callable[[float], None]) -> None:
        """Make it; a keepalive of 0 never asks. `give_up` is told for how many seconds nothing came."""
        self._loop = asyncio.get_running_loop()
        self._half = keepalive / 2
        self._send_ping = ask
        self._on_silence = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._check_at = 0.0
        self.received_at = self._loop.time()
        """When something came last, by the loop's clock; who reads sets it."""
        self.is_paused = False
        """Nobody listens now, so silence means nothing."""

    def start(self) -> None:
        """Begin to listen, and to ask in a while."""
        self.received_at = self._loop.time()
        if self._half:
            self._wait(self._half)

    def stop(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now, half = self._loop.time(), self._half
        if self.is_paused:
            self.received_at = now
        elif now - self._check_at > half:
            # This process slept: what the other end said may be waiting to be read.
            self.received_at = max(self.received_at, now - 2 * half)
        silent = now - self.received_at
        if silent > 3 * half - _SLACK:
            self._timer = None
            self._on_silence(silent)
            return
        self._wait(min(half, 3 * half - silent))
        self._send_ping()

    def _wait(self, seconds: float) -> None:
        self._check_at = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._check_at, self._check)
