"""HTTP protocol of one connection, up to its end or its upgrade to WebSocket."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeAlias, cast

from fiveways.transports.address import describe_peer, network_address
from fiveways.transports.http import CONTINUE, BodyLimit, Handler, HttpLimits, Request, Response, serialize
from fiveways.transports.http_connections import Connections, too_many_connections
from fiveways.transports.http_head import BadRequest, Head
from fiveways.transports.http_reader import HttpState, ReadStage, RequestReader, TimeoutKind
from fiveways.transports.lazy_timer import LazyTimer
from fiveways.transports.unfinished_input import UNAUTHENTICATED, UNFINISHED
from fiveways.transports.websocket_handover import hand_over_socket, handshake_refusal, minimal_handshake

_logger = logging.getLogger("fiveways.http")

UpgradeHandler: TypeAlias = Callable[[Request], Response | Callable[[], asyncio.BaseProtocol]]
"""Function that answers a WebSocket request with a refusal or with a factory for the protocol of the socket."""

_FLUSH_THRESHOLD: Final = 1 << 16
"""Bytes of responses to pipelined requests that are written together."""
_INTERNAL_ERROR: Final = Response(500, b"internal error; see the log of the hub\n")
_OVERLOADED: Final = Response(503, b"too many incomplete requests; try again later\n", headers={"Retry-After": "1"})
_REQUEST_TIMEOUT: Final = Response(408, b"the request was not complete in time\n")
_PROXY_HEADERS: Final = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
_READING, _BUSY, _CLOSING, _GONE = HttpState


class HttpProtocol(asyncio.Protocol):
    """Server side of one connection. It answers each request before it reads the next.

    While a request is handled, further data stays in the socket, except for one read.
    """

    def __init__(
        self,
        handler: Handler,
        upgrade: UpgradeHandler,
        body_limit: BodyLimit,
        limits: HttpLimits,
        connections: Connections,
    ) -> None:
        self._handler = handler
        self._upgrade = upgrade
        self._body_limit = body_limit
        self._limits = limits
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport
        self._remote = ""
        self._is_local = False
        self._state = _READING
        self._reader = RequestReader(limits)
        self._is_paused = False
        self._eof = False
        self._draining = False
        self._task: asyncio.Task[None] | None = None
        self._abandoned: asyncio.Future[None] | None = None
        self._exceeded = ""
        """Name of the limit that refused the connection."""
        self._is_authenticated = True
        self._held = 0
        """Bytes counted as unfinished input."""
        self._out: list[bytes] = []
        self._out_size = 0
        self._unsent = 0
        self._unread = 0
        self._writable = True
        self._alarm = LazyTimer(self._on_timeout)
        self._timeout_kind = TimeoutKind.NONE

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, or reserve it for a refusal, and start the timeout for the first request."""
        self._socket = cast("asyncio.Transport", transport)
        self._remote, self._is_local = describe_peer(transport)
        self._exceeded = self._connections.admit(self, network_address(self._remote))
        if self._exceeded:
            self._connections.on_refused(self._exceeded, self._remote)
            self._connections.reserve(self)
        self._start_timeout(TimeoutKind.HEAD, self._limits.linger if self._exceeded else self._limits.head_timeout)

    def data_received(self, data: bytes) -> None:
        """Parse requests, or store the data and pause reading while a request is handled."""
        reader = self._reader
        if self._state == _READING and self._writable and not reader.has_unread:
            reader.add(data)
            self._handle_requests()
        elif self._state <= _BUSY and (reader.has_unread or data.strip(b"\r\n")):
            reader.add(data)
            self._is_paused = True
            self._socket.pause_reading()
            self._abandon_poll()  # while reading is paused, the end of the connection is not reported

    def eof_received(self) -> bool:
        """Keep the connection open until all received requests are answered."""
        if self._state == _BUSY or (self._state == _READING and self._reader.has_unread):
            self._eof = True
            self._abandon_poll()
            return True
        if self._state == _READING:
            self._state = _CLOSING
            self._start_write_timeout(self._limits.write_timeout)
        return False

    def pause_writing(self) -> None:
        """Stop handling requests until the client has read some responses."""
        self._writable = False
        self._count_unread(self._socket.get_write_buffer_size())
        if self._state <= _BUSY:
            self._start_write_timeout(self._limits.write_timeout)

    def resume_writing(self) -> None:
        """Continue to handle requests."""
        self._writable = True
        self._count_unread(0)
        if self._state == _READING:
            self._handle_requests()
        elif self._state == _BUSY:
            self._stop_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the connection held."""
        self._state = _GONE
        self._count_unread(0)
        self._alarm.cancel()
        self._reader = RequestReader(self._limits)
        self._count_unfinished(0)
        self._connections.remove(self)
        if self._task is not None:
            self._task.cancel()

    def _abandon_poll(self) -> None:
        """End a long poll because its client closed the connection or sent more data."""
        if self._abandoned is not None and not self._abandoned.done():
            self._abandoned.set_result(None)

    # Methods for the port.

    def drain(self) -> None:
        """Close after the responses to all received requests."""
        self._draining = True
        if self._state == _READING and self._reader.stage == ReadStage.NOTHING and not self._reader.has_unread:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        self._state = _CLOSING
        self._socket.abort()

    # Requests and responses.

    def _handle_requests(self) -> None:
        """Handle received requests until one is asynchronous or `max_pipelined` is reached."""
        count, reader = 0, self._reader
        try:
            while reader.has_unread and self._writable and self._state == _READING:
                if count == self._limits.max_pipelined:
                    self._set_busy()
                    self._loop.call_soon(self._resume_requests)
                    break
                request = reader.read(self._check)
                if request is None:
                    break
                count += 1
                self._handle_request(*request)
                if self._out_size > _FLUSH_THRESHOLD:
                    self._flush()
        except BadRequest as exc:
            if exc.status == 413 and not self._is_authenticated:
                self._connections.on_refused(UNAUTHENTICATED, self._remote)
                exc.text += ", the limit before authentication"
            self._refuse(exc.response())
        if reader.wants_continue:
            reader.wants_continue = False
            self._write(CONTINUE)
        self._flush()
        if self._state == _READING and self._writable:
            self._wait_for_more(count)

    def _wait_for_more(self, answered: int) -> None:
        """Start the timeout for more data; all received requests are answered."""
        stage, limits = self._reader.stage, self._limits
        if self._eof or (self._draining and stage == ReadStage.NOTHING):
            self._close()
            return
        if not self._count_unfinished(self._reader.held):
            self._connections.on_refused(UNFINISHED, self._remote)
            self._refuse(_OVERLOADED)
            return
        # Neither blank lines nor a partial head restart the timeout of the first request.
        if stage == ReadStage.NOTHING:
            if answered or self._timeout_kind >= TimeoutKind.NONE:
                self._start_timeout(TimeoutKind.REQUEST, limits.idle_timeout)
        elif stage == ReadStage.HEAD:
            if answered or self._timeout_kind != TimeoutKind.HEAD:
                self._start_timeout(TimeoutKind.HEAD, limits.head_timeout)
        elif answered or self._timeout_kind != TimeoutKind.BODY:
            self._start_timeout(TimeoutKind.BODY, limits.body_timeout)
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._socket.resume_reading()

    def _set_busy(self) -> None:
        self._state = _BUSY
        self._stop_timeout()

    def _resume_requests(self) -> None:
        if self._state == _BUSY:
            self._state = _READING
            self._handle_requests()

    def _check(self, head: Head) -> int:
        """Return the body limit of a request; BadRequest if this connection must not serve it."""
        if self._exceeded and (head.path not in self._limits.reserved_paths or head.wants_websocket):
            raise too_many_connections(self._exceeded)
        if head.length == 0:
            return 0
        max_body, self._is_authenticated = self._body_limit(self._request(head))
        return max_body

    def _request(self, head: Head, body: bytes = b"", abandoned: asyncio.Future[None] | None = None) -> Request:
        is_loopback = self._is_local and _PROXY_HEADERS.isdisjoint(head.headers)
        return Request(head.method, head.path, head.query, head.headers, body, self._remote, is_loopback, abandoned)

    def _count_unfinished(self, size: int) -> bool:
        """Count the bytes of an incomplete request; return False, and count nothing, if a limit is reached."""
        if size == self._held or self._connections.unfinished.count(size - self._held, self._remote):
            self._held = size
            return True
        return False

    def _handle_request(self, head: Head, body: bytes) -> None:
        self._count_unfinished(0)
        abandoned = self._abandoned = self._loop.create_future()
        if self._eof or self._reader.has_unread:
            abandoned.set_result(None)
        request = self._request(head, body, abandoned)
        if head.wants_websocket:
            self._begin_websocket(request)
            return
        try:
            result = self._handler(request)
        except Exception:
            _logger.exception("the HTTP handler failed method=%s path=%s", request.method, request.path)
            result = _INTERNAL_ERROR
        if isinstance(result, Response):
            self._send_response(result, head)
        else:
            self._set_busy()
            if not self._reader.has_unread:
                self._resume_reading()
            self._task = self._loop.create_task(self._await_answer(result, head))
            if isinstance(result, Coroutine):  # if the client disconnects at once, the task never starts it
                self._task.add_done_callback(lambda _: result.close())

    async def _await_answer(self, awaitable: Awaitable[Response], head: Head) -> None:
        response = _INTERNAL_ERROR
        try:
            response = await awaitable
        except Exception:
            _logger.exception("the HTTP handler failed method=%s path=%s", head.method, head.path)
        finally:
            # The client gets a response even if the task was cancelled.
            self._task = None
            if self._state == _BUSY:
                self._state = _READING
                self._send_response(response, head)
                self._handle_requests()

    def _send_response(self, response: Response, head: Head) -> None:
        keep_alive = head.keep_alive and not (self._draining or self._exceeded)
        is_head = head.method == "HEAD"
        try:
            data = serialize(response, keep_alive=keep_alive, is_head=is_head, is_old=head.is_old)
        except Exception:
            _logger.exception("cannot serialize the response method=%s path=%s", head.method, head.path)
            data = serialize(_INTERNAL_ERROR, keep_alive=keep_alive, is_head=is_head, is_old=head.is_old)
        self._write(data)
        if not keep_alive:
            self._close()

    # Upgrade to WebSocket.

    def _begin_websocket(self, request: Request) -> None:
        """Hand the socket and all unparsed data over to the WebSocket protocol."""
        protocol = self._create_websocket(request)
        if isinstance(protocol, Response):
            self._refuse(protocol)
            return
        if self._eof:
            self._close()
            return
        self._flush()
        self._state = _GONE
        self._count_unread(0)
        self._alarm.cancel()
        self._connections.count_upgraded(self, self._socket)
        try:
            hand_over_socket(self._socket, protocol, minimal_handshake(request) + self._reader.rest())
        except Exception:
            _logger.exception("cannot upgrade to WebSocket path=%s", request.path)
            self._socket.abort()

    def _create_websocket(self, request: Request) -> asyncio.BaseProtocol | Response:
        try:
            result = self._upgrade(request)
            if isinstance(result, Response):
                return result
            return handshake_refusal(request) or result()
        except Exception:
            _logger.exception("cannot upgrade to WebSocket path=%s", request.path)
            return _INTERNAL_ERROR

    # Writing and closing.

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        self._out_size += len(data)

    def _flush(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            self._socket.write(data)

    def _count_unread(self, size: int) -> None:
        self._connections.unread_bytes += size - self._unread
        self._unread = size

    def _refuse(self, response: Response) -> None:
        """Send a last response and close."""
        try:
            data = serialize(response, keep_alive=False)
        except Exception:
            _logger.exception("cannot serialize a refusal")
            data = serialize(_INTERNAL_ERROR, keep_alive=False)
        self._write(data)
        self._linger()

    def _close(self) -> None:
        """Close after all data is written."""
        if self._is_paused or self._reader.has_unread:
            self._linger()
            return
        self._flush()
        self._state = _CLOSING
        self._start_write_timeout(self._limits.write_timeout)
        self._socket.close()

    def _linger(self) -> None:
        """Close, but drain the input first: closing a socket with unread data would discard the last response."""
        self._flush()
        self._state = _CLOSING
        self._reader = RequestReader(self._limits)
        self._count_unfinished(0)
        self._start_write_timeout(self._limits.linger)
        if self._eof:
            self._socket.close()
            return
        self._socket.write_eof()
        self._resume_reading()

    # Timeouts.

    def _start_timeout(self, kind: TimeoutKind, seconds: float) -> None:
        self._timeout_kind = kind
        self._alarm.restart(seconds)

    def _stop_timeout(self) -> None:
        self._timeout_kind = TimeoutKind.NONE
        self._alarm.disarm()

    def _start_write_timeout(self, seconds: float) -> None:
        self._unsent = self._socket.get_write_buffer_size()
        self._start_timeout(TimeoutKind.CLIENT, seconds)

    def _on_timeout(self) -> None:
        if self._timeout_kind != TimeoutKind.CLIENT:
            if self._exceeded:
                self._refuse(too_many_connections(self._exceeded).response())
            elif self._reader.stage == ReadStage.NOTHING:
                self._close()
            else:
                self._refuse(_REQUEST_TIMEOUT)
        elif 0 < self._socket.get_write_buffer_size() < self._unsent:
            self._start_write_timeout(self._limits.write_timeout)
        else:
            self._socket.abort()
