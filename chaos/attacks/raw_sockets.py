"""Raw sockets: WebSocket clients that send arbitrary bytes, and HTTP requests."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final

TEXT, BINARY, CLOSE = 0x81, 0x82, 0x88
_UPGRADE: Final = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{headers}"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_RESET: Final = struct.pack("ii", 1, 0)
_PATIENCE: Final = 60.0


class Refused(ConnectionError):
    """The hub refuses the attacker."""


class RawSocket:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, payload: bytes | str, kind: int = TEXT) -> None:
        """Send a frame with an all-zero mask."""
        data = payload.encode() if isinstance(payload, str) else payload
        self.writer.write(header(len(data), kind) + data)

    async def receive(self) -> bytes:
        """Return the payload of the next frame."""
        async with asyncio.timeout(_PATIENCE):
            _, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
            return await self.reader.readexactly(size)

    async def ask(self, text: str) -> str:
        """Send a frame and return the text of the next one."""
        self.send(text)
        return (await self.receive()).decode(errors="replace")

    def reset(self) -> None:
        """Close with RST, which leaves no port in TIME_WAIT."""
        sock = self.writer.get_extra_info("socket")
        with suppress(OSError):
            if sock is not None:  # the hub has not closed it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


def header(size: int, kind: int = TEXT) -> bytes:
    """Return the header of a client frame."""
    if size < 126:
        return bytes((kind, 0x80 | size, 0, 0, 0, 0))
    if size < 1 << 16:
        return struct.pack(">BBHI", kind, 0xFE, size, 0)
    return struct.pack(">BBQI", kind, 0xFF, size, 0)


async def connect(port: int, address: str = "127.0.0.1", *, buffer: int = 0) -> RawSocket:
    """Connect from an address; `buffer` is the size of the receive buffer of a client that does not read."""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.bind((address, 0))
        async with asyncio.timeout(_PATIENCE):
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            return RawSocket(*await asyncio.open_connection(sock=sock, limit=1 << 26))
    except BaseException:
        sock.close()
        raise


async def upgrade(
    port: int, path: str, address: str = "127.0.0.1", *, headers: str = "", hello: str = "", buffer: int = 0
) -> RawSocket:
    """Open a WebSocket and send `hello` if there is one; Refused if the hub refuses the upgrade."""
    wire = await connect(port, address, buffer=buffer)
    try:
        wire.writer.write(_UPGRADE.format(path=path, headers=headers).encode())
        async with asyncio.timeout(_PATIENCE):
            head = await wire.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise Refused(head[:40].decode("latin-1"))  # noqa: TRY301  the connection is closed below
        if hello:
            await wire.ask(hello)
    except BaseException:
        wire.reset()
        raise
    return wire


async def umq(port: int, address: str = "127.0.0.1", *, buffer: int = 0) -> RawSocket:
    """Open a UMQ session."""
    return await upgrade(port, "/umq", address, hello="H1.0.0\n", buffer=buffer)


def post(body: bytes, target: str = "/nq", headers: str = "") -> bytes:
    """Return a POST request."""
    return f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answer(wire: RawSocket) -> tuple[int, bytes, bytes]:
    """Return status, head and body of the next response."""
    async with asyncio.timeout(_PATIENCE):
        head = await wire.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        return int(head.split()[1]), head, await wire.reader.readexactly(length)


async def request_once(port: int, request: bytes, address: str = "127.0.0.1") -> tuple[int, bytes, bytes]:
    """Send one request over its own connection and return its response."""
    wire = await connect(port, address)
    try:
        wire.writer.write(request)
        return await answer(wire)
    finally:
        wire.reset()


async def repeat(
    number: int, action: Callable[[int], Awaitable[None]], done: Callable[[], None], *, workers: int = 32
) -> int:
    """Perform an action `number` times with concurrent workers; return the number of failures."""
    numbers, failed = count(), 0

    async def work() -> None:
        nonlocal failed
        while (index := next(numbers)) < number:
            try:
                await action(index)
            except (OSError, asyncio.IncompleteReadError):
                failed += 1
            else:
                done()

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    return failed
