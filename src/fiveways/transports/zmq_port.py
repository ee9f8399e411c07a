"""One ZeroMQ ROUTER for many peers, each of which is a link."""

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
"""How often silent peers are looked for, while one may be silent."""
_MAX_TRIES: Final = 64
"""Peers that are tried in one go, of those for whom something waits …"""
_MAX_FAILURES: Final = 16
"""… and of them, those that still take nothing."""


class ZmqPort:
    """Takes [payload] from DEALER peers, and [empty, payload] from REQ peers, and answers in the same shape.

    A routing id is what a peer says of itself and proves nothing: whoever says the same takes its place, also that of a
    peer whose id was generated, since ZeroMQ does not look at what others call themselves.
    """

    def __init__(
        self,
        accept: Callable[[ZmqLink, bytes], Receiver],
        *,
        limits: ZmqLimits = ZmqLimits(),  # noqa: B008
        refusal: bytes = b"",
        context: Context | None = None,
    ) -> None:
        """Make it.

        Args:
            accept: Gets a new link and its peer's routing id, and returns who receives what comes.
            limits: The bounds.
            refusal: What a peer hears that finds no room.
            context: Where the socket belongs; without one it is the process's own.
        """
        self.refused = 0
        """Messages of peers for which there was no room."""
        self.malformed = 0
        """Messages of more parts than there should be."""
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
        """Bind, and return to what; OSError as the system gives it. An empty host is all, port 0 any that is free."""
        if self._socket is not None:
            raise OSError("this port is open already")
        socket = self._context.socket(zmq.ROUTER)
        apply_limits(socket, self._limits)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.IPV6, int(":" in host))
        place = f"[{host}]" if ":" in host else host or "*"
        try:
            socket.bind(f"tcp://{place}:{port or '*'}")
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
        """Stop listening. All links are lost; what the socket has taken still goes out, for a moment."""
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
        """Return how many peers there are."""
        return len(self._links)

    # What comes.

    def _read(self) -> None:
        """Take one message. The payload comes as a frame, which knows whether there is more, and from where it is."""
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
        enough = self._limits.max_text + 1
        link.receive(frame.bytes if len(frame) <= enough else bytes(frame.buffer[:enough]))

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
            return  # it does not listen, either

    def _drop_idle(self) -> None:
        idle = self._limits.idle
        since = self._loop.time() - idle
        for link in [each for each in self._links.values() if each.received_at <= since]:
            link.lose("silent")
        self._timer = self._loop.call_later(idle / _IDLE_CHECKS, self._drop_idle)

    # What goes: the links ask for it.

    def send(self, link: ZmqLink, payload: bytes | bytearray) -> None:
        """Send one message; zmq.Again where it has to wait, EHOSTUNREACH where the peer is gone."""
        send = self._socket_send
        send(link.routing_id, _MORE)
        # The first part decides: those behind it are never refused.
        if link.is_lockstep:
            send(b"", _MORE)
        send(payload, _NOBLOCK)

    def after_send(self) -> None:
        """Look for what came meanwhile."""
        if self._socket is not None:
            self._watch.schedule()

    def wait_to_send(self, link: ZmqLink) -> None:
        """Try again later."""
        self._waiting_to_send[link] = None
        self._watch.wait_to_write()

    def pause(self, link: ZmqLink) -> None:
        """Do nothing: the socket is everybody's."""

    def resume(self, link: ZmqLink) -> None:
        """Do nothing, as before."""

    def leave(self, link: ZmqLink) -> None:
        """Forget a link."""
        self._waiting_to_send.pop(link, None)
        if self._links.get(link.routing_id) is link:
            del self._links[link.routing_id]

    def _flush_waiting(self) -> bool:
        """Try those who wait, in turn; say whether some still do."""
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
    """Return where a message is from, for people."""
    chosen = "" if is_generated(routing_id) else routing_id.decode("ascii", "replace")
    name = chosen if chosen.isprintable() and chosen.isascii() and chosen else f"0x{routing_id.hex()}"
    try:
        return f"{frame.get('Peer-Address')} as {name}"
    except zmq.ZMQError:
        return f"somebody as {name}"


def _text(option: str | bytes | int) -> str:
    return option.decode() if isinstance(option, bytes) else str(option)
