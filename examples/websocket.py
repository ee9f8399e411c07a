"""A WebSocket with nothing but Python's own sockets, for programs and devices that have no library for it.

fiveways serve                       in a first terminal
python examples/websocket.py         in a second one: says hello in UMQ, and calls a method

The how-to pages use it for raw frames. It is short so that it can be written again in any language: a request with a
key, then frames with one byte for what they are, a length, and on the way to the hub a mask.
"""

import os
import socket
import sys
from types import TracebackType
from typing import Self

HUB = "localhost:7500"
TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
LAST = 0x80
"""The bit that says that a message ends with this frame."""


class Closed(Exception):
    """The hub has closed the connection."""


class WebSocket:
    """One connection: text and bytes go out and come in."""

    def __init__(self, host: str, path: str, token: str = "", timeout: float = 60.0) -> None:
        """Connect to `host:port`; the hub asks after `server.ping_interval` seconds of silence whether we are there."""
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
        """Say a text, or bytes."""
        if isinstance(message, str):
            self._frame(TEXT, message.encode())
        else:
            self._frame(BINARY, message)

    def receive(self) -> str | bytes:
        """Return the next message; what comes in several frames is put together, and pings are answered."""
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
        """Send one frame. A client has to mask what it says."""
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
        for said in ("H1.0.0\n", "M1\nhub:echo\nhello"):
            hub.send(said)
            print(repr(said), "is answered by", repr(hub.receive()))
