"""Giving a socket to another protocol, after a look at the first request."""

import asyncio
import binascii
from base64 import b64decode
from typing import Final

from fiveways.transports.http import Request, Response

_VERSION: Final = "13"
_PLACEHOLDER: Final = asyncio.Protocol()
_COPIED_HEADERS: Final = ("host", "sec-websocket-key", "sec-websocket-protocol")


def handshake_refusal(request: Request) -> Response | None:
    """Return what to answer to a request for a WebSocket that RFC 6455 does not allow, None if it does."""
    if request.headers.get("sec-websocket-version") != _VERSION:
        text = f"only version {_VERSION} of WebSocket is spoken here\n"
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": _VERSION}
        return Response(426, text.encode(), headers=headers)
    try:
        key = b64decode(request.headers.get("sec-websocket-key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 16:
        return Response(400, b"Sec-WebSocket-Key must be 16 bytes in base64\n")
    return None


def minimal_handshake(request: Request) -> bytes:
    """Return a request for a WebSocket as its plainest client would write it.

    picows takes no `Connection: keep-alive, Upgrade`, which browsers send, and holds every header for as long as the
    connection lives. So it gets the few that a handshake needs; `request` has them all.
    """
    target = f"{request.path}?{request.query}" if request.query else request.path
    kept = [f"{name}: {request.headers[name]}\r\n" for name in _COPIED_HEADERS if name in request.headers]
    lines = [
        f"GET {target} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        f"Sec-WebSocket-Version: {_VERSION}\r\n",
        *kept,
        "\r\n",
    ]
    return "".join(lines).encode("latin-1")


def hand_over_socket(socket: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Let `protocol` have the socket, as if `data` were the first bytes that came."""
    # uvloop chooses between its two ways of reading when it begins to read.
    if socket.is_reading():
        socket.pause_reading()
    # It also holds the last protocol without buffers for as long as the socket lives: better this one than ours.
    socket.set_protocol(_PLACEHOLDER)
    socket.set_protocol(protocol)
    socket.resume_reading()
    protocol.connection_made(socket)
    if isinstance(protocol, asyncio.BufferedProtocol):
        feed_bytes(socket, protocol, memoryview(data))
    elif isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
    else:
        raise TypeError(f"{type(protocol).__name__} does not read from a socket")


def feed_bytes(socket: asyncio.Transport, protocol: asyncio.BufferedProtocol, data: memoryview) -> None:
    """Let a protocol read these bytes."""
    while data and not socket.is_closing():
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        if not size:
            raise BufferError("the new protocol has no room for what was read before")
        buffer[:size] = data[:size]
        data = data[size:]
        del buffer  # it must not be held while the protocol makes it larger
        protocol.buffer_updated(size)
