"""State of a client connection, and its history for observers."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_UNREAD: Final = 100
"""State changes that wait for one reader; after that the oldest are dropped."""


class ConnectionState(Enum):
    """State of a client connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    """The connection was lost, and the client is reconnecting. Calls wait, up to their timeouts."""
    RECONNECTED = "reconnected"
    """A new connection is open, with the registrations, subscriptions and variables of the previous one."""
    RESTING = "resting"
    """The link was closed because it was idle (`idle_close`); the next message opens one."""
    PAUSED = "paused"
    """`pause()` closed the link. Calls wait for `resume()`, up to their timeouts."""
    CLOSED = "closed"
    """The connection is closed, and no new one is opened."""


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """One state change of a connection."""

    state: ConnectionState
    text: str = ""
    """The reason, or the lost items, for people."""

    def __str__(self) -> str:
        return f"{self.state.value}: {self.text}" if self.text else self.state.value


class StatusTracker:
    """The current state of a connection, and its readers."""

    def __init__(self) -> None:
        self.current = ConnectionStatus(ConnectionState.CONNECTING)
        self._readers: set[_StatusReader] = set()

    def publish(self, status: ConnectionStatus) -> None:
        """Set the current state and pass it to all readers."""
        self.current = status
        for reader in self._readers:
            reader.queue.append(status)
            reader.arrived.set()

    async def follow(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Yield the current state, then each change, until the connection is closed."""
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
    """One consumer of state changes."""

    def __init__(self, status: ConnectionStatus) -> None:
        self.queue: deque[ConnectionStatus] = deque([status], MAX_UNREAD)
        self.arrived = asyncio.Event()
