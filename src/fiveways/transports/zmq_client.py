"""The other end of a ZeroMQ port: one DEALER, connected to one place."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from fiveways.transports.address import is_loopback
from fiveways.transports.base import Receiver, SpoolFactory
from fiveways.transports.zmq_link import ZmqLimits, ZmqLink, apply_limits
from fiveways.transports.zmq_socket_watcher import Context, Socket, SocketWatcher, milliseconds
from fiveways.wire.limits import Limits

_NOBLOCK: Final = zmq.NOBLOCK
_END_REASONS: Final[dict[int, str]] = {
    zmq.EVENT_CLOSED: "nobody listens there",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "no ZeroMQ is spoken there",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no ZeroMQ is spoken there",
    zmq.EVENT_DISCONNECTED: "the connection is gone",
}
_EVENTS: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(_END_REASONS)
_NEVER: Final = -1
_MAX_ROUTING_ID: Final = 255
_PEER_HEADER: Final = "NQ-Peer"


class _Dealer:
    """Owns the socket of one link, and a second one by which ZeroMQ tells of its connections."""

    def __init__(
        self, socket: Socket, endpoint: str, limits: ZmqLimits, routing_id: bytes, *, reconnects: bool
    ) -> None:
        host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
        self.link = ZmqLink(self, routing_id, endpoint, limits, is_loopback=is_loopback(host) or host == "localhost")
        self.link.is_connected = False
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limits = limits
        self._reconnects = reconnects
        self._socket = socket
        self._is_open = True
        self._is_connected = False
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._monitor_watch = SocketWatcher(self._monitor, self._on_monitor_event)
        self._watch = SocketWatcher(socket, self._read, self.link.flush)

    def _on_monitor_event(self) -> None:
        """Know of a connection, or of its end."""
        event = parse_monitor_message(self._monitor.recv_multipart(_NOBLOCK))["event"]
        self._is_connected = self.link.is_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self._is_connected:
            if not self.connected.done():
                self.connected.set_result(None)
        elif not self._reconnects:
            self._give_up(_END_REASONS[event])
            self.link.lose("the connection is gone")

    def _give_up(self, why: str) -> None:
        """Let whoever waits for the connection know that there will be none."""
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(why))
            self.connected.exception()  # there may be nobody

    def _read(self) -> None:
        frame = self._socket.recv(_NOBLOCK, copy=False)
        while frame.more:  # an empty one, before the payload; of anything else only the end is taken
            frame = self._socket.recv(_NOBLOCK, copy=False)
        enough = self._limits.max_text + 1
        self.link.receive(frame.bytes if len(frame) <= enough else bytes(frame.buffer[:enough]))

    def send(self, _link: ZmqLink, payload: bytes | bytearray) -> None:
        """Send one message, or raise zmq.Again."""
        self._socket.send(payload, _NOBLOCK)

    def after_send(self) -> None:
        """Look for what came meanwhile."""
        self._watch.schedule()

    def wait_to_send(self, _link: ZmqLink) -> None:
        """Try again later."""
        self._watch.wait_to_write()

    def pause(self, _link: ZmqLink) -> None:
        """Let the other end wait."""
        self._watch.pause()

    def resume(self, _link: ZmqLink) -> None:
        """Go on."""
        self._watch.resume()

    def leave(self, link: ZmqLink) -> None:
        """Close the sockets. After a close ZeroMQ still sends what it has taken, for a moment.

        After any other end nothing may be left: a socket that still tries to say something has our routing id, and
        takes the place of the next one at the port.
        """
        if self._is_open:
            self._is_open = False
            self._give_up("the link was closed")
            self._monitor_watch.close()
            self._watch.close()
            self._socket.disable_monitor()
            self._monitor.close(0)
            lingers = link.is_closing and (self._is_connected or self._reconnects)
            self._socket.close(milliseconds(self._limits.linger) if lingers else 0)


async def open_zmq(
    url: str,
    receive: Callable[[ZmqLink], Receiver],
    *,
    routing_id: bytes = b"",
    limits: ZmqLimits = ZmqLimits(),  # noqa: B008
    context: Context | None = None,
    reconnects: bool = True,
    timeout: float = 10.0,  # noqa: ASYNC109  it is part of the sentence when it is over
) -> ZmqLink:
    """Connect to `url`, tcp://host:port or zmq://host:port; ConnectionError, with a sentence, if that fails.

    Args:
        url: Where the port is.
        receive: Gets the link, and returns who receives what comes.
        routing_id: Who we are, also after a connection was lost; without it each connection is a stranger.
        limits: The bounds.
        context: Where the socket belongs; without one it is the process's own.
        reconnects: Whether a lost connection is made again and what was written waits for it; if not, the link is lost.
        timeout: Seconds for the first connection.
    """
    if len(routing_id) > _MAX_ROUTING_ID or routing_id[:1] == b"\0":
        raise ConnectionError("a routing id has at most 255 bytes, and does not begin with a zero")
    endpoint = f"tcp://{url.rpartition('://')[2]}"
    socket = (context or zmq.Context.instance()).socket(zmq.DEALER)
    apply_limits(socket, limits)
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    if routing_id:
        socket.setsockopt(zmq.ROUTING_ID, routing_id)
    if not reconnects:
        socket.setsockopt(zmq.RECONNECT_IVL, _NEVER)
    dealer = _Dealer(socket, endpoint, limits, routing_id, reconnects=reconnects)
    link = dealer.link
    link.attach(receive(link))
    try:
        socket.connect(endpoint)
        await asyncio.wait_for(dealer.connected, timeout)
    except TimeoutError:
        raise _lose(link, f"{url} did not answer within {timeout:g} seconds") from None
    except (ConnectionError, zmq.ZMQError) as exc:
        why = exc.strerror if isinstance(exc, zmq.ZMQError) else str(exc)
        raise _lose(link, f"{url} cannot be connected to: {why}") from None
    except asyncio.CancelledError:
        link.abort()
        raise
    return link


def _lose(link: ZmqLink, text: str) -> ConnectionError:
    link.lose(text)
    return ConnectionError(text)


async def open_nq_zmq(
    url: str,
    receive: Callable[[ZmqLink], Receiver],
    *,
    limits: Limits,
    spools: SpoolFactory | None = None,  # noqa: ARG001  there are no messages besides those in JSON
    subprotocol: str = "",  # noqa: ARG001  nor another protocol
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  it is passed on
) -> ZmqLink:
    """Connect to a hub as a client does; the id by which we come back is our routing id. The link ends if it breaks."""
    bounds = ZmqLimits(limits.max_text, max_waiting=limits.max_unread)
    routing_id = (headers or {}).get(_PEER_HEADER, "").encode()
    return await open_zmq(url, receive, routing_id=routing_id, limits=bounds, reconnects=False, timeout=timeout)
