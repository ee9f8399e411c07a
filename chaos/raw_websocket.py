"""A WebSocket client on plain sockets: text messages of RFC 6455, and responses to pings.

It is written from the RFC and shares no code with the hub, so a bug in the hub's own library is detected.
"""

import asyncio
import base64
import os
from typing import Final

_TEXT: Final = 0x1
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_LAST: Final = 0x80
_MASKED: Final = 0x80
_MAX_HEAD: Final = 65_536
_PATIENCE: Final = 5.0


class ConnectionGone(ConnectionError):
    """The connection is closed, or was never opened."""


class RawWebSocket:
    """One connection to the hub."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, path: str, token: str = "") -> "RawWebSocket":
        """Connect and upgrade; ConnectionGone if that fails."""
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(host, port, limit=_MAX_HEAD)
                try:
                    await _upgrade(reader, writer, f"{host}:{port}", path, token)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            raise ConnectionGone(str(exc)) from exc
        return cls(reader, writer)

    def send(self, text: str) -> None:
        """Send one text message."""
        self._write(_TEXT, text.encode())

    async def receive(self) -> str:
        """Return the next text message; ConnectionGone when the connection is closed."""
        message = b""
        try:
            while True:
                first, second = await self._reader.readexactly(2)
                length = second & 0x7F
                if length == 126:
                    length = int.from_bytes(await self._reader.readexactly(2))
                elif length == 127:
                    length = int.from_bytes(await self._reader.readexactly(8))
                data = await self._reader.readexactly(length)
                match first & 0x0F:
                    case 0x8:
                        self._write(_CLOSE, data[:2])
                        raise ConnectionGone(f"closed: {int.from_bytes(data[:2])} {data[2:].decode()}")
                    case 0x9:
                        self._write(_PONG, data)
                    case 0x0 | 0x1:
                        message += data
                        if first & _LAST:
                            return message.decode()
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise ConnectionGone(str(exc)) from exc

    def abort(self) -> None:
        """Close the connection at once, without a close frame."""
        self._writer.transport.abort()

    def _write(self, kind: int, data: bytes) -> None:
        if self._writer.is_closing():
            return
        size = len(data)
        if size < 126:
            head = bytes([_LAST | kind, _MASKED | size])
        elif size < 1 << 16:
            head = bytes([_LAST | kind, _MASKED | 126]) + size.to_bytes(2)
        else:
            head = bytes([_LAST | kind, _MASKED | 127]) + size.to_bytes(8)
        mask = os.urandom(4)
        key = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data) ^ int.from_bytes(key)).to_bytes(size)
        self._writer.write(head + mask + masked)


async def _upgrade(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str, token: str
) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    login = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{login}"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in head.partition(b"\r\n")[0]:
        raise ConnectionGone(head.partition(b"\r\n")[0].decode())
