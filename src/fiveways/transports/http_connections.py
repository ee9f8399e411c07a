"""Connection counts and limits of an HTTP port."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from fiveways.transports.http import HttpLimits
from fiveways.transports.http_head import BadRequest
from fiveways.transports.unfinished_input import UnfinishedInput

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

BACKLOG: Final = 1024
"""Listen backlog of the kernel; all of these connections may arrive in one event loop iteration."""
_MAX_RESERVED: Final = 64
"""Refused clients that may still send a request at the same time; the oldest of more are aborted."""
_OTHER_FILES: Final = 64
"""Open files for everything except connections."""
_SPARE_FILES: Final = BACKLOG + _MAX_RESERVED + _OTHER_FILES
_RECOUNT_INTERVAL: Final = 0.1
"""Minimum seconds between two recounts of upgraded sockets while a limit is reached."""
_MIN_RECOUNT: Final = 64

# Limit names in metrics and logs: the names of the settings, except for the limit of the operating system.
MAX_CONNECTIONS: Final = "max_sessions"
OPEN_FILES: Final = "open_files"
PER_ADDRESS: Final = "max_connections_per_address"

RefusedCallback: TypeAlias = Callable[[str, str], None]
"""Function that is called with limit name and peer address for each connection that a limit refuses or closes."""


class Connection(Protocol):
    """Connection that still uses HTTP."""

    def drain(self) -> None:
        """Close after the responses to all received requests."""

    def abort(self) -> None:
        """Close at once."""


def ignore_refusal(_limit: str, _remote: str) -> None:
    """Ignore the refusal: the default callback."""


class Connections:
    """All connections of one port: HTTP connections and upgraded sockets."""

    def __init__(self, limits: HttpLimits, now: Callable[[], float], refused: RefusedCallback = ignore_refusal) -> None:
        self._max = limit_by_open_files(limits.max_connections)
        self._max_name = MAX_CONNECTIONS if self._max == limits.max_connections else OPEN_FILES
        self._max_per_address = limits.max_connections_per_address
        self._now = now
        self.on_refused = refused
        self.unfinished = UnfinishedInput(limits.max_unfinished, limits.max_unfinished_per_address, refused)
        self._open: dict[Connection, str] = {}
        """Address of each HTTP connection."""
        self._reserve: dict[Connection, None] = {}
        """Refused connections, oldest first."""
        self._by_address = Counter[str]()
        self.unread_bytes = 0
        """Response bytes that slow clients have not read."""
        # The end of an upgraded socket is not reported. A recount when their number has doubled removes closed ones.
        self._upgraded: dict[asyncio.Transport, str] = {}
        self._recount_at = _MIN_RECOUNT
        self._recounted_at = float("-inf")

    def __len__(self) -> int:
        self._recount()
        return len(self._open) + len(self._upgraded)

    def admit(self, connection: Connection, address: str) -> str:
        """Count a new connection, or return the name of the limit that refuses it."""
        limit = self._reached_limit(address)
        if limit and self._now() - self._recounted_at >= _RECOUNT_INTERVAL:
            self._recount()
            limit = self._reached_limit(address)
        if not limit:
            self._open[connection] = address
            self._by_address[address] += 1
        return limit

    def _reached_limit(self, address: str) -> str:
        if len(self._open) + len(self._upgraded) >= self._max:
            return self._max_name
        return PER_ADDRESS if self._by_address[address] >= self._max_per_address else ""

    def reserve(self, connection: Connection) -> None:
        """Keep a refused connection until its first request: health checks are served beyond the limit."""
        if len(self._reserve) >= _MAX_RESERVED:
            oldest = next(iter(self._reserve))
            del self._reserve[oldest]
            oldest.abort()
        self._reserve[connection] = None

    def count_upgraded(self, connection: Connection, socket: asyncio.Transport) -> None:
        """Move a connection to the upgraded sockets: it no longer uses HTTP."""
        if len(self._upgraded) >= self._recount_at:
            self._recount()
        self._upgraded[socket] = self._open.pop(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        address = self._open.pop(connection, None)
        if address is not None:
            self._release(address)
        self._reserve.pop(connection, None)

    def drain(self) -> None:
        """Close all HTTP connections after the responses to received requests."""
        for connection in list(self._open):
            connection.drain()

    def _release(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _recount(self) -> None:
        self._recounted_at = self._now()
        for socket in [upgraded for upgraded in self._upgraded if upgraded.is_closing()]:
            self._release(self._upgraded.pop(socket))
        self._recount_at = max(_MIN_RECOUNT, 2 * len(self._upgraded))


def too_many_connections(limit: str) -> BadRequest:
    """Return the error for a refused connection."""
    if limit == PER_ADDRESS:
        return BadRequest(429, "too many connections from this address; try again later", Retry_After="1")
    return BadRequest(503, "too many connections; try again later", Retry_After="1")


def limit_by_open_files(max_connections: int) -> int:
    """Return the connection limit that open files allow: a 503 is better than a failing accept()."""
    if resource is None:
        return max_connections
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return max_connections
    return min(max_connections, max(1, files - min(_SPARE_FILES, files // 4)))
