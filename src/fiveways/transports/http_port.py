"""Listening port for HTTP and WebSocket."""

import asyncio

from fiveways.transports.http import BodyLimit, Handler, HttpLimits
from fiveways.transports.http_connections import BACKLOG, Connections, RefusedCallback, ignore_refusal
from fiveways.transports.http_protocol import HttpProtocol, UpgradeHandler
from fiveways.transports.unfinished_input import UnfinishedInput


class Port:
    """Port that serves HTTP requests, and hands the sockets of WebSocket requests over to another protocol."""

    def __init__(
        self,
        handler: Handler,
        upgrade: UpgradeHandler,
        *,
        limits: HttpLimits = HttpLimits(),  # noqa: B008
        body_limit: BodyLimit | None = None,
        refused: RefusedCallback = ignore_refusal,
    ) -> None:
        """Initialize. Exceptions of `handler` and `upgrade` are logged and answered with 500."""
        self._handler = handler
        self._upgrade = upgrade
        self._body_limit = body_limit or (lambda _: (limits.max_body, True))
        self._limits = limits
        self._servers: list[asyncio.Server] = []
        self._connections = Connections(limits, lambda: asyncio.get_running_loop().time(), refused)

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen and return the addresses; OSError if that fails. An empty host is all interfaces."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        self._servers.append(server)
        addresses = [socket.getsockname() for socket in server.sockets]
        return [(str(address[0]), int(address[1])) for address in addresses]

    async def close(self) -> None:
        """Stop listening, and drain HTTP connections. Upgraded sockets stay open: they belong to other protocols."""
        for server in self._servers:
            # Not awaited: wait_closed() would also wait for upgraded sockets.
            server.close()
        self._servers.clear()
        self._connections.drain()
        await asyncio.sleep(0)

    def connections(self) -> int:
        """Return the number of open connections including upgraded sockets."""
        return len(self._connections)

    def unread(self) -> int:
        """Return the bytes of responses in memory that slow clients have not read."""
        return self._connections.unread_bytes

    @property
    def unfinished(self) -> UnfinishedInput:
        """Unfinished input of all connections."""
        return self._connections.unfinished

    def _accept(self) -> HttpProtocol:
        return HttpProtocol(self._handler, self._upgrade, self._body_limit, self._limits, self._connections)
