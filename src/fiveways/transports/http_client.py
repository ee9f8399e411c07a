"""HTTP link of a client: POST requests carry its messages, and long polls fetch those of the hub."""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httptools

from fiveways.transports.address import describe_peer, http_error
from fiveways.transports.base import Receiver, SpoolFactory
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

PEER_HEADER, NUMBER_HEADER = "NQ-Peer", "NQ-Answer"
"""Headers for the id of a peer, and for the number of a response to it."""
WAIT: Final = 20
"""Seconds that the hub may delay the response to a long poll."""
IDLE_TIMEOUT: Final = 5.0
"""Seconds after which idle connections are closed."""
HIGH_WATER: Final = 1 << 18
_EMPTY_BATCH: Final = b"[]"
_LENGTH: Final = 4
_LINGER: Final = 2.0
_POLL_PAUSE: Final = 1.0
"""Seconds before the next poll if the hub answered the last one at once with nothing."""
_ORDER_TIMEOUT: Final = 5.0
"""Seconds that a response waits for the one before it, which may be lost with its connection."""
_READ: Final = 1 << 16
_OK, _UNAUTHORIZED = 200, 401


_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _ConnectionClosed(ConnectionError):
    """The server closed the connection before it responded."""


class HttpLink:
    """Link without a permanent connection. Implements `base.Link`.

    It uses at most two connections: one sends messages in order; the other polls while the receiver `is_expectant`.
    With two requests open, the hub answers the older one at once. The hub numbers its responses, and the link
    delivers them in that order, even if they arrive in another.
    """

    transport = "http"

    def __init__(self, url: str, headers: Mapping[str, str], limits: Limits, timeout: float, idle: float) -> None:
        """Initialize the link; `connect` sets its receiver."""
        self.remote = ""
        self.is_loopback = False
        self.is_full = False
        self.is_alive = True
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver
        self._url, self._timeout, self._idle = url, timeout, idle
        self._headers = dict(headers)
        self._post_connection = _Connection(url, limits.max_text, timeout)
        self._poll_connection = _Connection(url, limits.max_text, timeout)
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._has_peer_id = False
        self._has_posted = False
        self._in_flight = 0
        """Requests whose responses were not delivered yet: 2 at most."""
        self._last_number = 0
        """Highest number of a delivered response."""
        self._previous_taken: asyncio.Future[None] | None = None
        """Done when the response before a waiting one was delivered."""
        self._post_task: asyncio.Task[None] | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = self._gone = False
        self._reason = ""

    async def connect(self, receive: Callable[["HttpLink"], Receiver]) -> None:
        """Open a connection to check that the hub is reachable; raise OSError if not."""
        self.remote, self.is_loopback = await self._post_connection.open()
        self._receiver = receive(self)

    # Methods of base.Link.

    def frame(self, packet: Packet) -> bytes:
        """Return a packet with a length prefix, which `write` uses to separate packets."""
        return len(packet.payload).to_bytes(_LENGTH) + packet.payload

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several packets with length prefixes."""
        return b"".join([self.frame(packet) for packet in packets])

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """Raise AssertionError: NQ sends attachments in the body, so no packet has a blob."""
        raise AssertionError("a packet of NQ has no blob")

    def write(self, data: bytes) -> None:
        """Queue packets; each is sent as one POST request, in order, from the next event loop iteration on."""
        if self._gone or self._closing:
            return
        at = 0
        while at < len(data):
            end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH])
            self._queue.append(data[at + _LENGTH : end])
            at = end
        self._size += len(data)
        self.is_full = self._size > HIGH_WATER
        self._stop_timer()
        if self._post_task is None:
            self._post_task = self._loop.create_task(self._post_queued(), name="fiveways.http")

    def unsent_bytes(self) -> int:
        """Return the number of bytes that were not posted yet."""
        return self._size

    def pause_reading(self) -> None:
        """Do nothing: data arrives only in responses."""

    def resume_reading(self) -> None:
        """Do nothing: data arrives only in responses."""

    def discard_incoming(self) -> None:
        """Do nothing: NQ attachments arrive within the body."""

    def ping(self) -> None:
        """Mark the link as alive: each request has its own timeout."""
        self.is_alive = True

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close the link after all queued packets are posted."""
        if self._gone or self._closing:
            return
        self._closing = True
        self._reason = self._reason or text
        self._stop_timer()
        if self._poll_task is not None:
            self._poll_task.cancel()
        if self._post_task is None:
            self.abort()
        else:
            self._timer = self._loop.call_later(_LINGER, self.abort)

    def abort(self) -> None:
        """Close at once."""
        if self._gone:
            return
        self._gone = True
        self._stop_timer()
        self._queue.clear()
        for task in (self._post_task, self._poll_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._post_connection.drop()
        self._poll_connection.drop()
        self._loop.call_soon(self._receiver.lost, self._reason)

    # Sending and receiving.

    async def _post_queued(self) -> None:
        try:
            while self._queue and not self._gone:
                body = self._queue.popleft()
                self._has_posted = True
                await self._post_in_order(self._post_connection, "", body, self._timeout)
                self._shrink(_LENGTH + len(body))
        except OSError as exc:
            self._fail(str(exc))
        finally:
            self._post_task = None
        if self._closing:
            self.abort()
        elif not self._gone:
            self._poll_or_idle()

    def _shrink(self, size: int) -> None:
        self._size -= size
        if self.is_full and self._size < HIGH_WATER // 4:
            self.is_full = False
            self._receiver.writable()

    async def _poll(self) -> None:
        try:
            while self._should_poll():
                self._has_posted = False
                response = await self._post_in_order(
                    self._poll_connection, f"wait={WAIT}", _EMPTY_BATCH, WAIT + self._timeout
                )
                # If a message was posted meanwhile, the hub had a reason to answer the poll at once.
                if response.body == _EMPTY_BATCH and response.duration < _POLL_PAUSE and not self._has_posted:
                    await asyncio.sleep(_POLL_PAUSE)
        except OSError as exc:
            self._fail(str(exc))
        finally:
            self._poll_task = None
        if not self._gone:
            self._poll_or_idle()

    async def _post_in_order(self, connection: "_Connection", query: str, body: bytes, max_wait: float) -> "_Response":
        """Send a POST request, and deliver the response in the order of its number."""
        self._in_flight += 1
        try:
            response = await connection.post(query, self._headers, body, max_wait)
            if self._in_flight > 1 and 0 < self._last_number < response.number - 1:
                self._previous_taken = self._loop.create_future()
                await asyncio.wait([self._previous_taken], timeout=_ORDER_TIMEOUT)
            self._handle_response(response)
        finally:
            self._in_flight -= 1
            if self._previous_taken is not None and not self._previous_taken.done():
                self._previous_taken.set_result(None)
        self._last_number = max(self._last_number, response.number)
        return response

    def _should_poll(self) -> bool:
        return self._has_peer_id and not (self._gone or self._closing) and getattr(self._receiver, "is_expectant", True)

    def _poll_or_idle(self) -> None:
        """Start a poll if the receiver expects messages, else the idle timer."""
        if self._poll_task is not None:
            return
        if self._should_poll():
            self._poll_task = self._loop.create_task(self._poll(), name="fiveways.http")
        elif self._post_task is None and not self._closing:
            self._stop_timer()
            self._timer = self._loop.call_later(self._idle, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        self._post_connection.drop()
        self._poll_connection.drop()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_response(self, response: "_Response") -> None:
        """Deliver the messages of a response; before them, a new peer id as the note that other links send."""
        if self._gone:
            return
        self.is_alive = True
        if response.status == _UNAUTHORIZED:
            text = response.body.decode(errors="replace").strip()
            note = {"e": {"type": "sys", "fatal": True, "note": "denied", "text": text}}
            self._receiver.received(Packet(json.dumps(note).encode()))
            return
        if response.status != _OK:
            parts = urlsplit(self._url)
            self._fail(http_error(parts.netloc, parts.path, response.status, bytes(response.body)))
            return
        if response.peer and not (self._has_peer_id and response.peer == self._headers.get(PEER_HEADER)):
            self._has_peer_id = True
            self._headers[PEER_HEADER] = response.peer
            note = {"e": {"type": "sys", "note": "peer", "args": [response.peer]}}
            self._receiver.received(Packet(json.dumps(note).encode()))
        if response.body != _EMPTY_BATCH:
            self._receiver.received(Packet(bytes(response.body)))

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.abort()


class _Response:
    """One response, parsed by httptools."""

    def __init__(self, max_body: int) -> None:
        self.status = 0
        self.peer = ""
        self.number = 0  # 0 if the hub does not number its responses
        self.body = bytearray()
        self.is_complete = False
        self.keeps_alive = False
        self.duration = 0.0
        """Seconds from request to complete response."""
        self._max_body = max_body
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes; EOFError if the connection ended, ConnectionError if they are not valid HTTP."""
        if not data:
            raise EOFError("the response is incomplete")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            raise ConnectionError(f"the hub sent an invalid HTTP response: {exc}") from exc

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store the headers of NQ."""
        if name.lower() == PEER_HEADER.lower().encode():
            self.peer = value.decode("latin-1").strip()
        elif name.lower() == NUMBER_HEADER.lower().encode() and value.isdigit():
            self.number = int(value[:18])

    def on_body(self, piece: bytes) -> None:
        """Append to the body, up to one byte over the limit: enough for the conversation to refuse it."""
        self.body += piece[: self._max_body + 1 - len(self.body)]

    def on_message_complete(self) -> None:
        """Store status and keep-alive."""
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.is_complete = True


class _Connection:
    """Connection that is opened on demand and reused."""

    def __init__(self, url: str, max_body: int, timeout: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._place = parts.netloc
        self._path = parts.path
        self._query = parts.query
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._max_body = max_body
        self._timeout = timeout
        self._streams: _Streams | None = None

    async def open(self) -> tuple[str, bool]:
        """Connect; return the peer address and whether it is a loopback address."""
        _, writer = await self._open()
        return describe_peer(writer.transport)

    async def _open(self) -> _Streams:
        try:
            async with asyncio.timeout(self._timeout):
                self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._ssl)
        except TimeoutError:
            raise ConnectionError(f"{self._place} did not answer within {self._timeout:g} seconds") from None
        return self._streams

    def drop(self) -> None:
        """Close the connection if it is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def post(self, query: str, headers: Mapping[str, str], body: bytes, max_wait: float) -> _Response:
        """Send a POST request and return the response; OSError with an error text if there is none.

        A reused connection may have been closed by the server. The request is then repeated on a new connection, which
        is safe in NQ.
        """
        was_reused = self._streams is not None
        try:
            return await self._post(query, headers, body, max_wait)
        except _ConnectionClosed:
            if not was_reused:
                raise
        return await self._post(query, headers, body, max_wait)

    async def _post(self, query: str, headers: Mapping[str, str], body: bytes, max_wait: float) -> _Response:
        reader, writer = self._streams or await self._open()
        response, loop = _Response(self._max_body), asyncio.get_running_loop()
        started_at = loop.time()
        try:
            async with asyncio.timeout(max_wait):
                writer.write(self._head(query, headers, len(body)) + body)
                await writer.drain()
                while not response.is_complete:
                    response.feed(await reader.read(_READ))
        except TimeoutError:
            self.drop()
            raise ConnectionError(f"{self._place} did not answer within {max_wait:g} seconds") from None
        except (EOFError, ConnectionResetError, BrokenPipeError) as exc:
            self.drop()
            raise _ConnectionClosed(f"{self._place} closed the connection") from exc
        except BaseException:
            self.drop()  # the rest of an incomplete response must not be read as the next one
            raise
        if not response.keeps_alive:
            self.drop()
        response.duration = loop.time() - started_at
        return response

    def _head(self, query: str, headers: Mapping[str, str], length: int) -> bytes:
        query_string = "&".join(filter(None, [self._query, query]))
        all_headers = {
            "Host": self._place,
            **headers,
            "Content-Type": "application/json",
            "Content-Length": str(length),
        }
        lines = [
            f"POST {self._path}{'?' if query_string else ''}{query_string} HTTP/1.1",
            *map(": ".join, all_headers.items()),
            "",
            "",
        ]
        return "\r\n".join(lines).encode()


async def open_http(
    url: str,
    receive: Callable[[HttpLink], Receiver],
    *,
    limits: Limits,
    spools: SpoolFactory | None = None,  # noqa: ARG001  NQ has no binary messages
    subprotocol: str = "",  # noqa: ARG001  NQ is the only protocol over HTTP
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  the error text contains it
    idle: float | None = None,
) -> HttpLink:
    """Connect to `url`; raise OSError with an error text, or ValueError for an invalid header value."""
    request_headers = headers or {}
    if not all(text.isprintable() for text in request_headers.values()):
        raise ValueError("a token must be printable")
    link = HttpLink(url, request_headers, limits, timeout, IDLE_TIMEOUT if idle is None else idle)
    await link.connect(receive)
    return link
