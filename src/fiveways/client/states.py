"""How a connection fares, for those who want to know."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_WAITING: Final = 100
"""Changes that one reader may leave unread; the oldest are dropped."""


class State(Enum):
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
class Status:
    """One change."""

    state: State
    text: str = ""
    """Why, or what was lost, for people."""

    def __str__(self) -> str:
        return f"{self.state.value}: {self.text}" if self.text else self.state.value


class States:
    """The present state, and who follows it."""

    def __init__(self) -> None:
        self.now = Status(State.CONNECTING)
        self._readers: set[_Reader] = set()

    def tell(self, status: Status) -> None:
        """Let all know."""
        self.now = status
        for reader in self._readers:
            reader.waiting.append(status)
            reader.more.set()

    async def follow(self) -> AsyncGenerator[Status, None]:
        """Give the present state, then each change; end when the connection is closed."""
        reader = _Reader(self.now)
        self._readers.add(reader)
        try:
            while True:
                while reader.waiting:
                    status = reader.waiting.popleft()
                    yield status
                    if status.state is State.CLOSED:
                        return
                reader.more.clear()
                await reader.more.wait()
        finally:
            self._readers.discard(reader)


class _Reader:
    """One who follows."""

    def __init__(self, status: Status) -> None:
        self.waiting: deque[Status] = deque([status], MAX_WAITING)
        self.more = asyncio.Event()
