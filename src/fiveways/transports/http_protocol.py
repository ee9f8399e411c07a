"""One HTTP connection, until it ends or becomes something else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeAlias, cast

from fiveways.transports.address import describe, network_of
from fiveways.transports.alarm import Alarm
from fiveways.transports.connections import Connections, no_room
from fiveways.transports.handover import hand_over, handshake_refusal, websocket_request
from fiveways.transports.http import CONTINUE, BodyLimit, Handler, HttpLimits, Request, Response, serialize
from fiveways.transports.http_head import BadRequest, Head
from fiveways.transports.http_phases import State, Wait
from fiveways.transports.http_reader import RequestReader, Stage
from fiveways.transports.unfinished import UNAUTHENTICATED, UNFINISHED

_logger = logging.getLogger("fiveways.http")

Upgrade: TypeAlias = Callable[[Request], Response | Callable[[], asyncio.BaseProtocol]]
"""Answers a request for a WebSocket: with a refusal, or with what makes the protocol that takes the socket over."""

_CORK: Final = 1 << 16
"""Answers to pipelined requests are written together, up to so many bytes."""
_FAILED: Final = Response(500, b"something went wrong here; the log of the server says what\n")
_OVERLOADED: Final = Response(503, b"too many requests have not come completely\n", headers={"Retry-After": "1"})
_LATE: Final = Response(408, b"the request took too long to come\n")
_FORWARDED: Final = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
_READING, _BUSY, _CLOSING, _GONE = State


class HttpProtocol(asyncio.Protocol):
    """Reads requests one after the other, and answers each before it looks at the next.

    What a client sends in the meantime stays in the socket, but for what one read brings.
    """

    def __init__(
        self, handler: Handler, upgrade: Upgrade, body_limit: BodyLimit, limits: HttpLimits, connections: Connections
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
        self._given_up: asyncio.Future[None] | None = None
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
        self._alarm = Alarm(self._overdue)
        self._wait = Wait.NOTHING

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the first request must come soon."""
        self._socket = cast("asyncio.Transport", transport)
        self._remote, self._is_local = describe(transport)
        self._exceeded = self._connections.admit(self, network_of(self._remote))
        if self._exceeded:
            self._connections.refused(self._exceeded, self._remote)
            self._connections.reserve(self)
        self._wait_for(Wait.HEAD, self._limits.linger if self._exceeded else self._limits.head_timeout)

    def data_received(self, data: bytes) -> None:
        """Read on; or keep it for later, and take nothing more until then."""
        reader = self._reader
        if self._state == _READING and self._writable and not reader.has_unread:
            reader.add(data)
            self._proceed()
        elif self._state <= _BUSY and (reader.has_unread or data.strip(b"\r\n")):
            reader.add(data)
            self._is_paused = True
            self._socket.pause_reading()
            self._give_up()  # the end of the connection is not seen from now on

    def eof_received(self) -> bool:
        """Stay open for as long as something that was asked is not answered."""
        if self._state == _BUSY or (self._state == _READING and self._reader.has_unread):
            self._eof = True
            self._give_up()
            return True
        if self._state == _READING:
            self._state = _CLOSING
            self._wait_for_client(self._limits.write_timeout)
        return False

    def pause_writing(self) -> None:
        """Answer nothing more until the client has read some of it."""
        self._writable = False
        self._count_unread(self._socket.get_write_buffer_size())
        if self._state <= _BUSY:
            self._wait_for_client(self._limits.write_timeout)

    def resume_writing(self) -> None:
        """Go on."""
        self._writable = True
        self._count_unread(0)
        if self._state == _READING:
            self._proceed()
        elif self._state == _BUSY:
            self._wait_for_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, whoever ended it."""
        self._state = _GONE
        self._count_unread(0)
        self._alarm.cancel()
        self._reader = RequestReader(self._limits)
        self._hold(0)
        self._connections.leave(self)
        if self._task is not None:
            self._task.cancel()

    def _give_up(self) -> None:
        """End a long poll: its client is gone, or asks for something else."""
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)

    # What the port tells.

    def drain(self) -> None:
        """End as soon as what was asked is answered."""
        self._draining = True
        if self._state == _READING and self._reader.stage == Stage.NOTHING and not self._reader.has_unread:
            self._close()

    def cut_off(self) -> None:
        """Close at once."""
        self._state = _CLOSING
        self._socket.abort()

    # Requests in, answers out.

    def _proceed(self) -> None:
        """Answer the requests that are there, until one takes time, or others should have their turn."""
        answered, reader = 0, self._reader
        try:
            while reader.has_unread and self._writable and self._state == _READING:
                if answered == self._limits.max_pipelined:
                    self._be_busy()
                    self._loop.call_soon(self._take_turn)
                    break
                request = reader.read(self._check)
                if request is None:
                    break
                answered += 1
                self._answer(*request)
                if self._out_size > _CORK:
                    self._flush()
        except BadRequest as exc:
            if exc.status == 413 and not self._is_authenticated:
                self._connections.refused(UNAUTHENTICATED, self._remote)
                exc.text += ", the limit before authentication"
            self._refuse(exc.response())
        if reader.wants_continue:
            reader.wants_continue = False
            self._write(CONTINUE)
        self._flush()
        if self._state == _READING and self._writable:
            self._settle(answered)

    def _settle(self, answered: int) -> None:
        """Wait for more, now that all that came is read."""
        stage, limits = self._reader.stage, self._limits
        if self._eof or (self._draining and stage == Stage.NOTHING):
            self._close()
            return
        if not self._hold(self._reader.held):
            self._connections.refused(UNFINISHED, self._remote)
            self._refuse(_OVERLOADED)
            return
        # Neither blank lines before the first request nor half of it give it more time.
        if stage == Stage.NOTHING:
            if answered or self._wait >= Wait.NOTHING:
                self._wait_for(Wait.REQUEST, limits.idle_timeout)
        elif stage == Stage.HEAD:
            if answered or self._wait != Wait.HEAD:
                self._wait_for(Wait.HEAD, limits.head_timeout)
        elif answered or self._wait != Wait.BODY:
            self._wait_for(Wait.BODY, limits.body_timeout)
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._socket.resume_reading()

    def _be_busy(self) -> None:
        self._state = _BUSY
        self._wait_for_nothing()

    def _take_turn(self) -> None:
        if self._state == _BUSY:
            self._state = _READING
            self._proceed()

    def _check(self, head: Head) -> int:
        """Return how large the body of a request may be; BadRequest if it is not answered on this connection."""
        if self._exceeded and (head.path not in self._limits.reserved_paths or head.wants_websocket):
            raise no_room(self._exceeded)
        if head.length == 0:
            return 0
        most, self._is_authenticated = self._body_limit(self._request(head))
        return most

    def _request(self, head: Head, body: bytes = b"", given_up: asyncio.Future[None] | None = None) -> Request:
        is_loopback = self._is_local and _FORWARDED.isdisjoint(head.headers)
        return Request(head.method, head.path, head.query, head.headers, body, self._remote, is_loopback, given_up)

    def _hold(self, size: int) -> bool:
        """Count what has come of a request; return False, and count nothing, if there is no room for it."""
        if size == self._held or self._connections.unfinished.hold(size - self._held, self._remote):
            self._held = size
            return True
        return False

    def _answer(self, head: Head, body: bytes) -> None:
        self._hold(0)
        given_up = self._given_up = self._loop.create_future()
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
            answer = _FAILED
        if isinstance(answer, Response):
            self._say(answer, head)
        else:
            self._be_busy()
            if not self._reader.has_unread:
                self._read_on()
            self._task = self._loop.create_task(self._answer_later(answer, head))
            if isinstance(answer, Coroutine):  # a client that is gone at once leaves one that was never begun
                self._task.add_done_callback(lambda _: answer.close())

    async def _answer_later(self, answer: Awaitable[Response], head: Head) -> None:
        response = _FAILED
        try:
            response = await answer
        except Exception:
            _logger.exception("%s %s failed", head.method, head.path)
        finally:
            # Even if somebody cancelled it, the client is still owed an answer.
            self._task = None
            if self._state == _BUSY:
                self._state = _READING
                self._say(response, head)
                self._proceed()

    def _say(self, response: Response, head: Head) -> None:
        keep_alive = head.keep_alive and not (self._draining or self._exceeded)
        is_head = head.method == "HEAD"
        try:
            data = serialize(response, keep_alive=keep_alive, is_head=is_head, is_old=head.is_old)
        except Exception:
            _logger.exception("the answer to %s %s cannot be written", head.method, head.path)
            data = serialize(_FAILED, keep_alive=keep_alive, is_head=is_head, is_old=head.is_old)
        self._write(data)
        if not keep_alive:
            self._close()

    # From HTTP to WebSocket.

    def _begin_websocket(self, request: Request) -> None:
        """Hand the socket over, with all that came on it and was not read yet."""
        protocol = self._successor(request)
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
        self._connections.hand_over(self, self._socket)
        try:
            hand_over(self._socket, protocol, websocket_request(request) + self._reader.rest())
        except Exception:
            _logger.exception("the WebSocket on %s failed", request.path)
            self._socket.abort()

    def _successor(self, request: Request) -> asyncio.BaseProtocol | Response:
        try:
            answer = self._upgrade(request)
            if isinstance(answer, Response):
                return answer
            return handshake_refusal(request) or answer()
        except Exception:
            _logger.exception("the WebSocket on %s failed", request.path)
            return _FAILED

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
        self._connections.unread += size - self._unread
        self._unread = size

    def _refuse(self, response: Response) -> None:
        """Say a last word."""
        try:
            data = serialize(response, keep_alive=False)
        except Exception:
            _logger.exception("a refusal cannot be written")
            data = serialize(_FAILED, keep_alive=False)
        self._write(data)
        self._linger()

    def _close(self) -> None:
        """Close when all is written."""
        if self._is_paused or self._reader.has_unread:
            self._linger()
            return
        self._flush()
        self._state = _CLOSING
        self._wait_for_client(self._limits.write_timeout)
        self._socket.close()

    def _linger(self) -> None:
        """Close, but take in what is still coming: a socket closed with bytes unread loses what it wrote last."""
        self._flush()
        self._state = _CLOSING
        self._reader = RequestReader(self._limits)
        self._hold(0)
        self._wait_for_client(self._limits.linger)
        if self._eof:
            self._socket.close()
            return
        self._socket.write_eof()
        self._read_on()

    # Time.

    def _wait_for(self, what: Wait, seconds: float) -> None:
        self._wait = what
        self._alarm.set(seconds)

    def _wait_for_nothing(self) -> None:
        self._wait = Wait.NOTHING
        self._alarm.silence()

    def _wait_for_client(self, seconds: float) -> None:
        self._unsent = self._socket.get_write_buffer_size()
        self._wait_for(Wait.CLIENT, seconds)

    def _overdue(self) -> None:
        if self._wait != Wait.CLIENT:
            if self._exceeded:
                self._refuse(no_room(self._exceeded).response())
            elif self._reader.stage == Stage.NOTHING:
                self._close()
            else:
                self._refuse(_LATE)
        elif 0 < self._socket.get_write_buffer_size() < self._unsent:
            self._wait_for_client(self._limits.write_timeout)
        else:
            self._socket.abort()
