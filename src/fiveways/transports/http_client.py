"""A link over HTTP: what we say is posted, and what the hub says comes in its answers, for which it is asked again."""

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
"""The headers that give and take the id of a peer, and number the hub's answers to it."""
WAIT: Final = 20
"""Seconds that the hub may wait for something to say."""
IDLE_TIMEOUT: Final = 5.0
"""Seconds after which connections are closed that nothing is said or expected on."""
HIGH_WATER: Final = 1 << 18
_EMPTY_BATCH: Final = b"[]"
_LENGTH: Final = 4
_LINGER: Final = 2.0
_POLL_PAUSE: Final = 1.0
"""Seconds before a hub is asked again that did not wait."""
_ORDER_TIMEOUT: Final = 5.0
"""Seconds that an answer waits for the one before it, which may be lost with its connection."""
_READ: Final = 1 << 16
_OK, _UNAUTHORIZED = 200, 401


_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _ConnectionClosed(ConnectionError):
    """The other end closed the connection before it answered."""


class HttpLink:
    """A link that has a hub only while it is asked. Fulfils `base.Link`.

    Two connections at most: on one of them, what is said goes out in its order; on the other the hub is waited for, as
    long as the receiver `is_expectant`. A hub answers the older of two questions at once. It numbers its answers, and
    they are taken in that order, even if the two connections deliver them in another.
    """

    transport = "http"

    def __init__(self, url: str, headers: Mapping[str, str], limits: Limits, timeout: float, idle: float) -> None:
        """Make it; `receive` gets it when it is connected."""
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
        """Questions whose answers were not taken yet: 2 at most."""
        self._last_number = 0
        """The highest number of an answer that was taken."""
        self._previous_taken: asyncio.Future[None] | None = (
            None  # done when the answer before the waiting one was taken
        )
        self._post_task: asyncio.Task[None] | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = self._gone = False
        self._reason = ""

    async def connect(self, receive: Callable[["HttpLink"], Receiver]) -> None:
        """See whether anybody is there; OSError if not."""
        self.remote, self.is_loopback = await self._post_connection.open()
        self._receiver = receive(self)

    # What the runtime asks for.

    def frame(self, packet: Packet) -> bytes:
        """Return a packet with its length, by which `write` tells them apart."""
        return len(packet.payload).to_bytes(_LENGTH) + packet.payload

    def frames(self, packets: Sequence[Packet]) -> bytes:
        """Return several packets."""
        return b"".join([self.frame(packet) for packet in packets])

    def frame_piece(self, piece: bytes, *, first: bool, last: bool) -> bytes:
        """There are no pieces: a packet is a body, and NQ puts attachments into it."""
        raise AssertionError("a packet of NQ has no blob")

    def write(self, data: bytes) -> None:
        """Post packets, one after the other, from the next pass on."""
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
        """Return how much was not posted yet."""
        return self._size

    def pause_reading(self) -> None:
        """Nothing comes that was not asked for."""

    def resume_reading(self) -> None:
        """Nothing comes that was not asked for."""

    def discard_incoming(self) -> None:
        """Keep it: no attachment comes by itself."""

    def ping(self) -> None:
        """Be content: each question has a time of its own."""
        self.is_alive = True

    def close(self, code: int = 1000, text: str = "") -> None:
        """Close after what was written."""
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

    # Out and in.

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
                answer = await self._post_in_order(
                    self._poll_connection, f"wait={WAIT}", _EMPTY_BATCH, WAIT + self._timeout
                )
                # A hub that was told something in between had a reason not to wait.
                if answer.body == _EMPTY_BATCH and answer.duration < _POLL_PAUSE and not self._has_posted:
                    await asyncio.sleep(_POLL_PAUSE)
        except OSError as exc:
            self._fail(str(exc))
        finally:
            self._poll_task = None
        if not self._gone:
            self._poll_or_idle()

    async def _post_in_order(self, connection: "_Connection", query: str, body: bytes, patience: float) -> "_Answer":
        """Post, and take the answer when its turn has come."""
        self._in_flight += 1
        try:
            answer = await connection.post(query, self._headers, body, patience)
            if self._in_flight > 1 and 0 < self._last_number < answer.number - 1:
                self._previous_taken = self._loop.create_future()
                await asyncio.wait([self._previous_taken], timeout=_ORDER_TIMEOUT)
            self._handle_answer(answer)
        finally:
            self._in_flight -= 1
            if self._previous_taken is not None and not self._previous_taken.done():
                self._previous_taken.set_result(None)
        self._last_number = max(self._last_number, answer.number)
        return answer

    def _should_poll(self) -> bool:
        return self._has_peer_id and not (self._gone or self._closing) and getattr(self._receiver, "is_expectant", True)

    def _poll_or_idle(self) -> None:
        """Wait for what the hub may say, or for nothing."""
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

    def _handle_answer(self, answer: "_Answer") -> None:
        """Pass on what the hub said; an id that is new to us first, as over other links."""
        if self._gone:
            return
        self.is_alive = True
        if answer.status == _UNAUTHORIZED:
            text = answer.body.decode(errors="replace").strip()
            note = {"e": {"type": "sys", "fatal": True, "note": "denied", "text": text}}
            self._receiver.received(Packet(json.dumps(note).encode()))
            return
        if answer.status != _OK:
            parts = urlsplit(self._url)
            self._fail(http_error(parts.netloc, parts.path, answer.status, bytes(answer.body)))
            return
        if answer.peer and not (self._has_peer_id and answer.peer == self._headers.get(PEER_HEADER)):
            self._has_peer_id = True
            self._headers[PEER_HEADER] = answer.peer
            note = {"e": {"type": "sys", "note": "peer", "args": [answer.peer]}}
            self._receiver.received(Packet(json.dumps(note).encode()))
        if answer.body != _EMPTY_BATCH:
            self._receiver.received(Packet(bytes(answer.body)))

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.abort()


class _Answer:
    """One answer, as httptools reads it."""

    def __init__(self, most: int) -> None:
        self.status = 0
        self.peer = ""
        self.number = 0  # stays 0 if the hub does not number its answers
        self.body = bytearray()
        self.is_complete = False
        self.keeps_alive = False
        self.duration = 0.0
        """How long it took."""
        self._most = most
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read on; EOFError if there is nothing more, ConnectionError if it makes no sense."""
        if not data:
            raise EOFError("it is not finished")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            raise ConnectionError(f"the hub answered with what is no HTTP: {exc}") from exc

    def on_header(self, name: bytes, value: bytes) -> None:
        """Look for those that matter."""
        if name.lower() == PEER_HEADER.lower().encode():
            self.peer = value.decode("latin-1").strip()
        elif name.lower() == NUMBER_HEADER.lower().encode() and value.isdigit():
            self.number = int(value[:18])

    def on_body(self, piece: bytes) -> None:
        """Keep one byte more than is allowed, which is enough for the conversation to refuse it."""
        self.body += piece[: self._most + 1 - len(self.body)]

    def on_message_complete(self) -> None:
        """Know that all of it has come."""
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.is_complete = True


class _Connection:
    """A connection that is opened when it is needed and kept for the next question."""

    def __init__(self, url: str, most: int, timeout: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._place = parts.netloc
        self._path = parts.path
        self._query = parts.query
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._most = most
        self._timeout = timeout
        self._streams: _Streams | None = None

    async def open(self) -> tuple[str, bool]:
        """Connect; return where to, and whether that is this machine."""
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
        """Close it, if it is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def post(self, query: str, headers: Mapping[str, str], body: bytes, patience: float) -> _Answer:
        """Ask; OSError, with a sentence, if there is no answer.

        A connection that was kept may be gone by now: then it is asked again on a new one, which NQ does not mind.
        """
        was_kept = self._streams is not None
        try:
            return await self._post(query, headers, body, patience)
        except _ConnectionClosed:
            if not was_kept:
                raise
        return await self._post(query, headers, body, patience)

    async def _post(self, query: str, headers: Mapping[str, str], body: bytes, patience: float) -> _Answer:
        reader, writer = self._streams or await self._open()
        answer, loop = _Answer(self._most), asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            async with asyncio.timeout(patience):
                writer.write(self._head(query, headers, len(body)) + body)
                await writer.drain()
                while not answer.is_complete:
                    answer.feed(await reader.read(_READ))
        except TimeoutError:
            self.drop()
            raise ConnectionError(f"{self._place} did not answer within {patience:g} seconds") from None
        except (EOFError, ConnectionResetError, BrokenPipeError) as exc:
            self.drop()
            raise _ConnectionClosed(f"{self._place} closed the connection") from exc
        except BaseException:
            self.drop()  # half of an answer is none
            raise
        if not answer.keeps_alive:
            self.drop()
        answer.duration = loop.time() - asked_at
        return answer

    def _head(self, query: str, headers: Mapping[str, str], length: int) -> bytes:
        asked = "&".join(filter(None, [self._query, query]))
        given = {"Host": self._place, **headers, "Content-Type": "application/json", "Content-Length": str(length)}
        lines = [f"POST {self._path}{'?' if asked else ''}{asked} HTTP/1.1", *map(": ".join, given.items()), "", ""]
        return "\r\n".join(lines).encode()


async def open_http(
    url: str,
    receive: Callable[[HttpLink], Receiver],
    *,
    limits: Limits,
    spools: SpoolFactory | None = None,  # noqa: ARG001  there are no messages besides those in JSON
    subprotocol: str = "",  # noqa: ARG001  nor another protocol
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  it is part of the sentence when it is over
    idle: float | None = None,
) -> HttpLink:
    """Connect to `url`; OSError, with a sentence, if nobody is there, and ValueError if a header cannot be sent."""
    given = headers or {}
    if not all(text.isprintable() for text in given.values()):
        raise ValueError("a token is printable")
    link = HttpLink(url, given, limits, timeout, IDLE_TIMEOUT if idle is None else idle)
    await link.connect(receive)
    return link
