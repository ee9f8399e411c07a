"""Listening ZeroMQ port: one ROUTER socket, and a link for each peer."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

import zmq

from fiveways.transports.address import is_loopback
from fiveways.transports.base import Receiver
from fiveways.transports.zmq_link import ZmqLimits, ZmqLink, apply_limits, is_generated
from fiveways.transports.zmq_socket_watcher import Context, Socket, SocketWatcher, milliseconds

DEFAULT_PORT: Final = 7555
_NOBLOCK: Final = zmq.NOBLOCK
_MORE: Final = zmq.SNDMORE | zmq.NOBLOCK
_IDLE_CHECKS: Final = 4
"""Checks for idle peers within the idle time."""
_MAX_TRIES: Final = 64
"""Links with pending messages that are tried in one batch …"""
_MAX_FAILURES: Final = 16
"""… and failed attempts after which the batch ends."""


class ZmqPort:
    """Port for DEALER peers, which send [payload], and REQ peers, which send [empty, payload].

    Responses have the shape of the peer's messages. A routing id is chosen by the peer and proves nothing: a peer with
    the same id replaces the earlier one, even one with a generated id, because ZeroMQ does not reserve those.
    """

    def __init__(
        self,
        accept: Callable[[ZmqLink, bytes], Receiver],
        *,
        limits: ZmqLimits = ZmqLimits(),  # noqa: B008
        refusal: bytes = b"",
        context: Context | None = None,
    ) -> None:
        """Initialize.

        Args:
            accept: Gets a new link and the routing id of its peer, and returns the receiver.
            limits: Limits of the port and its links.
            refusal: Message for peers beyond `max_links`.
            context: ZeroMQ context of the socket. Default: the context of the process.
        """
        self.refused = 0
        """Messages of peers beyond `max_links`."""
        self.malformed = 0
        """Messages with too many parts."""
        self._accept = accept
        self._limits = limits
        self._refusal = refusal
        self._context: Context = context or zmq.Context.instance()
        self._loop = asyncio.get_running_loop()
        self._links: dict[bytes, ZmqLink] = {}
        self._waiting_to_send: dict[ZmqLink, None] = {}
        self._skips_parts = False
        self._is_loopback = False
        self._socket: Socket | None = None
        self._watch: SocketWatcher
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int = DEFAULT_PORT) -> tuple[str, int]:
        """Bind and return the address; OSError if that fails. An empty host is all interfaces, port 0 any free port."""
        if self._socket is not None:
            raise OSError("this ZeroMQ port is already open")
        socket = self._context.socket(zmq.ROUTER)
        apply_limits(socket, self._limits)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.IPV6, int(":" in host))
        bind_host = f"[{host}]" if ":" in host else host or "*"
        try:
            socket.bind(f"tcp://{bind_host}:{port or '*'}")
        except zmq.ZMQError as exc:
            socket.close(0)
            raise OSError(exc.errno, f"cannot listen on {host}:{port}: {exc.strerror}") from None
        address, _, number = _text(socket.getsockopt(zmq.LAST_ENDPOINT)).removeprefix("tcp://").rpartition(":")
        address = address.strip("[]")
        self._is_loopback = is_loopback(address)
        self._socket = socket
        self._socket_recv, self._socket_send = socket.recv, socket.send
        self._watch = SocketWatcher(socket, self._read, self._flush_waiting)
        self._timer = self._loop.call_later(self._limits.idle / _IDLE_CHECKS, self._drop_idle)
        return address, int(number)

    async def close(self) -> None:
        """Stop listening. All links are lost; ZeroMQ sends queued messages for up to `linger` seconds."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.flush()
            link.lose("the port is closed")
        self._watch.close()
        socket.close(milliseconds(self._limits.linger))
        await asyncio.sleep(0)

    def connections(self) -> int:
        """Return the number of peers."""
        return len(self._links)

    # Receiving.

    def _read(self) -> None:
        """Read one message. Its payload is read as a frame, which knows about more parts and the peer address."""
        if self._skips_parts:
            self._skips_parts = self._socket_recv(_NOBLOCK, copy=False).more
            return
        routing_id = self._socket_recv(_NOBLOCK)
        frame = self._socket_recv(_NOBLOCK, copy=False)
        is_lockstep = frame.more and not len(frame)
        if is_lockstep:
            frame = self._socket_recv(_NOBLOCK, copy=False)
        if frame.more:
            self._skips_parts = True
            self.malformed += 1
            return
        link = self._links.get(routing_id) or self._admit(routing_id, frame, is_lockstep)
        if link is None:
            return
        link.is_lockstep = is_lockstep
        link.received_at = self._loop.time()
        limit = self._limits.max_text + 1
        link.receive(frame.bytes if len(frame) <= limit else bytes(frame.buffer[:limit]))

    def _admit(self, routing_id: bytes, frame: zmq.Frame, is_lockstep: bool) -> ZmqLink | None:
        link = ZmqLink(self, routing_id, _remote(routing_id, frame), self._limits, is_loopback=self._is_loopback)
        link.is_lockstep = is_lockstep
        link.is_idle_checked = True
        if len(self._links) >= self._limits.max_links:
            self.refused += 1
            if self._refusal:
                self._refuse(link)
            return None
        link.received_at = self._loop.time()
        link.attach(self._accept(link, routing_id))
        if link.is_gone:
            return None
        self._links[routing_id] = link
        return link

    def _refuse(self, link: ZmqLink) -> None:
        try:
            self.send(link, self._refusal)
        except zmq.ZMQError:
            return  # the peer does not read

    def _drop_idle(self) -> None:
        idle = self._limits.idle
        since = self._loop.time() - idle
        for link in [peer for peer in self._links.values() if peer.received_at <= since]:
            link.lose("idle")
        self._timer = self._loop.call_later(idle / _IDLE_CHECKS, self._drop_idle)

    # Methods of SocketOwner.

    def send(self, link: ZmqLink, payload: bytes | bytearray) -> None:
        """Send one message. Raises zmq.Again if the socket is full, EHOSTUNREACH if the peer is gone."""
        send = self._socket_send
        send(link.routing_id, _MORE)
        # Only the first part can be refused.
        if link.is_lockstep:
            send(b"", _MORE)
        send(payload, _NOBLOCK)

    def after_send(self) -> None:
        """Check for received messages: sending may have consumed the notification."""
        if self._socket is not None:
            self._watch.schedule()

    def wait_to_send(self, link: ZmqLink) -> None:
        """Retry when the socket may accept more."""
        self._waiting_to_send[link] = None
        self._watch.wait_to_write()

    def pause(self, link: ZmqLink) -> None:
        """Do nothing: all peers share the socket."""

    def resume(self, link: ZmqLink) -> None:
        """Do nothing: all peers share the socket."""

    def leave(self, link: ZmqLink) -> None:
        """Remove a closed link."""
        self._waiting_to_send.pop(link, None)
        if self._links.get(link.routing_id) is link:
            del self._links[link.routing_id]

    def _flush_waiting(self) -> bool:
        """Send pending messages of some links in turn; return whether some are left."""
        failures = 0
        for link in list(islice(self._waiting_to_send, _MAX_TRIES)):
            before = link.unsent_bytes()
            self._waiting_to_send.pop(link, None)
            if link.flush():
                self._waiting_to_send[link] = None
                failures += link.unsent_bytes() == before
            if failures == _MAX_FAILURES:
                break
        return bool(self._waiting_to_send)


def _remote(routing_id: bytes, frame: zmq.Frame) -> str:
    """Return the peer address of a message, for display."""
    printable_id = "" if is_generated(routing_id) else routing_id.decode("ascii", "replace")
    name = (
        printable_id
        if printable_id.isprintable() and printable_id.isascii() and printable_id
        else f"0x{routing_id.hex()}"
    )
    try:
        return f"{frame.get('Peer-Address')} as {name}"
    except zmq.ZMQError:
        return f"unknown as {name}"


def _text(option: str | bytes | int) -> str:
    return option.decode() if isinstance(option, bytes) else str(option)
