"""A WebSocket client with Python's own sockets, for programs and devices without a WebSocket library.

fiveways serve                       in one terminal python examples/websocket.py         in another one: performs the
handshake of UMQ, and calls a method

The how-to pages use it for raw frames. It is short, so it can be ported to any language: an upgrade request with a key,
then frames of an opcode byte, a length, a mask (only from client to hub) and the payload.
"""

import os
import socket
import sys
from types import TracebackType
from typing import Self

HUB = "localhost:7500"
TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
LAST = 0x80
"""The FIN bit: the message ends with this frame."""


class Closed(Exception):
    """The hub has closed the connection."""


class WebSocket:
    """One connection that sends and receives text and bytes."""

    def __init__(self, host: str, path: str, token: str = "", timeout: float = 60.0) -> None:
        """Connect to `host:port`; the hub pings after `server.ping_interval` seconds of silence."""
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout)
        self._stream = self._socket.makefile("rb")
        login = f"Authorization: Bearer {token}\r\n" if token else ""
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{login}"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        answer = [self._stream.readline().strip()]
        while answer[-1]:
            answer.append(self._stream.readline().strip())
        if b" 101 " not in answer[0]:
            raise ConnectionError(answer[0].decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, message: str | bytes) -> None:
        """Send a text message, or a binary one."""
        if isinstance(message, str):
            self._frame(TEXT, message.encode())
        else:
            self._frame(BINARY, message)

    def receive(self) -> str | bytes:
        """Return the next message, joined from its frames; pings are answered."""
        kind, message = 0, b""
        while True:
            first, length = self._exactly(2)
            if length == 126:
                length = int.from_bytes(self._exactly(2))
            elif length == 127:
                length = int.from_bytes(self._exactly(8))
            data = self._exactly(length)
            match first & 0x0F:
                case 0x8:
                    raise Closed(int.from_bytes(data[:2]))
                case 0x9:
                    self._frame(PONG, data)
                case 0xA:
                    continue
                case code:
                    kind, message = code or kind, message + data
                    if first & LAST:
                        return message.decode() if kind == TEXT else message

    def _frame(self, kind: int, data: bytes) -> None:
        """Send one frame. A client must mask its frames (RFC 6455)."""
        mask = os.urandom(4)
        size = len(data)
        if size < 126:
            head = bytes([LAST | kind, 0x80 | size])
        elif size < 1 << 16:
            head = bytes([LAST | kind, 0x80 | 126]) + size.to_bytes(2)
        else:
            head = bytes([LAST | kind, 0x80 | 127]) + size.to_bytes(8)
        self._socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise Closed(0)
        return data


if __name__ == "__main__":
    with WebSocket(sys.argv[1] if len(sys.argv) > 1 else HUB, "/umq") as hub:
        for message in ("H1.0.0\n", "M1\nhub:echo\nhello"):
            hub.send(message)
            print(repr(message), "is answered by", repr(hub.receive()))
