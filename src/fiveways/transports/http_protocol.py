"""One HTTP connection, until it ends or becomes something else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeAlias, cast

from fiveways.transports.address import describe_peer, network_address
from fiveways.transports.http import CONTINUE, BodyLimit, Handler, HttpLimits, Request, Response, serialize
from fiveways.transports.http_connections import Connections, too_many_connections
from fiveways.transports.http_head import BadRequest, Head
from fiveways.transports.http_reader import ReadStage, RequestReader
from fiveways.transports.http_states import HttpState, TimeoutKind
from fiveways.transports.lazy_timer import LazyTimer
from fiveways.transports.unfinished_input import UNAUTHENTICATED, UNFINISHED
from fiveways.transports.websocket_handover import hand_over_socket, handshake_refusal, minimal_handshake

_logger = logging.getLogger("fiveways.http")

UpgradeHandler: TypeAlias = Callable[[Request], Response | Callable[[], asyncio.BaseProtocol]]
"""Answers a request for a WebSocket: with a refusal, or with what makes the protocol that takes the socket over."""

_FLUSH_THRESHOLD: Final = 1 << 16
"""Answers to pipelined requests are written together, up to so many bytes."""
_INTERNAL_ERROR: Final = Response(500, b"something went wrong here; the log of the server says what\n")
_OVERLOADED: Final = Response(503, b"too many requests have not come completely\n", headers={"Retry-After": "1"})
_REQUEST_TIMEOUT: Final = Response(408, b"the request took too long to come\n")
_PROXY_HEADERS: Final = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
_READING, _BUSY, _CLOSING, _GONE = HttpState


class HttpProtocol(asyncio.Protocol):
    """Reads requests one after the other, and answers each before it looks at the next.

    What a client sends in the meantime stays in the socket, but for what one read brings.
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
        """The limit by which the connection was not admitted."""
        self._is_authenticated = True
        self._held = 0
        """What is counted as unfinished input."""
        self._out: list[bytes] = []
        self._out_size = 0
        self._unsent = 0
        self._unread = 0
        self._writable = True
        self._alarm = LazyTimer(self._on_timeout)
        self._timeout_kind = TimeoutKind.NONE

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the first request must come soon."""
        self._socket = cast("asyncio.Transport", transport)
        self._remote, self._is_local = describe_peer(transport)
        self._exceeded = self._connections.admit(self, network_address(self._remote))
        if self._exceeded:
            self._connections.on_refused(self._exceeded, self._remote)
            self._connections.reserve(self)
        self._start_timeout(TimeoutKind.HEAD, self._limits.linger if self._exceeded else self._limits.head_timeout)

    def data_received(self, data: bytes) -> None:
        """Read on; or keep it for later, and take nothing more until then."""
        reader = self._reader
        if self._state == _READING and self._writable and not reader.has_unread:
            reader.add(data)
            self._handle_requests()
        elif self._state <= _BUSY and (reader.has_unread or data.strip(b"\r\n")):
            reader.add(data)
            self._is_paused = True
            self._socket.pause_reading()
            self._abandon_poll()  # the end of the connection is not seen from now on

    def eof_received(self) -> bool:
        """Stay open for as long as something that was asked is not answered."""
        if self._state == _BUSY or (self._state == _READING and self._reader.has_unread):
            self._eof = True
            self._abandon_poll()
            return True
        if self._state == _READING:
            self._state = _CLOSING
            self._start_write_timeout(self._limits.write_timeout)
        return False

    def pause_writing(self) -> None:
        """Answer nothing more until the client has read some of it."""
        self._writable = False
        self._count_unread(self._socket.get_write_buffer_size())
        if self._state <= _BUSY:
            self._start_write_timeout(self._limits.write_timeout)

    def resume_writing(self) -> None:
        """Go on."""
        self._writable = True
        self._count_unread(0)
        if self._state == _READING:
            self._handle_requests()
        elif self._state == _BUSY:
            self._stop_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, whoever ended it."""
        self._state = _GONE
        self._count_unread(0)
        self._alarm.cancel()
        self._reader = RequestReader(self._limits)
        self._count_unfinished(0)
        self._connections.remove(self)
        if self._task is not None:
            self._task.cancel()

    def _abandon_poll(self) -> None:
        """End a long poll: its client is gone, or asks for something else."""
        if self._abandoned is not None and not self._abandoned.done():
            self._abandoned.set_result(None)

    # What the port tells.

    def drain(self) -> None:
        """End as soon as what was asked is answered."""
        self._draining = True
        if self._state == _READING and self._reader.stage == ReadStage.NOTHING and not self._reader.has_unread:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        self._state = _CLOSING
        self._socket.abort()

    # Requests in, answers out.

    def _handle_requests(self) -> None:
        """Answer the requests that are there, until one takes time, or others should have their turn."""
        answered, reader = 0, self._reader
        try:
            while reader.has_unread and self._writable and self._state == _READING:
                if answered == self._limits.max_pipelined:
                    self._set_busy()
                    self._loop.call_soon(self._resume_requests)
                    break
                request = reader.read(self._check)
                if request is None:
                    break
                answered += 1
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
            self._wait_for_more(answered)

    def _wait_for_more(self, answered: int) -> None:
        """Wait for more, now that all that came is read."""
        stage, limits = self._reader.stage, self._limits
        if self._eof or (self._draining and stage == ReadStage.NOTHING):
            self._close()
            return
        if not self._count_unfinished(self._reader.held):
            self._connections.on_refused(UNFINISHED, self._remote)
            self._refuse(_OVERLOADED)
            return
        # Neither blank lines before the first request nor half of it give it more time.
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
        """Return how large the body of a request may be; BadRequest if it is not answered on this connection."""
        if self._exceeded and (head.path not in self._limits.reserved_paths or head.wants_websocket):
            raise too_many_connections(self._exceeded)
        if head.length == 0:
            return 0
        most, self._is_authenticated = self._body_limit(self._request(head))
        return most

    def _request(self, head: Head, body: bytes = b"", given_up: asyncio.Future[None] | None = None) -> Request:
        is_loopback = self._is_local and _PROXY_HEADERS.isdisjoint(head.headers)
        return Request(head.method, head.path, head.query, head.headers, body, self._remote, is_loopback, given_up)

    def _count_unfinished(self, size: int) -> bool:
        """Count what has come of a request; return False, and count nothing, if there is no room for it."""
        if size == self._held or self._connections.unfinished.count(size - self._held, self._remote):
            self._held = size
            return True
        return False

    def _handle_request(self, head: Head, body: bytes) -> None:
        self._count_unfinished(0)
        given_up = self._abandoned = self._loop.create_future()
        if self._eof or self._reader.has_unread:
            given_up.set_result(None)
        request = self._request(head, body, given_up)
        if head.wants_websocket:
            self._begin_websocket(request)
            return
        try:
            answer = self._handler(request)
        except Exception:
            _logger.exception("%s %s failed", request.method, request.path)
            answer = _INTERNAL_ERROR
        if isinstance(answer, Response):
            self._send_response(answer, head)
        else:
            self._set_busy()
            if not self._reader.has_unread:
                self._resume_reading()
            self._task = self._loop.create_task(self._await_answer(answer, head))
            if isinstance(answer, Coroutine):  # a client that is gone at once leaves one that was never begun
                self._task.add_done_callback(lambda _: answer.close())

    async def _await_answer(self, answer: Awaitable[Response], head: Head) -> None:
        response = _INTERNAL_ERROR
        try:
            response = await answer
        except Exception:
            _logger.exception("%s %s failed", head.method, head.path)
        finally:
            # Even if somebody cancelled it, the client is still owed an answer.
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
            _logger.exception("the answer to %s %s cannot be written", head.method, head.path)
            data = serialize(_INTERNAL_ERROR, keep_alive=keep_alive, is_head=is_head, is_old=head.is_old)
        self._write(data)
        if not keep_alive:
            self._close()

    # From HTTP to WebSocket.

    def _begin_websocket(self, request: Request) -> None:
        """Hand the socket over, with all that came on it and was not read yet."""
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
            _logger.exception("the WebSocket on %s failed", request.path)
            self._socket.abort()

    def _create_websocket(self, request: Request) -> asyncio.BaseProtocol | Response:
        try:
            answer = self._upgrade(request)
            if isinstance(answer, Response):
                return answer
            return handshake_refusal(request) or answer()
        except Exception:
            _logger.exception("the WebSocket on %s failed", request.path)
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
        """Say a last word."""
        try:
            data = serialize(response, keep_alive=False)
        except Exception:
            _logger.exception("a refusal cannot be written")
            data = serialize(_INTERNAL_ERROR, keep_alive=False)
        self._write(data)
        self._linger()

    def _close(self) -> None:
        """Close when all is written."""
        if self._is_paused or self._reader.has_unread:
            self._linger()
            return
        self._flush()
        self._state = _CLOSING
        self._start_write_timeout(self._limits.write_timeout)
        self._socket.close()

    def _linger(self) -> None:
        """Close, but take in what is still coming: a socket closed with bytes unread loses what it wrote last."""
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

    # Time.

    def _start_timeout(self, what: TimeoutKind, seconds: float) -> None:
        self._timeout_kind = what
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
