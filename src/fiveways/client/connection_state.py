"""How a connection fares, for those who want to know."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_UNREAD: Final = 100
"""Changes that one reader may leave unread; the oldest are dropped."""


class ConnectionState(Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    """It was lost, and a new one is tried. Calls wait for it, up to their timeout."""
    RECONNECTED = "reconnected"
    """There is a new one, with all that was registered, subscribed and set before."""
    RESTING = "resting"
    """There is no link, as none is needed (`idle_close`); what is said next opens one."""
    PAUSED = "paused"
    """There is no link, as `pause()` was called. Calls wait for `resume()`, up to their timeout."""
    CLOSED = "closed"
    """It is over for good."""


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """One change."""

    state: ConnectionState
    text: str = ""
    """Why, or what was lost, for people."""

    def __str__(self) -> str:
        return f"{self.state.value}: {self.text}" if self.text else self.state.value


class StatusTracker:
    """The present state, and who follows it."""

    def __init__(self) -> None:
        self.current = ConnectionStatus(ConnectionState.CONNECTING)
        self._readers: set[_StatusReader] = set()

    def publish(self, status: ConnectionStatus) -> None:
        """Let all know."""
        self.current = status
        for reader in self._readers:
            reader.queue.append(status)
            reader.arrived.set()

    async def follow(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Give the present state, then each change; end when the connection is closed."""
        reader = _StatusReader(self.current)
        self._readers.add(reader)
        try:
            while True:
                while reader.queue:
                    status = reader.queue.popleft()
                    yield status
                    if status.state is ConnectionState.CLOSED:
                        return
                reader.arrived.clear()
                await reader.arrived.wait()
        finally:
            self._readers.discard(reader)


class _StatusReader:
    """One who follows."""

    def __init__(self, status: ConnectionStatus) -> None:
        self.queue: deque[ConnectionStatus] = deque([status], MAX_UNREAD)
        self.arrived = asyncio.Event()
