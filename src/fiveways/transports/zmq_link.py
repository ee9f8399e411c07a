"""ZeroMQ links: one peer of a port, or the one other end of a client. Each packet is one message."""

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
"""Seconds for the socket to take what was written before a close."""
_MESSAGES_PER_FLUSH: Final = 1024
"""Messages that are written in one go, when some had to wait."""
_HELD_OVERHEAD: Final = 64
"""Bytes that a held message costs beside its own."""


@dataclass(frozen=True, slots=True)
class ZmqLimits:
    """Sizes in bytes, times in seconds."""

    max_text: int = 1 << 20
    """A message; of a longer one a byte more is passed on, which is enough for the conversation to refuse it."""
    max_frame: int = 1 << 22
    """A message that ZeroMQ does not even take: it drops the connection instead."""
    max_links: int = 10_000
    """Peers of one port."""
    high_water: int = 1 << 18
    """Bytes that the socket has not taken yet: above, the link is full; below a quarter of it, it takes more again."""
    max_waiting: int = 1 << 24
    """A writer who goes on though the link is full is cut off here."""
    max_held: int = 1 << 20
    """Bytes from a peer that is not read just now. More is dropped: the others' messages come by the same socket."""
    queue: int = 256
    """Messages for, and from, each peer that ZeroMQ holds besides."""
    idle: float = 300.0
    """A peer that has said nothing for so long is gone."""
    linger: float = 0.5
    """For ZeroMQ to send what it holds, after a close."""


class SocketOwner(Protocol):
    """Who has the socket that a link goes by."""

    def send(self, link: "ZmqLink", payload: bytes | bytearray) -> None:
        """Send one message, or raise zmq.Again if that has to wait, and another ZMQError if the peer is gone."""

    def after_send(self) -> None:
        """Know that something was sent, or tried."""

    def wait_to_send(self, link: "ZmqLink") -> None:
        """Call `flush` when the socket may take more."""

    def pause(self, link: "ZmqLink") -> None:
        """Read nothing more, where the socket has this one link."""

    def resume(self, link: "ZmqLink") -> None:
        """Go on."""

    def leave(self, link: "ZmqLink") -> None:
        """Forget the link; it is over."""


class ZmqLink:
    """One peer. Fulfils `base.Link`. Only texts go this way, as NQ has nothing else."""

    transport = "zmq"

    def __init__(
        self, owner: SocketOwner, routing_id: bytes, remote: str, limits: ZmqLimits, *, is_loopback: bool
    ) -> None:
        self.routing_id = routing_id
        """Who the peer says it is, or what ZeroMQ calls it: see `is_generated`. A client's own, at its end."""
        self.remote = remote
        self.is_loopback = is_loopback
        self.is_full = False
        self.is_alive = True
        self.is_connected = True
        """Whether there is a connection just now; a port cannot know, and says so until the link is lost."""
        self.is_idle_checked = False
        """The owner knows the silent, so that nobody else has to ask for signs of life."""
        self.is_lockstep = False
        """The peer is a REQ socket: it takes one message for each that it sent, and throws others away."""
        self.received_at = 0.0
        """When the peer last said something, by the loop's clock."""
        self.dropped = 0
        """Messages that came while nobody read, and found no room."""
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

    # What the runtime asks for.

    def frame(self, packet: Packet) -> bytes:
        """Return a message with its length before it, which `write` takes off again."""
        if packet.blob is not None:
            raise Unrepresentable("a large attachment cannot go to a ZeroMQ peer")
        return _LENGTH.pack(len(packet.payload)) + packet.payload

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return messages, one after the other."""
        return b"".join(map(self.frame, packets))

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Refuse: a message goes whole, or not at all."""
        raise Unrepresentable("a message to a ZeroMQ peer cannot go in pieces")

    def write(self, data: bytes) -> None:
        """Send messages; what the socket does not take waits here."""
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
            self.lose("more was written than the peer takes")

    def unsent_bytes(self) -> int:
        """Return how much the socket has not taken yet; what ZeroMQ holds cannot be seen."""
        return len(self._backlog)

    def pause_reading(self) -> None:
        """Hand over nothing more."""
        if not (self._is_paused or self._is_gone):
            self._is_paused = True
            self._owner.pause(self)

    def resume_reading(self) -> None:
        """Go on, with what came meanwhile."""
        if self._is_paused and not self._is_gone:
            self._is_paused = False
            self._owner.resume(self)
            if self._held:
                self._loop.call_soon(self._deliver_held)

    def discard_incoming(self) -> None:
        """Keep it: no attachment comes by itself."""

    def ping(self) -> None:
        """Say that the peer is alive where the owner knows better; else it must be asked in its protocol's words."""
        self.is_alive = self.is_alive or (self.is_idle_checked and not self._is_gone)

    def close(self, code: int = 1000, text: str = "") -> None:
        """Forget the peer when the socket has taken what was written. If it speaks again, it is a new link."""
        if self._is_closing or self._is_gone:
            return
        self._is_closing = True
        self._reason = text
        if self._backlog:
            self._timer = self._loop.call_later(_CLOSE_WAIT, self.lose, text)
        else:
            self.lose(text)

    def abort(self) -> None:
        """Forget the peer at once."""
        self.lose("")

    # What the owner of the socket tells.

    def attach(self, receiver: Receiver) -> None:
        """Let `receiver` have what comes."""
        self._receiver = receiver

    @property
    def is_gone(self) -> bool:
        """Whether the link is over."""
        return self._is_gone

    @property
    def is_closing(self) -> bool:
        """Whether it ends in good order, or has: what was written is still to go out."""
        return self._is_closing

    def receive(self, payload: bytes) -> None:
        """Know that a message has come."""
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
        """Send what waits; say whether some still does."""
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
        """End. The receiver is told in a later pass, as with a socket."""
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

    # Inside.

    def _send_messages(self, data: bytes | bytearray, most: int | None = None) -> int:
        """Send the messages in `data`; return where those begin that the socket did not take."""
        at, end, count = 0, len(data), 0
        post = self._owner.send
        try:
            while at < end and count != most:
                start = at + _HEADER
                stop = start + _LENGTH.unpack_from(data, at)[0]
                post(self, data[start:stop])
                at = stop
                count += 1
        except zmq.Again:
            pass
        except zmq.ZMQError as exc:
            self.lose("the peer is gone" if exc.errno == zmq.EHOSTUNREACH else str(exc))
        self._owner.after_send()
        return at

    def _deliver_held(self) -> None:
        """Hand over what was held, until reading is paused again."""
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
    """Return whether ZeroMQ made up a routing id, as it does for peers that chose none."""
    return routing_id[:1] == b"\0"


def apply_limits(socket: Socket, limits: ZmqLimits) -> None:
    """Set the bounds that the sockets of both ends have in common.

    ZeroMQ's heartbeats are not among them: if one is due where a connection has ended before all that came by it could
    be handed over, libzmq aborts the process (its issue 4364). At a port that is the case, for one, when a peer goes
    whose routing id somebody else has taken. Both ends are on one machine, where the system tells of every end.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, limits.max_frame)
    socket.setsockopt(zmq.SNDHWM, limits.queue)
    socket.setsockopt(zmq.RCVHWM, limits.queue)
    socket.setsockopt(zmq.LINGER, milliseconds(limits.linger))
