"""The generator's connections: WebSocket by picows, NATS by a few lines, both on the same kind of socket.

A link writes at once, one write for each thing said; or, where it batches, once for all that a loop pass has to say.
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
    """One connection. `heard` gets every frame; until it is set, frames wait for `hear`."""

    send: Callable[[bytes], None]

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: Callable[[bytes], None] = self._waiting.put_nowait
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.socket: asyncio.Transport

    async def ask(self, ask: Handshake) -> None:
        """Say something and wait for the answer."""
        if ask.says:
            self.send(ask.says)
        frame = await asyncio.wait_for(self._waiting.get(), _PATIENCE)
        if not frame.startswith(ask.hears):
            raise LinkLost(f"the router said {frame!r}")

    def fail(self, error: Exception) -> None:
        """Remember the first thing that went wrong."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def close(self) -> None:
        """Close the connection; whatever comes of it is no failure any more."""
        self.failed.cancel()
        self.socket.abort()


class WriteBatch:
    """Collects what is said in one pass of the loop and writes it at once."""

    def __init__(self, socket: asyncio.Transport) -> None:
        self._socket = socket
        self._frames: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def add(self, frame: bytes) -> None:
        """Say it at the end of this pass."""
        if not self._frames:
            self._loop.call_soon(self._flush)
        self._frames.append(frame)

    def _flush(self) -> None:
        self._socket.write(b"".join(self._frames))
        self._frames.clear()


class _Listener(WSListener):
    """What picows calls."""

    def __init__(self, link: "WebSocketLink") -> None:
        self._link = link

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._link.begin(transport)

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        try:
            self._link.heard(frame.get_payload_as_bytes())
        except Exception as exc:  # noqa: BLE001  whatever it is, the run has failed
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
        """Take over from the handshake."""
        self.socket = transport.underlying_transport
        if self._batches:
            batch = WriteBatch(self.socket)
            self.send = lambda payload: batch.add(self._frame(payload))
        else:
            send, kind = transport.send, self._kind
            self.send = lambda payload: send(kind, payload)

    def _frame(self, payload: bytes) -> bytes:
        """Return a client's frame; a mask of zeros is a mask, and leaves the payload as it is."""
        first = 0x80 | self._kind.value
        if len(payload) < 126:
            return bytes((first, 0x80 | len(payload), 0, 0, 0, 0)) + payload
        return bytes((first, 0xFE, *len(payload).to_bytes(2, "big"), 0, 0, 0, 0)) + payload


class NatsLink(Link, asyncio.Protocol):
    """A connection to nats-server; cuts what comes into messages."""

    def __init__(self, *, batches: bool) -> None:
        super().__init__()
        self._batches = batches
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.socket = cast("asyncio.Transport", transport)  # aiofastnet's only looks like one
        self.send = WriteBatch(self.socket).add if self._batches else self.socket.write

    def data_received(self, data: bytes) -> None:
        """Pass on every whole message: a line, or a line that ends in the size of our bodies, and such a body."""
        data = self._rest + data if self._rest else bytes(data)
        start = 0
        try:
            while (end := data.find(b"\r\n", start)) >= 0:
                if data.startswith(b" 100", end - 4):
                    end += 2 + SIZE
                    if end + 2 > len(data):
                        break
                    self.heard(data[start:end])
                elif data.startswith(b"PING", start):
                    self.socket.write(b"PONG\r\n")
                else:
                    self.heard(data[start:end])
                start = end + 2
        except Exception as exc:  # noqa: BLE001  whatever it is, the run has failed
            self.fail(exc)
        self._rest = data[start:]

    def connection_lost(self, _exc: Exception | None) -> None:
        """Remember that it did."""
        self.fail(LinkLost("the router closed the connection"))


async def open_websocket(url: str, subprotocol: str, *, is_text: bool, batches: bool, local: str = "") -> Link:
    """Connect to a WebSocket router, from another address of this machine if `local` names one."""
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
    """Wait for a run that should take so long, or for the first link that fails."""
    task = asyncio.ensure_future(run)
    failures = [link.failed for link in links]
    waiting: list[asyncio.Future[float] | asyncio.Future[None]] = [task, *failures]
    await asyncio.wait(waiting, timeout=seconds + _PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            task.cancel()
            failure.result()
    if not task.done():
        task.cancel()
        raise TimeoutError("answers are missing")
    return task.result()
