"""Keepalive of an MQTT connection."""

import asyncio
from collections.abc import Callable
from typing import Final

_SLACK: Final = 0.01
"""Seconds by which a timer may fire too early."""


class Keepalive:
    """Sends a ping twice per keepalive interval, and reports a lost connection after 1.5 intervals of silence."""

    __slots__ = ("_check_at", "_half", "_loop", "_on_silence", "_send_ping", "_timer", "is_paused", "received_at")

    def __init__(self, keepalive: float, send_ping: Callable[[], None], on_silence: Callable[[float], None]) -> None:
        """Initialize; a keepalive of 0 disables the check. `on_silence` gets the seconds of silence."""
        self._loop = asyncio.get_running_loop()
        self._half = keepalive / 2
        self._send_ping = send_ping
        self._on_silence = on_silence
        self._timer: asyncio.TimerHandle | None = None
        self._check_at = 0.0
        self.received_at = self._loop.time()
        """Time of the last received data, by the loop's clock; set by the connection."""
        self.is_paused = False
        """Reading is paused, so silence is no sign of a lost connection."""

    def start(self) -> None:
        """Start the check."""
        self.received_at = self._loop.time()
        if self._half:
            self._wait(self._half)

    def stop(self) -> None:
        """Stop the check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now, half = self._loop.time(), self._half
        if self.is_paused:
            self.received_at = now
        elif now - self._check_at > half:
            # This process was suspended: data of the broker may wait in the socket.
            self.received_at = max(self.received_at, now - 2 * half)
        silence = now - self.received_at
        if silence > 3 * half - _SLACK:
            self._timer = None
            self._on_silence(silence)
            return
        self._wait(min(half, 3 * half - silence))
        self._send_ping()

    def _wait(self, seconds: float) -> None:
        self._check_at = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._check_at, self._check)
