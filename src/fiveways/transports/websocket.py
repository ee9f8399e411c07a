"""WebSocket links for server and client. picows does the handshake and parses frames; links write frames in batches."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
)

from fiveways.transports import websocket_frames
from fiveways.transports.address import describe_peer
from fiveways.transports.base import Receiver, SpoolFactory
from fiveways.transports.unfinished_input import UNAUTHENTICATED, UNFINISHED, UnfinishedInput
from fiveways.transports.websocket_fragments import PROGRESS_STEP, FragmentedMessage
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
HIGH_WATER: Final = 1 << 18
"""Unsent bytes above which the link is full; below a quarter of it the link is writable again."""
_LINGER: Final = 2.0
"""Seconds for the peer to answer a close frame and to read the data before it."""
_MAX_REASON: Final = 120
_PROTOCOL_ERROR: Final = 1002
_NOT_UTF8: Final = 1007
_TOO_LARGE: Final = 1009
_OVERLOADED: Final = 1013
READ_BUFFER_SIZE: Final = 1 << 14
"""Bytes of a read buffer. A quarter would do for an idle peer, but costs a busy one four loop iterations for one."""

# picows logs every connection and every invalid frame; relevant events are logged by Fiveways.
_log = logging.getLogger("fiveways.websocket")
PICOWS_LOG: Final = logging.getLogger("fiveways.picows")
PICOWS_LOG.setLevel(logging.CRITICAL)


class WebSocketLink(WSListener):
    """WebSocket connection of a server or a client. Implements `base.Link`."""

    # Instances of a Cython class have no inline values, so CPython specializes attribute access only for slots.
    __slots__ = (
        "_closing",
        "_create_receiver",
        "_fragments",
        "_frame",
        "_gone",
        "_held",
        "_is_client",
        "_limits",
        "_linger",
        "_on_message",
        "_reason",
        "_receiver",
        "_reported_bytes",
        "_socket",
        "_spools",
        "_unfinished",
        "_ws",
        "has_opened",
        "is_alive",
        "is_full",
        "is_loopback",
        "remote",
    )

    transport = "ws"

    def __init__(
        self,
        receive: Callable[["WebSocketLink"], Receiver],
        limits: Limits,
        spools: SpoolFactory | None,
        *,
        is_client: bool = False,
        unfinished: UnfinishedInput | None = None,
    ) -> None:
        """Initialize.

        Args:
            receive: Returns the receiver of the opened link.
            limits: Limits for frames and messages.
            spools: Storage for large binary messages. None: no message may exceed the limit for text.
            is_client: Whether to mask frames.
            unfinished: Counter for incomplete input. None: the peer is trusted.
        """
        self.remote = ""
        self.is_loopback = False
        self.is_full = False
        self.is_alive = True
        self._create_receiver = receive
        self._receiver: Receiver
        self._limits = limits
        self._spools = spools
        self._is_client = is_client
        self._frame = websocket_frames.client_frame if is_client else websocket_frames.server_frame
        self._fragments: FragmentedMessage | None = None
        self._unfinished = unfinished
        self._held = 0
        """Bytes of a fragmented message counted as unfinished input."""
        self._reported_bytes = 0
        """Bytes of an incomplete frame that were reported to the receiver."""
        self.has_opened = False
        self._closing = False
        self._gone = False
        self._reason = ""
        self._linger: asyncio.TimerHandle | None = None

    # Callbacks of picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Create the receiver after the handshake."""
        self._ws = transport
        if self.has_opened:
            return  # `ReadGuard.shrink` replaced the protocol of this connection
        self.has_opened = True
        self._socket = transport.underlying_transport
        self._socket.set_write_buffer_limits(HIGH_WATER, HIGH_WATER // 4)
        self.remote, self.is_loopback = describe_peer(self._socket)
        self._receiver = self._create_receiver(self)
        self._on_message = self._receiver.received if self._unfinished is None else self._on_unauthenticated

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        """Deliver a message; most are one text frame. Exceptions are logged and close this link."""
        self.is_alive = True
        try:
            # picows ignores the reserved bits; without a negotiated extension they must be 0 (RFC 6455, 5.2).
            is_usual = frame.fin and self._fragments is None and not self._closing
            if is_usual and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
                kind, received = frame.msg_type, self._on_message
                if kind is _TEXT:
                    payload = frame.get_payload_as_bytes()
                    if payload.isascii() or _is_utf8(payload):
                        received(Packet(payload))
                        return
                elif kind is _BINARY:
                    received(Packet(frame.get_payload_as_bytes(), is_text=False))
                    return
            self._on_control_or_fragment(frame)
        except Exception:
            _log.exception("cannot handle a message remote=%s", self.remote)
            raise

    def _on_unauthenticated(self, packet: Packet) -> None:
        """Deliver a message that arrived before authentication, within the limit for such messages."""
        if len(packet.payload) > self._limits.max_unauthenticated and not self.is_admitted:
            self._refuse_large()
            return
        self._receiver.received(packet)
        if self.is_admitted:
            self._on_message = self._receiver.received

    def _on_control_or_fragment(self, frame: WSFrame) -> None:
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(_PROTOCOL_ERROR, "a reserved bit is set without a negotiated extension")
        elif kind is WSMsgType.CLOSE:
            self._on_close(frame)
        elif self._closing:
            return
        elif kind is WSMsgType.PING:
            if not self.is_full:  # a slow consumer gets no pong
                self._ws.send_pong(frame.get_payload_as_bytes())
        elif kind in (_TEXT, _BINARY, _CONTINUATION):
            self._on_fragment(kind, frame)

    def _on_close(self, frame: WSFrame) -> None:
        if not self._closing:
            self._reason = frame.get_close_reason() or ""
            self._ws.send_close(frame.get_close_code() or WSCloseCode.OK)
            self._closing = True
            self._linger = asyncio.get_running_loop().call_later(_LINGER, self.abort)
        self._ws.disconnect()

    def _on_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        if (self._fragments is None) is (kind is _CONTINUATION):
            self.close(_PROTOCOL_ERROR, "fragments of two messages are interleaved")
            return
        if self._fragments is None:
            is_text = kind is _TEXT
            # Before its first message, a peer may not use the disk.
            spools = None if is_text or not getattr(self._receiver, "has_begun", True) else self._spools
            self._fragments = FragmentedMessage(is_text, self._limits.max_text, spools)
        incoming = self._fragments
        if incoming.add(frame.get_payload_as_bytes()) and not self._receiver.progressed(incoming.size):
            incoming.discard()
        if self._unfinished is not None and not self._has_room(incoming):
            self._fragments = None
            self._count_unfinished(0)
            return
        if frame.fin:
            self._fragments = None
            self._count_unfinished(0)
            packet = incoming.finish()
            # A too long text was truncated, perhaps within a character; the receiver refuses it for its size.
            if packet.is_text and len(packet.payload) <= self._limits.max_text and not _is_utf8(packet.payload):
                self.close(_NOT_UTF8, "a text is not valid UTF-8")
            else:
                self._on_message(packet)

    def _has_room(self, incoming: FragmentedMessage) -> bool:
        """Return whether a fragmented message is within its limits; close the connection if not."""
        if incoming.size > self._limits.max_unauthenticated and not self.is_admitted:
            self._refuse_large()
            return False
        if not self._count_unfinished(incoming.held):
            self.close_by_limit(_OVERLOADED, "too much unfinished input; try again later", UNFINISHED)
            return False
        return True

    def _count_unfinished(self, size: int) -> bool:
        """Count the held bytes of a fragmented message; return False, and count nothing, if a limit is reached."""
        if self._unfinished is None or size == self._held or self._unfinished.count(size - self._held, self.remote):
            self._held = size
            return True
        return False

    def _refuse_large(self) -> None:
        self.close_by_limit(_TOO_LARGE, "a message is too large before authentication", UNAUTHENTICATED)

    def close_by_limit(self, code: int, text: str, limit: str) -> None:
        """Close the connection because of a limit, and report the refusal."""
        if self._unfinished is not None and not self._closing:
            self._unfinished.on_refused(limit, self.remote)
        self.close(code, text)

    def on_ws_disconnected(self, _transport: WSTransport | None) -> None:
        """Release all resources and notify the receiver."""
        self._gone = True
        self._fragments = None
        self._count_unfinished(0)
        if self._linger is not None:
            self._linger.cancel()
        self._receiver.lost(self._reason)
        # Each of these attributes refers to this link: deleting them avoids a reference cycle.
        del self._receiver, self._on_message, self._ws, self._socket

    def pause_writing(self) -> None:
        """Set `is_full`: the socket buffer is above its high-water mark."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Clear `is_full` and notify the receiver."""
        self.is_full = False
        self._receiver.writable()

    # For the server's protocol.

    @property
    def is_admitted(self) -> bool:
        """Whether the peer is authenticated, or admitted as anonymous."""
        return bool(getattr(self._receiver, "is_admitted", True))

    @property
    def is_gone(self) -> bool:
        """Whether the connection is lost."""
        return self._gone

    @property
    def is_closing(self) -> bool:
        """Whether the connection is lost or being closed."""
        return self._gone or self._closing

    @property
    def socket(self) -> asyncio.Transport:
        """The socket of the connection."""
        return self._socket

    # Methods of base.Link.

    def frame(self, packet: Packet) -> bytes:
        """Return a message as one frame."""
        if packet.is_text and not self._is_client:
            return websocket_frames.server_text(packet.payload)
        return self._frame(packet.payload, websocket_frames.TEXT if packet.is_text else websocket_frames.BINARY)

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return each message as one frame."""
        if not self._is_client:
            return websocket_frames.server_frames(packets)
        if all([packet.is_text for packet in packets]):  # noqa: C419  faster than a generator
            return websocket_frames.client_texts([packet.payload for packet in packets])
        return b"".join([self.frame(packet) for packet in packets])

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Return a fragment of a binary message as a frame."""
        return self._frame(piece, websocket_frames.BINARY, first=first, last=last)

    def write(self, data: bytes) -> None:
        """Write frames."""
        if not (self._gone or self._closing):
            self._socket.write(data)

    def unsent_bytes(self) -> int:
        """Return the number of bytes in the socket buffer."""
        return 0 if self._gone else int(self._socket.get_write_buffer_size())

    def pause_reading(self) -> None:
        """Stop reading from the peer; TCP flow control then slows it down."""
        if not self._gone:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read."""
        if not self._gone:
            self._socket.resume_reading()

    def discard_incoming(self) -> None:
        """Discard an incomplete fragmented binary message."""
        if self._fragments is not None:
            self._fragments.discard()
            self._count_unfinished(self._fragments.held)

    def note_partial_frame(self, size: int) -> None:
        """Report progress of an incomplete frame with `size` bytes in the read buffer."""
        if size < self._reported_bytes:
            self._reported_bytes = 0
        if size >= self._reported_bytes + PROGRESS_STEP:
            self._reported_bytes = size
            self._receiver.progressed(size if self._fragments is None else size + self._fragments.size)

    def ping(self) -> None:
        """Send a ping."""
        if not (self._gone or self._closing):
            self._ws.send_ping()

    def close(self, code: int = 1000, text: str = "") -> None:
        """Send a close frame, and drain the input: closing a socket with unread data would discard the last frames."""
        if self._gone or self._closing:
            return
        self._closing = True
        self._reason = self._reason or text
        self._ws.send_close(WSCloseCode(code), text.encode()[:_MAX_REASON].decode(errors="ignore"))
        self._socket.resume_reading()
        self._linger = asyncio.get_running_loop().call_later(_LINGER, self.abort)

    def abort(self) -> None:
        """Close without a close frame."""
        if not self._gone:
            self._ws.disconnect(graceful=False)


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
