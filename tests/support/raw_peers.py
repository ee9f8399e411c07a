"""A hub on a free port, and peers that write their frames themselves."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from fiveways.app import App
from fiveways.runtime.server import Server
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, ServerSettings, Settings

PATIENCE = 120.0
"""Timeout of a test in seconds; no test is expected to wait for it."""


def settings(
    *, auth: AuthSettings | None = None, limits: LimitSettings | None = None, server: ServerSettings | None = None
) -> Settings:
    """Return settings for a free port."""
    return Settings(
        server=server or ServerSettings(port=0, drain_timeout=1.0),
        limits=limits or LimitSettings(),
        auth=auth or AuthSettings(),
    )


@asynccontextmanager
async def hub(value: Settings | None = None, app: App | None = None) -> AsyncIterator["Place"]:
    """Run a hub and yield its address."""
    server = Server(value or settings(), app)
    await server.start()
    try:
        yield Place(server)
    finally:
        await server.stop()


class Place:
    """The address of a hub."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = int(server.urls[0][1].rpartition(":")[2].partition("/")[0])

    async def peer(self, path: str, **headers: str) -> "WirePeer":
        """Connect to a path without a handshake."""
        return await connected(f"ws://127.0.0.1:{self.port}{path}", headers)

    async def umq(self, hello: str = "") -> "WirePeer":
        """Connect a UMQ peer and complete its handshake."""
        peer = await self.peer("/umq")
        peer.text(f"H1.0.0\n{hello}")
        assert (await peer.heard()).startswith("W1.0.0\n")
        return peer

    async def umq36(self, hello: str = "") -> "WirePeer":
        """Connect a UMQ36 peer and complete its handshake."""
        peer = await self.peer("/umq36")
        peer.text(f"H1:{hello}")
        assert (await peer.heard()).startswith("W1:")
        return peer

    async def lrpm(self, hello: str = "null") -> "WirePeer":
        """Connect an LRPM peer in JSON and complete its handshake."""
        peer = await self.peer("/lrpm")
        peer.text(f"[2,{hello},{{}}]")
        assert (await peer.heard()).startswith("[2,")
        return peer


async def http(port: int, path: str, **headers: str) -> str:
    """Return the response to a GET as text."""
    lines = "".join(f"{name}: {text}\r\n" for name, text in {"Host": "localhost", **headers}.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    return answer.decode()


async def connected(url: str, headers: Mapping[str, str] | None = None) -> "WirePeer":
    """Connect a peer without a handshake."""
    peer = WirePeer()
    await ws_connect(lambda: peer, url, extra_headers=headers or {}, max_frame_size=1 << 28)
    return peer


class WirePeer(WSListener):
    """A WebSocket client that sends raw frames and queues received ones."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.ws: WSTransport
        self.close_code: WSCloseCode | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.ws = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.TEXT:
            self.frames.put_nowait(frame.get_payload_as_utf8_text())
        elif frame.msg_type in (WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self.frames.put_nowait(frame.get_payload_as_bytes())
        elif frame.msg_type is WSMsgType.CLOSE:
            self.close_code = frame.get_close_code()
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.frames.put_nowait(None)

    def text(self, text: str) -> None:
        """Send a text frame."""
        self.ws.send(WSMsgType.TEXT, text.encode())

    def binary(self, data: bytes) -> None:
        """Send a binary frame."""
        self.ws.send(WSMsgType.BINARY, data)

    async def heard(self) -> str:
        """Return the next text frame."""
        frame = await asyncio.wait_for(self.frames.get(), PATIENCE)
        assert isinstance(frame, str), frame
        return frame

    async def data(self) -> bytes:
        """Return the next binary frame."""
        frame = await asyncio.wait_for(self.frames.get(), PATIENCE)
        assert isinstance(frame, bytes), frame
        return frame

    async def over(self) -> None:
        """Wait until the connection is closed; no frame may arrive before."""
        assert await asyncio.wait_for(self.frames.get(), PATIENCE) is None

    def leave(self) -> None:
        """Cut the connection."""
        self.ws.disconnect(graceful=False)
