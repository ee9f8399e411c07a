"""Who is connected to a port, and how many more may be."""

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
"""Connections that the system accepts before the event loop does; all of them may come in one iteration."""
_MAX_RESERVED: Final = 64
"""Clients beyond a bound that may send a request at the same time; the oldest of more are cut off."""
_OTHER_FILES: Final = 64
"""Open files for everything that is not a connection."""
_SPARE_FILES: Final = BACKLOG + _MAX_RESERVED + _OTHER_FILES
_RECOUNT_INTERVAL: Final = 0.1
"""Seconds for which a count of those handed over holds, when there are too many."""
_MIN_RECOUNT: Final = 64

# The names of limits in metrics and logs: those of the settings, but for the bound that the system sets.
MAX_CONNECTIONS: Final = "max_sessions"
OPEN_FILES: Final = "open_files"
PER_ADDRESS: Final = "max_connections_per_address"

RefusedCallback: TypeAlias = Callable[[str, str], None]
"""Called for each connection that is refused or closed by a limit, with the limit's name and where the client is."""


class Connection(Protocol):
    """A connection that still speaks HTTP."""

    def drain(self) -> None:
        """End as soon as what was asked is answered."""

    def abort(self) -> None:
        """Close at once."""


def ignore_refusal(_limit: str, _remote: str) -> None:
    """Do nothing."""


class Connections:
    """All connections of one port: those that speak HTTP, and the sockets that somebody else has taken over."""

    def __init__(self, limits: HttpLimits, now: Callable[[], float], refused: RefusedCallback = ignore_refusal) -> None:
        self._max = limit_by_open_files(limits.max_connections)
        self._max_name = MAX_CONNECTIONS if self._max == limits.max_connections else OPEN_FILES
        self._max_per_address = limits.max_connections_per_address
        self._now = now
        self.on_refused = refused
        self.unfinished = UnfinishedInput(limits.max_unfinished, limits.max_unfinished_per_address, refused)
        self._open: dict[Connection, str] = {}
        """The address of each."""
        self._reserve: dict[Connection, None] = {}
        """Those that were not admitted, the oldest first."""
        self._by_address = Counter[str]()
        self.unread_bytes = 0
        """Bytes that were written to those who do not read as fast."""
        # Who takes a socket over does not tell us of its end. So we look, each time as many came as were there.
        self._upgraded: dict[asyncio.Transport, str] = {}
        self._recount_at = _MIN_RECOUNT
        self._recounted_at = float("-inf")

    def __len__(self) -> int:
        self._recount()
        return len(self._open) + len(self._upgraded)

    def admit(self, connection: Connection, address: str) -> str:
        """Count a new connection if there is room for it; else return the name of the limit that is reached."""
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
        """Keep one that was not admitted until its first request: health checks are answered at any number."""
        if len(self._reserve) >= _MAX_RESERVED:
            oldest = next(iter(self._reserve))
            del self._reserve[oldest]
            oldest.abort()
        self._reserve[connection] = None

    def count_upgraded(self, connection: Connection, socket: asyncio.Transport) -> None:
        """Know that a connection speaks something else from now on."""
        if len(self._upgraded) >= self._recount_at:
            self._recount()
        self._upgraded[socket] = self._open.pop(connection)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        address = self._open.pop(connection, None)
        if address is not None:
            self._release(address)
        self._reserve.pop(connection, None)

    def drain(self) -> None:
        """End all that speak HTTP, as soon as what was asked is answered."""
        for connection in list(self._open):
            connection.drain()

    def _release(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _recount(self) -> None:
        self._recounted_at = self._now()
        for socket in [each for each in self._upgraded if each.is_closing()]:
            self._release(self._upgraded.pop(socket))
        self._recount_at = max(_MIN_RECOUNT, 2 * len(self._upgraded))


def too_many_connections(limit: str) -> BadRequest:
    """Return the answer to a client that is not admitted."""
    if limit == PER_ADDRESS:
        return BadRequest(429, "too many connections from this address; try again later", Retry_After="1")
    return BadRequest(503, "too many connections; try again later", Retry_After="1")


def limit_by_open_files(wanted: int) -> int:
    """Return how many connections there can be: a refusal is kinder than a socket that cannot be accepted."""
    if resource is None:
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(1, files - min(_SPARE_FILES, files // 4)))
