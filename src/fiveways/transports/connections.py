"""Who is connected to a port, and how many more may be."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_SPARE_FILES: Final = 64
"""Open files that are kept for other things than connections."""
_MOST_REFUSED: Final = 64
"""Clients beyond the bound that are told so at the same time; more are cut off without a word."""
_RECOUNT: Final = 0.1
"""Seconds for which a count of those handed over holds, when there are too many."""
_FEW: Final = 64


class Connection(Protocol):
    """A connection that still speaks HTTP."""

    def drain(self) -> None:
        """End as soon as what was asked is answered."""


class Connections:
    """All connections of one port: those that speak HTTP, and the sockets that somebody else has taken over."""

    def __init__(self, max_connections: int, now: Callable[[], float]) -> None:
        self._max = within_open_files(max_connections)
        self._now = now
        self._open: set[Connection] = set()
        self._refused: set[Connection] = set()
        self.unread = 0
        """Bytes that were written to those who do not read as fast."""
        # Who takes a socket over does not tell us of its end. So we look, each time as many came as were there.
        self._taken: set[asyncio.Transport] = set()
        self._look_at = _FEW
        self._looked_at = float("-inf")

    def __len__(self) -> int:
        self._look()
        return len(self._open) + len(self._taken)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; say whether there is room for it."""
        if len(self._open) + len(self._taken) >= self._max:
            if self._now() - self._looked_at >= _RECOUNT:
                self._look()
            if len(self._open) + len(self._taken) >= self._max:
                return False
        self._open.add(connection)
        return True

    def refuse(self, connection: Connection) -> bool:
        """Say whether one that was not admitted may stay for as long as it takes to tell it so."""
        if len(self._refused) >= _MOST_REFUSED:
            return False
        self._refused.add(connection)
        return True

    def hand_over(self, connection: Connection, socket: asyncio.Transport) -> None:
        """Know that a connection speaks something else from now on."""
        self._open.discard(connection)
        if len(self._taken) >= self._look_at:
            self._look()
        self._taken.add(socket)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self._open.discard(connection)
        self._refused.discard(connection)

    def drain(self) -> None:
        """End all that speak HTTP, as soon as what was asked is answered."""
        for connection in list(self._open):
            connection.drain()

    def _look(self) -> None:
        self._looked_at = self._now()
        self._taken = {socket for socket in self._taken if not socket.is_closing()}
        self._look_at = max(_FEW, 2 * len(self._taken))


def within_open_files(wanted: int) -> int:
    """Return how many connections there can be: a refusal is kinder than a socket that cannot be accepted."""
    if resource is None:
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if files == resource.RLIM_INFINITY else min(wanted, max(1, files - _SPARE_FILES))
