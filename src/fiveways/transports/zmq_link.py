"""ZeroMQ links: a peer of a port, or the server of a client. Each packet is one ZeroMQ message."""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import zmq

from fiveways.errors import Unrepresentable
from fiveways.transports.base import Receiver
from fiveways.transports.zmq_socket_watcher import Socket, milliseconds
from fiveways.wire.packet import Packet

_LENGTH: Final = struct.Struct(">I")
_HEADER: Final = _LENGTH.size
_CLOSE_WAIT: Final = 2.0
"""Seconds for the socket to accept all written messages before a close."""
_MESSAGES_PER_FLUSH: Final = 1024
"""Messages of the backlog that are sent in one batch."""
_HELD_OVERHEAD: Final = 64
"""Estimated memory overhead of a held message, in bytes."""


@dataclass(frozen=True, slots=True)
class ZmqLimits:
    """Limits of ZeroMQ links. Sizes are in bytes, times in seconds."""

    max_text: int = 1 << 20
    """Maximum size of a message. A longer one is truncated to one byte more, so that the conversation refuses it."""
    max_frame: int = 1 << 22
    """Message size above which ZeroMQ closes the connection."""
    max_links: int = 10_000
    """Peers of one port."""
    high_water: int = 1 << 18
    """Unsent bytes above which the link is full; below a quarter of it the link is writable again."""
    max_waiting: int = 1 << 24
    """Unsent bytes at which the link is closed if its writer ignores `is_full`."""
    max_held: int = 1 << 20
    """Received bytes held while reading is paused. Further messages are dropped: all peers share one socket."""
    queue: int = 256
    """Messages that ZeroMQ queues in addition for each peer and direction."""
    idle: float = 300.0
    """Silence after which a peer is considered gone."""
    linger: float = 0.5
    """Time for ZeroMQ to send queued messages after a close."""


class SocketOwner(Protocol):
    """Owner of the socket that a link uses."""

    def send(self, link: "ZmqLink", payload: bytes | bytearray) -> None:
        """Send one message. Raises zmq.Again if the socket is full, another ZMQError if the peer is gone."""

    def after_send(self) -> None:
        """Handle that a message was sent or an attempt failed."""

    def wait_to_send(self, link: "ZmqLink") -> None:
        """Call `ZmqLink.flush` when the socket may accept more."""

    def pause(self, link: "ZmqLink") -> None:
        """Stop reading if the link is the only one of the socket."""

    def resume(self, link: "ZmqLink") -> None:
        """Continue to read."""

    def leave(self, link: "ZmqLink") -> None:
        """Remove a closed link."""


class ZmqLink:
    """Link to one peer. Implements `base.Link`. It carries text only, since NQ has no binary messages."""

    transport = "zmq"

    def __init__(
        self, owner: SocketOwner, routing_id: bytes, remote: str, limits: ZmqLimits, *, is_loopback: bool
    ) -> None:
        self.routing_id = routing_id
        """Routing id of the peer, chosen by it or generated (`is_generated`). At a client: its own routing id."""
        self.remote = remote
        self.is_loopback = is_loopback
        self.is_full = False
        self.is_alive = True
        self.is_connected = True
        """Whether there is a connection. A port cannot know this and reports True until the link is lost."""
        self.is_idle_checked = False
        """The owner drops idle peers, so no other keepalive is needed."""
        self.is_lockstep = False
        """The peer is a REQ socket: it accepts one message per request and discards others."""
        self.received_at = 0.0
        """Time of the last received message, by the loop's clock."""
        self.dropped = 0
        """Messages dropped because reading was paused and `max_held` reached."""
        self._owner = owner
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._backlog = bytearray()
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_paused = False
        self._is_closing = False
        self._is_gone = False
        self._reason: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Methods of base.Link.

    def frame(self, packet: Packet) -> bytes:
        """Return a message with a length prefix, which `write` removes."""
        if packet.blob is not None:
            raise Unrepresentable("a ZeroMQ peer cannot receive a large attachment")
        return _LENGTH.pack(len(packet.payload)) + packet.payload

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several length-prefixed messages."""
        return b"".join(map(self.frame, packets))

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Raise Unrepresentable: ZeroMQ messages are not fragmented."""
        raise Unrepresentable("a message to a ZeroMQ peer cannot be fragmented")

    def write(self, data: bytes) -> None:
        """Send messages; keep those that the socket does not accept."""
        if self._is_closing or self._is_gone:
            return
        at = 0 if self._backlog else self._send_messages(data)
        if at == len(data) or self._is_gone:
            return
        if not self._backlog:
            self._owner.wait_to_send(self)
        self._backlog += memoryview(data)[at:]
        waiting = len(self._backlog)
        self.is_full = self.is_full or waiting > self._limits.high_water
        if waiting > self._limits.max_waiting:
            self.lose("the peer does not read what was written to it")

    def unsent_bytes(self) -> int:
        """Return the number of bytes that the socket has not accepted; the queue of ZeroMQ is not visible."""
        return len(self._backlog)

    def pause_reading(self) -> None:
        """Stop delivering messages."""
        if not (self._is_paused or self._is_gone):
            self._is_paused = True
            self._owner.pause(self)

    def resume_reading(self) -> None:
        """Continue to deliver, beginning with held messages."""
        if self._is_paused and not self._is_gone:
            self._is_paused = False
            self._owner.resume(self)
            if self._held:
                self._loop.call_soon(self._deliver_held)

    def discard_incoming(self) -> None:
        """Do nothing: NQ attachments arrive within the message."""

    def ping(self) -> None:
        """Mark the peer as alive if the owner checks for idle peers; else NQ must ping it."""
        self.is_alive = self.is_alive or (self.is_idle_checked and not self._is_gone)

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close after the socket has accepted all written messages. A later message of the peer opens a new link."""
        if self._is_closing or self._is_gone:
            return
        self._is_closing = True
        self._reason = text
        if self._backlog:
            self._timer = self._loop.call_later(_CLOSE_WAIT, self.lose, text)
        else:
            self.lose(text)

    def abort(self) -> None:
        """Close at once."""
        self.lose("")

    # Methods for the owner of the socket.

    def attach(self, receiver: Receiver) -> None:
        """Set the receiver."""
        self._receiver = receiver

    @property
    def is_gone(self) -> bool:
        """Whether the link is closed or lost."""
        return self._is_gone

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called: the socket may still send written messages."""
        return self._is_closing

    def receive(self, payload: bytes) -> None:
        """Deliver or hold a received message."""
        self.is_alive = True
        if self._is_closing or self._is_gone or self._receiver is None:
            return
        if not (self._is_paused or self._held):
            self._receiver.received(Packet(payload))
            return
        size = len(payload) + _HELD_OVERHEAD
        if self._held_bytes + size > self._limits.max_held:
            self.dropped += 1
            return
        self._held.append(payload)
        self._held_bytes += size

    def flush(self) -> bool:
        """Send pending messages; return whether some are left."""
        backlog = self._backlog
        if self._is_gone or not backlog:
            return False
        at = self._send_messages(backlog, _MESSAGES_PER_FLUSH)
        if self._is_gone:
            return False
        del backlog[:at]
        if self.is_full and len(backlog) < self._limits.high_water // 4:
            self.is_full = False
            self._loop.call_soon(self._notify_writable)
        if self._is_closing and not backlog:
            self.lose(self._reason or "")
        if backlog and at:
            self._owner.wait_to_send(self)
        return bool(backlog)

    def lose(self, reason: str) -> None:
        """Close the link. The receiver is notified in a later event loop iteration, as with a socket."""
        if self._is_gone:
            return
        self._is_gone = True
        self.is_full = self.is_connected = False
        self._reason = reason
        self._backlog = bytearray()
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._owner.leave(self)
        self._loop.call_soon(self._notify_lost)

    # Internals.

    def _send_messages(self, data: bytes | bytearray, max_messages: int | None = None) -> int:
        """Send the messages in `data`; return the offset of the first one that the socket did not accept."""
        at, end, count = 0, len(data), 0
        send = self._owner.send
        try:
            while at < end and count != max_messages:
                start = at + _HEADER
                stop = start + _LENGTH.unpack_from(data, at)[0]
                send(self, data[start:stop])
                at = stop
                count += 1
        except zmq.Again:
            pass
        except zmq.ZMQError as exc:
            self.lose("the peer is not connected" if exc.errno == zmq.EHOSTUNREACH else str(exc))
        self._owner.after_send()
        return at

    def _deliver_held(self) -> None:
        """Deliver held messages until reading is paused."""
        while self._held and not (self._is_paused or self._is_closing or self._is_gone):
            payload = self._held.popleft()
            self._held_bytes -= len(payload) + _HELD_OVERHEAD
            if self._receiver is not None:
                self._receiver.received(Packet(payload))

    def _notify_writable(self) -> None:
        if not (self.is_full or self._is_closing or self._is_gone) and self._receiver is not None:
            self._receiver.writable()

    def _notify_lost(self) -> None:
        if self._receiver is not None:
            self._receiver.lost(self._reason or "")


def is_generated(routing_id: bytes) -> bool:
    """Return whether ZeroMQ generated the routing id because the peer set none."""
    return routing_id[:1] == b"\0"


def apply_limits(socket: Socket, limits: ZmqLimits) -> None:
    """Set the limits that the sockets of both ends have in common.

    ZeroMQ's heartbeats are not enabled: libzmq aborts the process if one is due on a connection that ended before all
    its messages were read (libzmq issue 4364). At a port this happens, for example, when a peer leaves and another one
    has taken over its routing id. Both ends are on one machine, where the system reports the end of each connection.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, limits.max_frame)
    socket.setsockopt(zmq.SNDHWM, limits.queue)
    socket.setsockopt(zmq.RCVHWM, limits.queue)
    socket.setsockopt(zmq.LINGER, milliseconds(limits.linger))
