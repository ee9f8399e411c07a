"""WebSocket links as server: a socket whose upgrade request was read elsewhere is handed over to picows.

picows keeps an unfinished frame in its read buffer, doubles the buffer when more than 90% of it are in use, and never
makes it smaller. It takes the limit of a frame only when it is made. So the size of the buffer is checked before each
read: after each growth, the free part of it is larger than the whole buffer was.
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
"""What picows uses of a new read buffer."""
_COUNTED_ABOVE: Final = 4 * _INITIAL_BUFFER
"""A buffer of this size is not counted: up to here, reads that filled it exactly may have hidden a growth."""
_GROWTH_THRESHOLD: Final = 0.9
"""The part of a buffer that may be in use before it grows."""
_MAX_HEADER: Final = 14
_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class UnsupportedPicows(FivewaysError):
    """The installed picows has another interface than the one that the hub uses."""


class HasReadGuard(Protocol):
    """A protocol of picows with a guard."""

    guard: "ReadGuard"
    listener: WebSocketLink | None
    """None until the handshake is over."""

    def shrink(self) -> None:
        """Return memory if nothing is in the buffer."""


class ReadGuard:
    """Watches the read buffer of one connection."""

    __slots__ = ("_buffer_size", "_held", "_is_ending", "_limits", "_unfinished", "unchecked_up_to")

    def __init__(self, limits: Limits, unfinished: UnfinishedInput) -> None:
        self._limits = limits
        self._unfinished = unfinished
        self.unchecked_up_to = 0
        """No check is needed as long as the free part of the buffer is not larger."""
        self._buffer_size = _INITIAL_BUFFER
        """Of the buffer; exact from twice `_UNCOUNTED` on."""
        self._held = 0
        self._is_ending = False

    def check(self, view: memoryview, protocol: "HasReadGuard") -> memoryview:
        """Return which part of the free buffer the next read may fill; close the connection at a limit."""
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
                self._unfinished.grown_buffers.discard(protocol)  # it is being read to, even if it is empty
                if self._unfinished.count(self._buffer_size - self._held, link.remote):
                    self._held = self._buffer_size
                    self._unfinished.grown_buffers.add(protocol)
                else:
                    self._schedule_close(
                        1013, "too much input has not come completely; try again later", UNFINISHED, protocol
                    )
            if self._buffer_size > _COUNTED_ABOVE:
                link.note_partial_frame(self._buffer_size - len(view))
        # One byte less than there is room for, so that the free part tells of each growth. To stop reading here is not
        # allowed in libuv, so the last bytes of a connection that is to be closed come one by one.
        return view[:1] if self._is_ending else view[:-1]

    def _schedule_close(self, code: int, text: str, limit: str, protocol: "HasReadGuard") -> None:
        self._is_ending = True
        asyncio.get_running_loop().call_soon(_close_by_limit, protocol, code, text, limit)

    def release(self, protocol: "HasReadGuard") -> None:
        """Count nothing more of this buffer."""
        self._unfinished.grown_buffers.discard(protocol)
        if self._held and protocol.listener is not None:
            self._unfinished.count(-self._held, protocol.listener.remote)
            self._held = 0

    def shrink(self, protocol: "HasReadGuard", free: int) -> None:
        """Replace the protocol by one with a small buffer, if all of its own is free."""
        link = protocol.listener
        # More is free than `_size` when the buffer has grown by the read whose frames are being passed on right now.
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
def _buffer_size_for(frame: int) -> int:
    """Return the size of the read buffer in which such a frame fits."""
    size = _INITIAL_BUFFER
    while size * _GROWTH_THRESHOLD < frame + _MAX_HEADER:
        size *= 2
    return size


def _close_by_limit(protocol: "HasReadGuard", code: int, text: str, limit: str) -> None:
    """Close a connection; what still comes is not kept."""
    link = protocol.listener
    if link is not None and not link.is_gone:
        link.close_by_limit(code, text, limit)
        protocol.guard.release(protocol)
        link.socket.set_protocol(_Discarding(link))


class _Discarding(asyncio.BufferedProtocol):
    """Reads the rest of a connection that is closed, and drops it."""

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
    """A socket on which nothing is written at first: the handshake was answered by an earlier protocol."""

    def __init__(self, socket: asyncio.Transport) -> None:
        self._socket = socket
        self.is_silent = True

    def write(self, data: bytes) -> None:
        """Write, or drop what is part of the handshake."""
        if not self.is_silent:
            self._socket.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


@cache
def _guarded(base: type[asyncio.BufferedProtocol]) -> Callable[..., "HasReadGuard"]:
    """Return a class of picows' protocols with a guard."""
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
    make: Callable[[], WebSocketLink], limits: Limits, unfinished: UnfinishedInput, subprotocol: str = ""
) -> asyncio.BufferedProtocol:
    """Return what takes over a socket whose upgrade request is about to be replayed."""
    headers = {"Sec-WebSocket-Protocol": subprotocol} if subprotocol else None

    def listener(_request: object) -> WSUpgradeResponseWithListener:
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(headers), make())

    # The order of picows' own ws_create_server; a test opens a connection through it.
    made = _guarded(picows.picows.WSProtocol)(  # type: ignore[attr-defined]  # it is not in picows' stubs
        None,
        None,
        False,
        listener,
        PICOWS_LOG,
        True,
        10.0,
        False,
        0.0,
        0.0,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,
        limits.max_frame,
        None,
        READ_BUFFER_SIZE,
    )
    made.guard = ReadGuard(limits, unfinished)
    return cast("asyncio.BufferedProtocol", made)


def check_picows() -> None:
    """Raise `UnsupportedPicows` if `server_protocol` cannot work: picows does not promise to keep its WSProtocol.

    Without this the hub would start, and every WebSocket would fail. It needs a running event loop.
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
