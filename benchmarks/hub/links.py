"""Connections of the load generator: WebSocket by picows and NATS, both over the same kind of socket.

A link writes at once, one write per message; in batching mode it writes once per event loop iteration.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final, cast

import aiofastnet
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from benchmarks.hub.codecs import SIZE, Handshake

_PATIENCE: Final = 10.0
_READ_BUFFER: Final = 1 << 14
_QUIET: Final = logging.getLogger("benchmarks.picows")
_QUIET.setLevel(logging.CRITICAL)


class LinkLost(Exception):
    """The router closed the connection."""


class Link:
    """One connection. `on_frame` receives every frame; until it is set, frames are queued for `ask`."""

    send: Callable[[bytes], None]

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.on_frame: Callable[[bytes], None] = self._waiting.put_nowait
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.socket: asyncio.Transport

    async def ask(self, handshake: Handshake) -> None:
        """Send a handshake message and wait for its response."""
        if handshake.request:
            self.send(handshake.request)
        frame = await asyncio.wait_for(self._waiting.get(), _PATIENCE)
        if not frame.startswith(handshake.response):
            raise LinkLost(f"unexpected response of the router: {frame!r}")

    def fail(self, error: Exception) -> None:
        """Record the first error."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def close(self) -> None:
        """Close the connection; later errors are ignored."""
        self.failed.cancel()
        self.socket.abort()


class WriteBatch:
    """Collects the messages of one event loop iteration and writes them together."""

    def __init__(self, socket: asyncio.Transport) -> None:
        self._socket = socket
        self._frames: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def add(self, frame: bytes) -> None:
        """Write the frame at the end of this event loop iteration."""
        if not self._frames:
            self._loop.call_soon(self._flush)
        self._frames.append(frame)

    def _flush(self) -> None:
        self._socket.write(b"".join(self._frames))
        self._frames.clear()


class _Listener(WSListener):
    """Callbacks of picows."""

    def __init__(self, link: "WebSocketLink") -> None:
        self._link = link

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._link.begin(transport)

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        try:
            self._link.on_frame(frame.get_payload_as_bytes())
        except Exception as exc:  # noqa: BLE001  any exception fails the run
            self._link.fail(exc)

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        self._link.fail(LinkLost("the router closed the connection"))


class WebSocketLink(Link):
    """A WebSocket connection."""

    def __init__(self, *, is_text: bool, batches: bool) -> None:
        super().__init__()
        self._kind = WSMsgType.TEXT if is_text else WSMsgType.BINARY
        self._batches = batches

    def begin(self, transport: WSTransport) -> None:
        """Take over the connection after the handshake."""
        self.socket = transport.underlying_transport
        if self._batches:
            batch = WriteBatch(self.socket)
            self.send = lambda payload: batch.add(self._frame(payload))
        else:
            send, kind = transport.send, self._kind
            self.send = lambda payload: send(kind, payload)

    def _frame(self, payload: bytes) -> bytes:
        """Return a client frame; a mask of zeros is valid and leaves the payload unchanged."""
        first = 0x80 | self._kind.value
        if len(payload) < 126:
            return bytes((first, 0x80 | len(payload), 0, 0, 0, 0)) + payload
        return bytes((first, 0xFE, *len(payload).to_bytes(2, "big"), 0, 0, 0, 0)) + payload


class NatsLink(Link, asyncio.Protocol):
    """A connection to nats-server; splits the received data into messages."""

    def __init__(self, *, batches: bool) -> None:
        super().__init__()
        self._batches = batches
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.socket = cast("asyncio.Transport", transport)  # aiofastnet's class is not a subclass of it
        self.send = WriteBatch(self.socket).add if self._batches else self.socket.write

    def data_received(self, data: bytes) -> None:
        """Pass on every complete message: a line, or a line that ends with the size of a body, with the body."""
        data = self._rest + data if self._rest else bytes(data)
        start = 0
        try:
            while (end := data.find(b"\r\n", start)) >= 0:
                if data.startswith(b" 100", end - 4):
                    end += 2 + SIZE
                    if end + 2 > len(data):
                        break
                    self.on_frame(data[start:end])
                elif data.startswith(b"PING", start):
                    self.socket.write(b"PONG\r\n")
                else:
                    self.on_frame(data[start:end])
                start = end + 2
        except Exception as exc:  # noqa: BLE001  any exception fails the run
            self.fail(exc)
        self._rest = data[start:]

    def connection_lost(self, _exc: Exception | None) -> None:
        """Record the loss."""
        self.fail(LinkLost("the router closed the connection"))


async def open_websocket(url: str, subprotocol: str, *, is_text: bool, batches: bool, local: str = "") -> Link:
    """Connect to a WebSocket router; `local` is the local address, if any."""
    link = WebSocketLink(is_text=is_text, batches=batches)
    await ws_connect(
        lambda *_: _Listener(link),
        url,
        logger_name=_QUIET,
        extra_headers={"Sec-WebSocket-Protocol": subprotocol} if subprotocol else None,
        read_buffer_init_size=_READ_BUFFER,
        local_addr=(local, 0) if local else None,
    )
    return link


async def open_nats(port: int, *, batches: bool) -> Link:
    """Connect to nats-server."""
    loop = asyncio.get_running_loop()
    _, link = await aiofastnet.create_connection(loop, lambda: NatsLink(batches=batches), "127.0.0.1", port)
    assert isinstance(link, NatsLink)
    return link


async def finish(run: Coroutine[object, object, float], links: list[Link], seconds: float) -> float:
    """Wait for a run that should take `seconds`, or for the first link that fails."""
    task = asyncio.ensure_future(run)
    failures = [link.failed for link in links]
    futures: list[asyncio.Future[float] | asyncio.Future[None]] = [task, *failures]
    await asyncio.wait(futures, timeout=seconds + _PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            task.cancel()
            failure.result()
    if not task.done():
        task.cancel()
        raise TimeoutError("timeout: responses are missing")
    return task.result()
