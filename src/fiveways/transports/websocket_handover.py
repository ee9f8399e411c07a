"""Handover of an HTTP connection's socket to a WebSocket protocol."""

import asyncio
import binascii
from base64 import b64decode
from typing import Final

from fiveways.transports.http import Request, Response

_VERSION: Final = "13"
_PLACEHOLDER: Final = asyncio.Protocol()
_COPIED_HEADERS: Final = ("host", "sec-websocket-key", "sec-websocket-protocol")


def handshake_refusal(request: Request) -> Response | None:
    """Return the response to an invalid WebSocket request (RFC 6455, 4.2), or None."""
    if request.headers.get("sec-websocket-version") != _VERSION:
        text = f"only version {_VERSION} of WebSocket is supported\n"
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
    """Return an equivalent WebSocket request with the headers that picows needs.

    picows rejects `Connection: keep-alive, Upgrade`, which browsers send. It also keeps all headers in memory for the
    lifetime of the connection.
    """
    target = f"{request.path}?{request.query}" if request.query else request.path
    copied = [f"{name}: {request.headers[name]}\r\n" for name in _COPIED_HEADERS if name in request.headers]
    lines = [
        f"GET {target} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        f"Sec-WebSocket-Version: {_VERSION}\r\n",
        *copied,
        "\r\n",
    ]
    return "".join(lines).encode("latin-1")


def hand_over_socket(socket: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Make `protocol` the protocol of the socket, and pass `data` to it as the first received bytes."""
    # uvloop chooses between its two ways of reading when it starts to read.
    if socket.is_reading():
        socket.pause_reading()
    # uvloop keeps the last unbuffered protocol alive as long as the socket: a placeholder is smaller than ours.
    socket.set_protocol(_PLACEHOLDER)
    socket.set_protocol(protocol)
    socket.resume_reading()
    protocol.connection_made(socket)
    if isinstance(protocol, asyncio.BufferedProtocol):
        feed_bytes(socket, protocol, memoryview(data))
    elif isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
    else:
        raise TypeError(f"{type(protocol).__name__} is not a protocol for sockets")


def feed_bytes(socket: asyncio.Transport, protocol: asyncio.BufferedProtocol, data: memoryview) -> None:
    """Pass received bytes to a buffered protocol."""
    while data and not socket.is_closing():
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        if not size:
            raise BufferError("the protocol has no buffer for data that was already read")
        buffer[:size] = data[:size]
        data = data[size:]
        del buffer  # an exported buffer cannot be resized
        protocol.buffer_updated(size)
