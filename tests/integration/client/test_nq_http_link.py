"""NQ over HTTP: polling, idle connections, and invalid responses."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fiveways.client.connect import connect
from fiveways.errors import ConnectionLost
from fiveways.transports import http_client
from fiveways.transports.http_client import HttpLink, open_http
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.raw_peers import hub
from tests.support.running import async_test
from tests.support.waiting import until

NAMED = b'{"e": {"type": "sys", "note": "peer", "args": ["p1"]}}'


def http_response(body: bytes = b"[]", status: str = "200 OK", **headers: str) -> bytes:
    all_headers = {"NQ-Peer": "p1", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in all_headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


class Web:
    """A server with scripted responses that records its requests."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[tuple[str, bytes]] = []
        self.heads: list[bytes] = []
        self.answers: deque[bytes | asyncio.Future[bytes] | None] = deque()
        """A future is a delayed response; None closes the connection."""
        self.connections = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
                self.heads.append(head)
                self.asked.append((head.split()[1].decode(), await reader.readexactly(length)))
                answer = self.answers.popleft() if self.answers else http_response()
                if answer is None:
                    break
                writer.write(await answer if isinstance(answer, asyncio.Future) else answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def web() -> AsyncIterator[Web]:
    place = Web()
    server = await asyncio.start_server(place.serve, "127.0.0.1", 0)
    place.port = server.sockets[0].getsockname()[1]
    try:
        yield place
    finally:
        server.close()
        await asyncio.sleep(0.01)


class RecordingReceiver:
    """Records the calls of a link. Implements `transports.base.Receiver`."""

    def __init__(self) -> None:
        self.is_expectant = False
        self.packets: asyncio.Queue[bytes] = asyncio.Queue()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.room = asyncio.Event()

    def received(self, packet: Packet) -> None:
        self.packets.put_nowait(packet.payload)

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None:
        self.room.set()

    def lost(self, reason: str) -> None:
        self.over.set_result(reason)


@asynccontextmanager
async def linked(
    place: Web, limits: Limits | None = None, **options: object
) -> AsyncIterator[tuple[HttpLink, RecordingReceiver]]:
    receiver = RecordingReceiver()
    url = f"http://127.0.0.1:{place.port}/nq"
    link = await open_http(url, lambda _: receiver, limits=limits or Limits(), **options)  # type: ignore[arg-type]
    try:
        yield link, receiver
    finally:
        link.abort()
        await receiver.over
        await asyncio.sleep(0)


def write(link: HttpLink, *texts: bytes) -> None:
    link.write(link.frames([Packet(text) for text in texts]))


@async_test
async def test_packets_are_posted_sequentially_on_one_connection() -> None:
    async with web() as place, linked(place, headers={"Authorization": "Bearer t"}) as (link, receiver):
        place.answers.extend([http_response(b'{"i":"1"}'), http_response(b'{"i":"2"}')])
        write(link, b'{"a":1}', b"[2]")
        assert [await receiver.packets.get() for _ in range(3)] == [NAMED, b'{"i":"1"}', b'{"i":"2"}']
        assert place.asked == [("/nq", b'{"a":1}'), ("/nq", b"[2]")]
        assert place.connections == 1
        assert b"Authorization: Bearer t\r\n" in place.heads[0]
        assert b"NQ-Peer" not in place.heads[0]
        assert b"NQ-Peer: p1\r\n" in place.heads[1]


@async_test
async def test_lost_keepalive_connection_is_replaced() -> None:
    async with web() as place, linked(place) as (link, receiver):
        write(link, b"[]")
        assert await receiver.packets.get() == NAMED
        place.answers.extend([None, http_response(b"[3]")])
        write(link, b"[1]")
        assert await receiver.packets.get() == b"[3]"
        assert (place.connections, len(place.asked)) == (2, 3)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            [http_response(b"nothing is served here", "404 Not Found")],
            r"no Fiveways hub \(404 for /nq\)$",
        ),
        ([http_response(b"", "503 Service Unavailable")], "refused: 503"),
        ([b"SSH-2.0-OpenSSH_9.0\r\n"], "invalid HTTP response"),
        ([None, None], "closed the connection"),
        ([b"HTTP/1.1 200 OK\r\nContent-Le"], "did not answer within 1.5 seconds"),
    ],
)
@async_test
async def test_invalid_response_ends_the_link(answers: list[bytes | None], reason: str) -> None:
    async with web() as place, linked(place, timeout=1.5) as (link, receiver):
        place.answers.extend(answers)
        write(link, b"[]")
        assert re.search(reason, await receiver.over)


@async_test
async def test_too_large_response_is_read_one_byte_beyond_the_limit() -> None:
    async with web() as place, linked(place, Limits(max_text=100)) as (link, receiver):
        place.answers.append(http_response(b"[" + b"1," * 500 + b"1]"))
        write(link, b"[]")
        assert await receiver.packets.get() == NAMED
        assert len(await receiver.packets.get()) == 101


@async_test
async def test_hub_without_long_polling_is_polled_slowly() -> None:
    async with web() as place, linked(place) as (link, receiver):
        receiver.is_expectant = True
        write(link, b"[1]")
        await receiver.packets.get()
        await asyncio.sleep(0.1)
        assert place.asked == [("/nq", b"[1]"), ("/nq?wait=20", b"[]")]


@async_test
async def test_responses_on_two_connections_are_handled_in_order() -> None:
    async with web() as place, linked(place) as (link, receiver):
        receiver.is_expectant = True
        late = asyncio.get_running_loop().create_future()
        place.answers.extend([http_response(b"[1]", NQ_Answer="1"), late, http_response(b"[3]", NQ_Answer="3")])
        write(link, b"[]")
        assert [await receiver.packets.get() for _ in range(2)] == [NAMED, b"[1]"]
        await until(lambda: len(place.asked) == 2)
        write(link, b"[]")
        await until(lambda: len(place.asked) == 3)
        await asyncio.sleep(0.05)  # time to handle the third response too early
        late.set_result(http_response(b"[2]", NQ_Answer="2"))
        assert [await receiver.packets.get() for _ in range(2)] == [b"[2]", b"[3]"]


@async_test
async def test_response_after_a_lost_one_is_handled_after_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_ORDER_TIMEOUT", 0.01)
    async with web() as place, linked(place) as (link, receiver):
        receiver.is_expectant = True
        never = asyncio.get_running_loop().create_future()
        place.answers.extend([http_response(b"[1]", NQ_Answer="1"), never, http_response(b"[3]", NQ_Answer="3")])
        write(link, b"[]")
        assert [await receiver.packets.get() for _ in range(2)] == [NAMED, b"[1]"]
        await until(lambda: len(place.asked) == 2)
        write(link, b"[]")
        assert await receiver.packets.get() == b"[3]"
        never.cancel()


@async_test
async def test_idle_link_has_no_open_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "IDLE_TIMEOUT", 0.01)
    async with web() as place, linked(place) as (link, receiver):
        write(link, b"[1]")
        await receiver.packets.get()
        await until(lambda: place.open == 0)
        write(link, b"[2]")
        await until(lambda: len(place.asked) == 2)
        assert not receiver.over.done()


@async_test
async def test_link_with_much_unsent_data_is_full() -> None:
    async with web() as place, linked(place) as (link, receiver):
        write(link, b"x" * (http_client.HIGH_WATER + 1))
        assert link.is_full
        assert link.unsent_bytes() > http_client.HIGH_WATER
        await receiver.room.wait()
        assert (link.is_full, link.unsent_bytes()) == (False, 0)


@async_test
async def test_close_posts_pending_packets() -> None:
    async with web() as place, linked(place) as (link, receiver):
        write(link, b"[1]", b"[2]")
        link.close()
        write(link, b"[3]")
        assert await receiver.over == ""
        assert [body for _, body in place.asked] == [b"[1]", b"[2]"]


@async_test
async def test_token_with_a_line_break_is_refused() -> None:
    async with web() as place:
        with pytest.raises(ConnectionLost, match="printable"):
            await connect(f"nq+http://127.0.0.1:{place.port}", token="a\r\nb: c")  # noqa: S106


@async_test
async def test_error_of_a_hub_without_tls_names_the_scheme() -> None:
    async with hub() as place:
        with pytest.raises(ConnectionLost, match="does not speak TLS"):
            await connect(f"nq+https://127.0.0.1:{place.port}")


@async_test
async def test_client_polls_only_while_it_expects_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "IDLE_TIMEOUT", 0.01)
    async with hub() as place, connect(f"nq+http://127.0.0.1:{place.port}") as peer:
        link = peer._reconnector._resumable._link  # type: ignore[union-attr]
        assert isinstance(link, HttpLink)
        assert await peer.call("hub.echo", 1) == 1
        await until(lambda: link._post_connection._streams is None)
        async with peer.subscribe("news"):
            await until(lambda: link._poll_connection._streams is not None)
        assert await peer.call("hub.echo", 2) == 2
