"""ZeroMQ links of a client: one DEALER socket, connected to one endpoint."""

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
    zmq.EVENT_CLOSED: "no server is listening",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the server does not speak ZeroMQ",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "the server does not speak ZeroMQ",
    zmq.EVENT_DISCONNECTED: "the connection is lost",
}
_EVENTS: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(_END_REASONS)
_NEVER: Final = -1
_MAX_ROUTING_ID: Final = 255
_PEER_HEADER: Final = "NQ-Peer"


class _Dealer:
    """Owner of a link's socket and of the monitor socket for connection events."""

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
        """Handle a connection event of ZeroMQ."""
        event = parse_monitor_message(self._monitor.recv_multipart(_NOBLOCK))["event"]
        self._is_connected = self.link.is_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self._is_connected:
            if not self.connected.done():
                self.connected.set_result(None)
        elif not self._reconnects:
            self._give_up(_END_REASONS[event])
            self.link.lose("the connection is lost")

    def _give_up(self, reason: str) -> None:
        """Fail the wait for the connection."""
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(reason))
            self.connected.exception()  # prevents the warning of asyncio if the future is not awaited

    def _read(self) -> None:
        frame = self._socket.recv(_NOBLOCK, copy=False)
        while frame.more:  # an empty delimiter precedes the payload; of other messages only the last part is used
            frame = self._socket.recv(_NOBLOCK, copy=False)
        limit = self._limits.max_text + 1
        self.link.receive(frame.bytes if len(frame) <= limit else bytes(frame.buffer[:limit]))

    def send(self, _link: ZmqLink, payload: bytes | bytearray) -> None:
        """Send one message; zmq.Again if the socket is full."""
        self._socket.send(payload, _NOBLOCK)

    def after_send(self) -> None:
        """Check for received messages: sending may have consumed the notification."""
        self._watch.schedule()

    def wait_to_send(self, _link: ZmqLink) -> None:
        """Retry when the socket may accept more."""
        self._watch.wait_to_write()

    def pause(self, _link: ZmqLink) -> None:
        """Stop reading from the socket."""
        self._watch.pause()

    def resume(self, _link: ZmqLink) -> None:
        """Continue to read."""
        self._watch.resume()

    def leave(self, link: ZmqLink) -> None:
        """Close the sockets. After `ZmqLink.close`, ZeroMQ sends its queued messages for up to `linger` seconds.

        After any other end the queue is discarded: a socket that still tries to send has the same routing id and would
        replace the next connection at the port.
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
    timeout: float = 10.0,  # noqa: ASYNC109  the error text contains it
) -> ZmqLink:
    """Connect to `url`, tcp://host:port or zmq://host:port; ConnectionError with an error text if that fails.

    Args:
        url: Endpoint of the port.
        receive: Gets the link and returns its receiver.
        routing_id: Identifies this peer across connections. Default: ZeroMQ generates one for each connection.
        limits: Limits of the link.
        context: ZeroMQ context of the socket. Default: the context of the process.
        reconnects: Whether ZeroMQ reconnects and keeps written messages meanwhile. If not, the link is lost.
        timeout: Seconds for the first connection.
    """
    if len(routing_id) > _MAX_ROUTING_ID or routing_id[:1] == b"\0":
        raise ConnectionError("a routing id must have at most 255 bytes and must not begin with NUL")
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
        reason = exc.strerror if isinstance(exc, zmq.ZMQError) else str(exc)
        raise _lose(link, f"cannot connect to {url}: {reason}") from None
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
    spools: SpoolFactory | None = None,  # noqa: ARG001  NQ has no binary messages
    subprotocol: str = "",  # noqa: ARG001  NQ is the only protocol over ZeroMQ
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  it is passed on
) -> ZmqLink:
    """Connect to a hub as an NQ peer. The peer id is the routing id. The link does not reconnect."""
    zmq_limits = ZmqLimits(limits.max_text, max_waiting=limits.max_unread)
    routing_id = (headers or {}).get(_PEER_HEADER, "").encode()
    return await open_zmq(url, receive, routing_id=routing_id, limits=zmq_limits, reconnects=False, timeout=timeout)
