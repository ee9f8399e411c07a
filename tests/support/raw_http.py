"""An HTTP port with simple responses, and clients that write raw bytes."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from picows import WSAutoPingStrategy, WSFrame, WSListener, WSMsgType, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # missing in picows' stubs

from fiveways.transports.http import Handler, HttpLimits, Request, Response
from fiveways.transports.http_connections import RefusedCallback, ignore_refusal
from fiveways.transports.http_port import Port
from fiveways.transports.http_protocol import UpgradeHandler
from tests.support.waiting import until

HOST = "127.0.0.1"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HANDSHAKE = (
    b"GET /ws?a=b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The value for this key in RFC 6455."""


def echo(request: Request) -> Response:
    """Return method, path, query and body of the request."""
    return Response(200, f"{request.method} {request.path} {request.query} ".encode() + request.body)


class EchoListener(WSListener):
    """Sends every frame back."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.CLOSE:
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_bytes())


def echo_protocol(listener: Callable[[], WSListener] = EchoListener) -> asyncio.BaseProtocol:
    """Return a WebSocket server for one connection, with the smallest possible buffer."""
    return WSProtocol(  # type: ignore[no-any-return]
        None,
        None,
        False,
        lambda _request: listener(),
        logging.getLogger("fiveways.test"),
        True,
        10.0,
        False,
        0.0,
        0.0,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        True,
        1 << 20,
        None,
        2048,
    )


def upgrade_to_echo(_request: Request) -> Callable[[], asyncio.BaseProtocol]:
    return echo_protocol


def masked(text: bytes) -> bytes:
    """Return a text frame of a client; a mask of zeros leaves the payload unchanged."""
    size = bytes((0x80 | len(text),)) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + text


def unmasked(text: bytes) -> bytes:
    """Return a text frame of a server."""
    size = bytes((len(text),)) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2, "big")
    return b"\x81" + size + text


class Client:
    """A connection to a port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def answer(self) -> tuple[int, bytes]:
        """Return status and body of the next response."""
        head = await self.head()
        length = re.search(rb"Content-Length: (\d+)", head)
        body = await self.reader.readexactly(int(length[1])) if length else b""
        return int(head[9:12]), body

    async def rest(self) -> bytes:
        """Return all data until the other end closes or resets the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Running:
    """A listening port."""

    def __init__(self, port: Port, number: int) -> None:
        self.port = port
        self.number = number
        self._clients: list[Client] = []

    async def client(self, first: bytes = b"") -> Client:
        client = Client(*await asyncio.open_connection(HOST, self.number))
        self._clients.append(client)
        client.send(first)
        return client

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send one request over its own connection."""
        client = await self.client(data)
        answer = await client.answer()
        await client.close()
        return answer

    async def close(self) -> None:
        await self.port.close()
        for client in self._clients:
            await client.close()
        await until(lambda: not self.port.connections())


@asynccontextmanager
async def running(
    handler: Handler = echo,
    upgrade: UpgradeHandler = upgrade_to_echo,
    limits: HttpLimits | None = None,
    refused: RefusedCallback = ignore_refusal,
) -> AsyncIterator[Running]:
    port = Port(handler, upgrade, limits=limits or HttpLimits(), refused=refused)
    [(_, number)] = await port.listen(HOST, 0)
    running_port = Running(port, number)
    try:
        yield running_port
    finally:
        await running_port.close()
