"""A WebSocket and HTTP client for malformed frames and slow reading, which a conforming client does not support."""

import asyncio
import base64
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fiveways.traffic.target import Target

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_OPEN_TIMEOUT: Final = 5.0
_SLOW_BUFFER: Final = 4096
"""Size of the receive buffers of a slow consumer, in bytes."""
_LENGTH_FORMATS: Final = {126: ">H", 127: ">Q"}


class ConnectionGone(ConnectionError):
    """The hub closed the connection, or did not accept it."""


class RawWebSocket:
    """One WebSocket connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, payload: bytes | str, opcode: int = TEXT) -> None:
        """Send a frame with any content."""
        data = payload.encode() if isinstance(payload, str) else payload
        size = len(data)
        # A mask of zeros is valid and needs no masking.
        if size < 126:
            header = bytes((0x80 | opcode, 0x80 | size))
        elif size < 1 << 16:
            header = bytes((0x80 | opcode, 0xFE)) + struct.pack(">H", size)
        else:
            header = bytes((0x80 | opcode, 0xFF)) + struct.pack(">Q", size)
        self._writer.write(header + bytes(4) + data)

    def write(self, data: bytes) -> None:
        """Write bytes that need not be a frame."""
        self._writer.write(data)

    async def receive(self) -> bytes:
        """Return the next text or binary message; ConnectionGone if the hub has closed the connection."""
        message = b""
        try:
            while True:
                first, second = await self._reader.readexactly(2)
                size = second & 0x7F
                if size in _LENGTH_FORMATS:
                    length_format = _LENGTH_FORMATS[size]
                    (size,) = struct.unpack(
                        length_format, await self._reader.readexactly(struct.calcsize(length_format))
                    )
                data = await self._reader.readexactly(size)
                opcode = first & 0x0F
                if opcode == CLOSE:
                    raise ConnectionGone("closed")
                if opcode == PING:
                    self.send(data, PONG)
                elif opcode != PONG:
                    message += data
                    if first & 0x80:
                        return message
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise ConnectionGone("the connection was lost") from exc

    def abort(self) -> None:
        """Close the connection without a close frame."""
        self._writer.transport.abort()


@asynccontextmanager
async def open_websocket(
    target: Target, path: str, *, subprotocol: str = "", slow: bool = False
) -> AsyncIterator[RawWebSocket]:
    """Open a WebSocket, and abort it at the end; ConnectionGone if the handshake fails."""
    async with asyncio.timeout(_OPEN_TIMEOUT):
        reader, writer = await _open_connection(target, slow=slow)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {target.netloc}", "Connection: Upgrade", "Upgrade: websocket"]
        lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *_authorization_headers(target)]
        lines += [f"Sec-WebSocket-Protocol: {subprotocol}"] if subprotocol else []
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            response = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            writer.transport.abort()
            raise ConnectionGone("no handshake") from exc
    if not response.startswith(b"HTTP/1.1 101"):
        writer.transport.abort()
        raise ConnectionGone(response.partition(b"\r\n")[0].decode("latin-1"))
    connection = RawWebSocket(reader, writer)
    try:
        yield connection
    finally:
        connection.abort()


async def send_http(target: Target, method: str, path: str, body: bytes = b"") -> int:
    """Send an HTTP request with any content, and return the status; ConnectionGone without a response."""
    reader, writer = await _open_connection(target)
    try:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {target.netloc}",
            "Connection: close",
            *_authorization_headers(target),
        ]
        lines += [f"Content-Length: {len(body)}"] if body else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        async with asyncio.timeout(_OPEN_TIMEOUT):
            first = await reader.readline()
        if not first.startswith(b"HTTP/1.1 "):
            raise ConnectionGone("no response")
        return int(first.split()[1])
    except OSError as exc:
        raise ConnectionGone("no response") from exc
    finally:
        writer.transport.abort()


def _authorization_headers(target: Target) -> list[str]:
    return [f"Authorization: Bearer {target.token}"] if target.token else []


async def _open_connection(target: Target, *, slow: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    addresses = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    family, kind, number, _, address = addresses[0]
    sock = socket.socket(family, kind, number)
    try:
        if slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
        context = ssl.create_default_context() if target.tls else None
        name = target.host if target.tls else None
        return await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname=name, limit=_SLOW_BUFFER if slow else 1 << 16
        )
    except BaseException as exc:
        sock.close()
        if isinstance(exc, OSError):
            raise ConnectionGone(str(exc)) from exc
        raise
