"""One listening port for HTTP and WebSocket."""

import asyncio

from fiveways.transports.http import BodyLimit, Handler, HttpLimits
from fiveways.transports.http_connections import BACKLOG, Connections, RefusedCallback, ignore_refusal
from fiveways.transports.http_protocol import HttpProtocol, UpgradeHandler
from fiveways.transports.unfinished_input import UnfinishedInput


class Port:
    """Looks at the first request of each connection: it is answered as HTTP, or the socket is handed over."""

    def __init__(
        self,
        handler: Handler,
        upgrade: UpgradeHandler,
        *,
        limits: HttpLimits = HttpLimits(),  # noqa: B008
        body_limit: BodyLimit | None = None,
        refused: RefusedCallback = ignore_refusal,
    ) -> None:
        """Make it; what `handler` or `upgrade` raise is logged, and answered with a 500."""
        self._handler = handler
        self._upgrade = upgrade
        self._body_limit = body_limit or (lambda _: (limits.max_body, True))
        self._limits = limits
        self._servers: list[asyncio.Server] = []
        self._connections = Connections(limits, lambda: asyncio.get_running_loop().time(), refused)

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Accept connections, and return on which addresses; OSError as the system gives it. An empty host is all."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        self._servers.append(server)
        addresses = [socket.getsockname() for socket in server.sockets]
        return [(str(address[0]), int(address[1])) for address in addresses]

    async def close(self) -> None:
        """Stop listening; end HTTP connections when what was asked is answered. Sockets handed over are not ours."""
        for server in self._servers:
            # To wait for it would be to wait for those who took sockets over, too.
            server.close()
        self._servers.clear()
        self._connections.drain()
        await asyncio.sleep(0)

    def connections(self) -> int:
        """Return how many there are, those handed over included."""
        return len(self._connections)

    def unread(self) -> int:
        """Return how many bytes of answers wait for clients that do not read as fast; all of them are in memory."""
        return self._connections.unread_bytes

    @property
    def unfinished(self) -> UnfinishedInput:
        """The input of all connections that has not come completely."""
        return self._connections.unfinished

    def _accept(self) -> HttpProtocol:
        return HttpProtocol(self._handler, self._upgrade, self._body_limit, self._limits, self._connections)
