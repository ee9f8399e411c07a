"""Server side of WebSocket connections. The HTTP protocol hands their sockets over to picows after the request.

picows keeps an incomplete frame in its read buffer, doubles the buffer when more than 90 % are in use, and never
shrinks it. Its frame limit is fixed at construction. The guard therefore checks the size of the buffer before each
read: after each growth, the free part is larger than the whole buffer was.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Final, Protocol, cast

import picows.picows
from picows import WSAutoPingStrategy, WSUpgradeResponse, WSUpgradeResponseWithListener

from fiveways.errors import FivewaysError
from fiveways.transports.unfinished_input import UNAUTHENTICATED, UNFINISHED, UnfinishedInput
from fiveways.transports.websocket import PICOWS_LOG, READ_BUFFER_SIZE, WebSocketLink
from fiveways.transports.websocket_handover import feed_bytes
from fiveways.wire.limits import Limits

_INITIAL_BUFFER: Final = READ_BUFFER_SIZE - 256
"""Usable bytes of a new read buffer."""
_COUNTED_ABOVE: Final = 4 * _INITIAL_BUFFER
"""Buffers up to this size are not counted: reads that filled them exactly may have hidden a growth."""
_GROWTH_THRESHOLD: Final = 0.9
"""Used part of a buffer above which picows doubles it."""
_MAX_HEADER: Final = 14
_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class UnsupportedPicows(FivewaysError):
    """The installed version of picows has an unsupported interface."""


class HasReadGuard(Protocol):
    """Protocol of picows with a guard."""

    guard: "ReadGuard"
    listener: WebSocketLink | None
    """None until the end of the handshake."""

    def shrink(self) -> None:
        """Release memory if the buffer is empty."""


class ReadGuard:
    """Limit check for the read buffer of one connection."""

    __slots__ = ("_buffer_size", "_held", "_is_ending", "_limits", "_unfinished", "unchecked_up_to")

    def __init__(self, limits: Limits, unfinished: UnfinishedInput) -> None:
        self._limits = limits
        self._unfinished = unfinished
        self.unchecked_up_to = 0
        """No check is needed while the free part of the buffer is at most this large."""
        self._buffer_size = _INITIAL_BUFFER
        """Size of the buffer; exact from twice `_COUNTED_ABOVE` on."""
        self._held = 0
        self._is_ending = False

    def check(self, view: memoryview, protocol: "HasReadGuard") -> memoryview:
        """Return the part of the free buffer for the next read; close the connection at a limit."""
        link = protocol.listener
        if link is None:
            return view
        while self._buffer_size < len(view):
            self._buffer_size *= 2
        self.unchecked_up_to = _INITIAL_BUFFER if link.is_admitted and self._buffer_size == _INITIAL_BUFFER else 0
        if not self._is_ending:
            if not link.is_admitted and self._buffer_size > _buffer_size_for(self._limits.max_unauthenticated):
                self._schedule_close(1009, "a frame is too large before authentication", UNAUTHENTICATED, protocol)
            elif self._buffer_size > max(_COUNTED_ABOVE, self._held):
                self._unfinished.grown_buffers.discard(protocol)  # the next read fills it, even if it is empty now
                if self._unfinished.count(self._buffer_size - self._held, link.remote):
                    self._held = self._buffer_size
                    self._unfinished.grown_buffers.add(protocol)
                else:
                    self._schedule_close(1013, "too much unfinished input; try again later", UNFINISHED, protocol)
            if self._buffer_size > _COUNTED_ABOVE:
                link.note_partial_frame(self._buffer_size - len(view))
        # One byte less than the free part, so that its size reveals each growth. libuv does not allow pausing here:
        # the last bytes of a connection that is being closed are read one by one.
        return view[:1] if self._is_ending else view[:-1]

    def _schedule_close(self, code: int, text: str, limit: str, protocol: "HasReadGuard") -> None:
        self._is_ending = True
        asyncio.get_running_loop().call_soon(_close_by_limit, protocol, code, text, limit)

    def release(self, protocol: "HasReadGuard") -> None:
        """Stop counting this buffer."""
        self._unfinished.grown_buffers.discard(protocol)
        if self._held and protocol.listener is not None:
            self._unfinished.count(-self._held, protocol.listener.remote)
            self._held = 0

    def shrink(self, protocol: "HasReadGuard", free: int) -> None:
        """Replace a protocol with an empty, grown buffer by one with a small buffer."""
        link = protocol.listener
        # `free` exceeds `_buffer_size` while frames of the read that has just grown the buffer are delivered.
        if link is None or free != self._buffer_size or self._is_ending or link.is_closing:
            return
        successor = server_protocol(lambda: link, self._limits, self._unfinished)
        socket = _SilentTransport(link.socket)
        successor.connection_made(socket)  # type: ignore[arg-type]
        feed_bytes(link.socket, successor, memoryview(_HANDSHAKE))
        socket.is_silent = False
        link.socket.set_protocol(successor)
        self.release(protocol)


@cache
def _buffer_size_for(frame_size: int) -> int:
    """Return the size of the read buffer that such a frame needs."""
    size = _INITIAL_BUFFER
    while size * _GROWTH_THRESHOLD < frame_size + _MAX_HEADER:
        size *= 2
    return size


def _close_by_limit(protocol: "HasReadGuard", code: int, text: str, limit: str) -> None:
    """Close a connection at a limit; discard its further input."""
    link = protocol.listener
    if link is not None and not link.is_gone:
        link.close_by_limit(code, text, limit)
        protocol.guard.release(protocol)
        link.socket.set_protocol(_Discarding(link))


class _Discarding(asyncio.BufferedProtocol):
    """Protocol that discards the input of a connection that is being closed."""

    _DROPPED: Final = bytearray(1 << 16)

    def __init__(self, link: WebSocketLink) -> None:
        self._link = link

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return self._DROPPED

    def buffer_updated(self, nbytes: int) -> None: ...

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._link.on_ws_disconnected(None)


class _SilentTransport:
    """Transport wrapper that drops writes while `is_silent`: the handshake response was sent by an earlier protocol."""

    def __init__(self, socket: asyncio.Transport) -> None:
        self._socket = socket
        self.is_silent = True

    def write(self, data: bytes) -> None:
        """Write, or drop the handshake response."""
        if not self.is_silent:
            self._socket.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


@cache
def _guarded(base: type[asyncio.BufferedProtocol]) -> Callable[..., "HasReadGuard"]:
    """Return a subclass of a picows protocol with a guard."""
    free_part, lost = base.get_buffer, base.connection_lost

    class GuardedProtocol(base):  # type: ignore[misc, valid-type]
        __slots__ = ("guard",)

        def get_buffer(self, size_hint: int) -> memoryview:
            view: memoryview = free_part(self, size_hint)  # type: ignore[assignment]  # `Buffer` in typeshed
            return view if len(view) <= self.guard.unchecked_up_to else self.guard.check(view, self)

        def connection_lost(self, exc: Exception | None) -> None:
            self.guard.release(self)
            lost(self, exc)

        def shrink(self) -> None:
            self.guard.shrink(self, len(memoryview(free_part(self, -1))))

    return GuardedProtocol


def server_protocol(
    create_link: Callable[[], WebSocketLink], limits: Limits, unfinished: UnfinishedInput, subprotocol: str = ""
) -> asyncio.BufferedProtocol:
    """Return a protocol for a socket on which the upgrade request will be replayed."""
    headers = {"Sec-WebSocket-Protocol": subprotocol} if subprotocol else None

    def listener(_request: object) -> WSUpgradeResponseWithListener:
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(headers), create_link())

    # The order of arguments in ws_create_server of picows; a test opens a connection through it.
    protocol = _guarded(picows.picows.WSProtocol)(  # type: ignore[attr-defined]  # it is not in picows' stubs
        None,  # host and port
        None,  # ws_path
        False,  # is_client_side
        listener,
        PICOWS_LOG,
        True,  # disconnect_on_exception
        10.0,  # websocket_handshake_timeout
        False,  # enable_auto_ping
        0.0,  # auto_ping_idle_timeout
        0.0,  # auto_ping_reply_timeout
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,  # enable_auto_pong
        limits.max_frame,
        None,  # extra_headers
        READ_BUFFER_SIZE,
    )
    protocol.guard = ReadGuard(limits, unfinished)
    return cast("asyncio.BufferedProtocol", protocol)


def check_picows() -> None:
    """Raise `UnsupportedPicows` if the installed picows lacks the WSProtocol that `server_protocol` uses.

    WSProtocol is not a public interface. Without this check the hub would start, and every WebSocket would fail. The
    check needs a running event loop.
    """
    try:
        _check_buffer(server_protocol(_no_link, Limits(), UnfinishedInput(0, 0, lambda _limit, _remote: None)))
    except (AttributeError, TypeError) as exc:
        raise UnsupportedPicows(
            f"the hub cannot use picows {version('picows')} ({exc}); install a version that the package allows: "
            "pip install --upgrade 'fiveways[hub]'"
        ) from exc


def _check_buffer(protocol: asyncio.BufferedProtocol) -> None:
    if len(memoryview(protocol.get_buffer(-1))) != _INITIAL_BUFFER:
        raise TypeError("its read buffer has another size")


def _no_link() -> WebSocketLink:
    raise AssertionError
