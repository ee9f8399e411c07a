"""Tests of HTTP on real sockets."""

import asyncio
import inspect
import logging
import random
import socket
from collections.abc import Awaitable, Coroutine

import pytest

from fiveways.transports.http import HttpLimits, Request, Response, serialize
from fiveways.transports.http_protocol import HttpProtocol
from tests.support.raw_http import GET, HANDSHAKE, Client, echo, running
from tests.support.running import on_both_loops
from tests.support.waiting import until

POST = b"POST /a/b?c=d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /a/b?c=d HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;why=not\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
)
RESPONSE = (200, b"POST /a/b c=d hello")


async def run_iterations() -> None:
    """Let the event loop run a few iterations."""
    for _ in range(5):
        await asyncio.sleep(0)


@on_both_loops
async def test_request_is_answered() -> None:
    async with running() as port:
        client = await port.client(GET)
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 7\r\n")
        assert await client.reader.readexactly(7) == b"GET /  "


@on_both_loops
async def test_request_is_parsed_in_any_two_pieces() -> None:
    async with running() as port:
        client = await port.client()
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in (POST, CHUNKED):
            for at in range(1, len(request)):
                client.send(request[:at])
                await run_iterations()
                client.send(request[at:])
                assert await client.answer() == RESPONSE, at


@on_both_loops
async def test_prefix_of_a_request_waits_for_more() -> None:
    async with running() as port:
        for request in (GET, POST, CHUNKED):
            clients = [await port.client(request[:at]) for at in range(1, len(request))]
            await port.ask(GET)
            for client in clients:
                assert not client.reader.at_eof()
                client.writer.write_eof()
            assert {await client.rest() for client in clients} == {b""}


@on_both_loops
async def test_request_is_parsed_byte_by_byte() -> None:
    async with running() as port:
        client = await port.client()
        for byte in CHUNKED:
            client.send(bytes((byte,)))
            await run_iterations()
        assert await client.answer() == RESPONSE


@on_both_loops
async def test_pipelined_requests_are_answered_in_order() -> None:
    async def slow_first(request: Request) -> Response:
        for _ in range(20 if request.path == "/0" else 0):
            await asyncio.sleep(0)
        return echo(request)

    def some_slow(request: Request) -> Response | Awaitable[Response]:
        return slow_first(request) if request.path in {"/0", "/7"} else echo(request)

    count = 200
    async with running(some_slow, limits=HttpLimits(max_pipelined=3)) as port:
        client = await port.client(b"".join(f"GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for n in range(count)))
        for n in range(count):
            assert await client.answer() == (200, f"GET /{n}  ".encode())
        client.send(POST * 2)
        assert [await client.answer(), await client.answer()] == [RESPONSE, RESPONSE]


@on_both_loops
async def test_pipelining_client_does_not_block_others() -> None:
    turns: list[str] = []

    def note(request: Request) -> Response:
        turns.append(request.path)
        return Response(200, b"")

    many = 2000
    async with running(note, limits=HttpLimits(max_pipelined=5)) as port:
        greedy = await port.client(b"GET /greedy HTTP/1.1\r\nHost: a\r\n\r\n" * many)
        modest = await port.client(b"GET /modest HTTP/1.1\r\nHost: a\r\n\r\n")
        await modest.answer()
        assert turns.count("/greedy") < many
        for _ in range(many):
            await greedy.answer()


@on_both_loops
async def test_reading_pauses_while_a_request_is_handled() -> None:
    started, ready = asyncio.Event(), asyncio.Event()

    async def wait(_request: Request) -> Response:
        started.set()
        await ready.wait()
        return Response(200, b"")

    async with running(wait) as port:
        client = await port.client(GET)
        await started.wait()
        flood = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000 + b"\r\n\r\n"
        for _ in range(100_000):
            client.send(flood)
            if client.writer.transport.get_write_buffer_size() > 1 << 20:
                break
        await run_iterations()
        [connection] = port.port._connections._open
        assert isinstance(connection, HttpProtocol)
        assert len(connection._reader._unread) <= 1 << 18
        assert client.writer.transport.get_write_buffer_size() > 1 << 19
        ready.set()
        for _ in range(1000):
            assert await client.answer() == (200, b"")
        client.writer.transport.abort()


@on_both_loops
async def test_slow_client_stops_request_handling() -> None:
    answered = 0

    def large(_request: Request) -> Response:
        nonlocal answered
        answered += 1
        return Response(200, bytes(1 << 18))

    async with running(large) as port:
        client = await port.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        for _ in range(3):
            await port.client()
        before = -1
        while before != answered:
            before = answered
            for _ in range(20):
                await asyncio.sleep(0)
        assert answered < 200
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(1000):
            assert await client.answer() == (200, bytes(1 << 18))


@on_both_loops
async def test_client_that_never_reads_is_aborted() -> None:
    async with running(lambda _: Response(200, bytes(1 << 24)), limits=HttpLimits(write_timeout=0.1)) as port:
        for request in (GET, b"GET / HTTP/1.0\r\n\r\n"):
            client = await port.client()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(request)
            await until(lambda: port.port.connections() == 1)
            await until(lambda: port.port.connections() == 0)
            client.writer.transport.abort()


@pytest.mark.parametrize("request_", [GET, b"GET / HTTP/1.0\r\n\r\n"])
@on_both_loops
async def test_slowly_reading_client_is_not_aborted(request_: bytes) -> None:
    size = 1 << 24
    async with running(lambda _: Response(200, bytes(size)), limits=HttpLimits(write_timeout=1.0)) as port:
        client = await port.client(request_)
        await client.head()
        left = size
        while left:
            left -= len(await client.reader.read(1 << 18))
            await asyncio.sleep(0.02)


@on_both_loops
async def test_large_and_delayed_responses_are_sent_in_order() -> None:
    size, ready = 1 << 23, asyncio.Event()

    async def later(request: Request) -> Response:
        await ready.wait()
        return echo(request)

    def large_or_delayed(request: Request) -> Response | Awaitable[Response]:
        return Response(200, bytes(size)) if request.path == "/large" else later(request)

    async with running(large_or_delayed) as port:
        client = await port.client(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        ready.set()
        for _ in range(2):
            assert await client.answer() == (200, b"GET /late  ")
            assert await client.answer() == (200, bytes(size))


@pytest.mark.parametrize(
    ("request_line", "headers", "kept"),
    [
        (b"GET / HTTP/1.1", b"Host: a\r\n", True),
        (b"GET / HTTP/1.1", b"Host: a\r\nConnection: close\r\n", False),
        (b"GET / HTTP/1.1", b"Host: a\r\nConnection: Foo, Close\r\n", False),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive\r\n", True),
    ],
)
@on_both_loops
async def test_connection_is_kept_alive_on_request(request_line: bytes, headers: bytes, kept: bool) -> None:
    request = request_line + b"\r\n" + headers + b"\r\n"
    async with running() as port:
        client = await port.client(request)
        head = await client.head()
        assert (b"Connection: close\r\n" in head) is not kept
        assert (b"Connection: keep-alive\r\n" in head) is (kept and b"1.0" in request_line)
        await client.reader.readexactly(7)
        if kept:
            client.send(request)
            assert await client.answer() == (200, b"GET /  ")
        else:
            assert await client.rest() == b""


@on_both_loops
async def test_head_is_get_without_a_body() -> None:
    async with running() as port:
        client = await port.client(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        assert b"Content-Length: 8\r\n" in await client.head()
        assert await client.answer() == (200, b"GET /  ")


@on_both_loops
async def test_expect_100_continue_is_answered() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    async with running() as port:
        client = await port.client(GET + head)
        assert await client.answer() == (200, b"GET /  ")
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"hello")
        assert await client.answer() == (200, b"POST /  hello")
        client.send(head + b"hello")  # the body was sent at once, so no 100 Continue
        assert await client.answer() == (200, b"POST /  hello")


@on_both_loops
async def test_half_closed_connection_gets_its_responses() -> None:
    async def later(request: Request) -> Response:
        await run_iterations()
        return echo(request)

    async with running(later) as port:
        client = await port.client(GET + POST)
        client.writer.write_eof()
        assert [await client.answer(), await client.answer()] == [(200, b"GET /  "), RESPONSE]
        assert await client.rest() == b""


@on_both_loops
async def test_half_closed_connection_gets_its_error() -> None:
    async def later(request: Request) -> Response:
        await run_iterations()
        return echo(request)

    async with running(later) as port:
        for bad, status in ((b"HELLO\r\n\r\n", b"400"), (HANDSHAKE, b"")):
            client = await port.client(GET + bad)
            client.writer.write_eof()
            assert await client.answer() == (200, b"GET /  ")
            assert (await client.rest())[9:12] == status


@on_both_loops
async def test_disconnect_cancels_the_handler() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(_request: Request) -> Response:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with running(wait) as port:
        client = await port.client(GET)
        await started.wait()
        linger_zero = b"\x01\0\0\0\0\0\0\0"
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        client.writer.transport.abort()
        await ended.wait()


INVALID_REQUESTS = {
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "no method": (400, b"HELLO / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "lower case": (400, b"get / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "bare line feeds": (400, b"GET / HTTP/1.1\nHost: x\n\n"),
    "one bare line feed": (400, b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"),
    "bare carriage return": (400, b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"),
    "folded header": (400, b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n"),
    "blank before colon": (400, b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"),
    "no colon": (400, b"GET / HTTP/1.1\r\nHost\r\n\r\n"),
    "zero byte": (400, b"GET / HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n"),
    "bytes in the path": (400, b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no path": (400, b"GET foo HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no host in url": (400, b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"),
    "http 2": (505, b"GET / HTTP/2.0\r\n\r\n"),
    "http 2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "http 0.9": (505, b"GET /\r\n\r\n"),
    "http 0.9 twice": (400, b"GET /\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "proxy": (501, b"CONNECT example.com:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    "two tokens": (400, b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nauthorization: b\r\n\r\n"),
    "two lengths": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    "empty length": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
    "signed length": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na"),
    "huge length": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999999\r\n\r\n"),
    "large length": (413, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\nExpect: 100-continue\r\n\r\n"),
    "length and chunks": (
        400,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "gzip": (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    "chunks in 1.0": (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "expects more": (417, b"GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n"),
    "long head": (431, b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 2048 + b"\r\n\r\n"),
    "long path": (431, b"GET /" + b"a" * 2048),
    "many headers": (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 512),
    "no size": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"),
    "negative size": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"),
    "prefixed size": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n"),
    "bare line feed after size": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n"),
    "huge size": (413, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
    "too many chunks": (
        413,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1025,
    ),
    "long chunk": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"),
    "long extension": (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 2000),
    "odd trailer": (
        400,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
    ),
    "many trailers": (
        400,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 2000,
    ),
}


@pytest.mark.parametrize(("status", "data"), INVALID_REQUESTS.values(), ids=INVALID_REQUESTS.keys())
@on_both_loops
async def test_invalid_request_gets_an_error_and_is_closed(status: int, data: bytes) -> None:
    started: list[Request] = []

    def note(request: Request) -> Response:
        started.append(request)
        return echo(request)

    async with running(note, limits=HttpLimits(max_header=1024, max_body=1024)) as port:
        client = await port.client(GET + data)
        assert await client.answer() == (200, b"GET /  ")
        head = await client.head()
        assert int(head[9:12]) == status
        assert b"Connection: close\r\n" in head
        assert (await client.rest()).endswith(b"\n")
        assert len(started) == 1
        assert await port.ask(GET) == (200, b"GET /  ")


REQUESTS_AT_THE_LIMITS = {
    "head": b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * (1024 - 32) + b"\r\n\r\n",
    "body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + bytes(1024),
    "chunks": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n"
    + bytes(1024)
    + b"\r\n0\r\n\r\n",
    "blank lines": b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("data", REQUESTS_AT_THE_LIMITS.values(), ids=REQUESTS_AT_THE_LIMITS.keys())
@on_both_loops
async def test_request_at_the_limits_is_answered(data: bytes) -> None:
    async with running(limits=HttpLimits(max_header=1024, max_body=1024)) as port:
        status, _ = await port.ask(data)
        assert status == 200
        if data.startswith(b"GET"):
            assert (await port.ask(data.replace(b"a\r\n", b"aa\r\n")))[0] == 431


@on_both_loops
async def test_refusal_is_delivered_while_the_client_sends() -> None:
    async with running() as port:
        client = await port.client(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
        for _ in range(20):
            client.send(bytes(1 << 20))
            await run_iterations()
        assert (await client.answer())[0] == 413
        assert await client.rest() == b""


@on_both_loops
async def test_garbage_does_not_affect_the_port() -> None:
    random_source = random.Random(7)
    pieces = [b"GET ", b"/", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Host: x", b"Content-Length: 3", b":", b"\0", b"\xff"]
    pieces += [b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", b"Upgrade: websocket\r\nConnection: upgrade\r\n"]
    async with running() as port:
        for _ in range(300):
            client = await port.client(b"".join(random_source.choices(pieces, k=random_source.randrange(1, 20))))
            client.writer.write_eof()
            received = await client.rest()
            assert received == b"" or received.startswith(b"HTTP/1.1 ")
            await client.close()
        assert await port.ask(GET) == (200, b"GET /  ")


@on_both_loops
async def test_failing_handler_gives_500_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_later(_request: Request) -> Response:
        await asyncio.sleep(0)
        raise RuntimeError("oh")

    async def is_cancelled(_request: Request) -> Response:
        raise asyncio.CancelledError

    def fail(request: Request) -> Response | Awaitable[Response]:
        if request.path == "/later":
            return fails_later(request)
        if request.path == "/cancelled":
            return is_cancelled(request)
        if request.path == "/header":
            return Response(200, b"", headers={"X": "a\r\nB: c"})
        if request.path == "/nothing":
            return None  # type: ignore[return-value]
        if request.path == "/":
            raise RuntimeError("oh")
        return echo(request)

    async with running(fail) as port:
        client = await port.client()
        for path in ("/", "/later", "/header", "/nothing", "/cancelled"):
            with caplog.at_level(logging.ERROR, "fiveways.http"):
                client.send(f"GET {path}?token=secret HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\n\r\n".encode())
                status, body = await client.answer()
            assert (status, body.endswith(b"\n")) == (500, True)
            assert [path in record.getMessage() for record in caplog.records] == [True] * (path != "/cancelled")
            assert "secret" not in caplog.text
            caplog.clear()
        client.send(POST)
        assert await client.answer() == RESPONSE


@on_both_loops
async def test_host_of_an_absolute_target_replaces_the_header() -> None:
    async with running(lambda request: Response(200, f"{request.path} {request.headers}".encode())) as port:
        request = b"GET http://Other:80/x/y?z HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert await port.ask(request) == (200, b"/x/y {'host': 'Other:80'}")
        assert await port.ask(b"GET http://other?z HTTP/1.1\r\nHost: a\r\n\r\n") == (200, b"/ {'host': 'other'}")
        assert await port.ask(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n") == (200, b"* {'host': 'a'}")


@on_both_loops
async def test_repeated_headers_are_joined() -> None:
    async with running(lambda request: Response(200, str(request.headers).encode())) as port:
        request = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: a\r\nACCEPT:b \r\nCookie: c\r\nCookie: d\r\n\r\n"
        assert await port.ask(request) == (200, b"{'host': 'a', 'accept': 'a, b', 'cookie': 'c; d'}")


@on_both_loops
async def test_proxied_client_is_not_loopback() -> None:
    async with running(lambda request: Response(200, f"{request.is_loopback} {request.remote}".encode())) as port:
        client = await port.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        own = "{}:{}".format(*client.writer.get_extra_info("sockname"))
        assert await client.answer() == (200, f"True {own}".encode())
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
        assert await client.answer() == (200, f"False {own}".encode())


# Timeouts.


async def read_to_end(client: Client) -> bytes:
    async with asyncio.timeout(60):
        return await client.rest()


@on_both_loops
async def test_slow_request_gets_408_and_idle_connection_is_closed() -> None:
    async with running(limits=HttpLimits(head_timeout=0.5, idle_timeout=0.1, body_timeout=0.1)) as port:
        silent = await port.client()
        blank = await port.client(b"\r\n\r\n")
        head = await port.client(GET[:-1])
        body = await port.client(POST[:-1])
        chunks = await port.client(CHUNKED[:-1])
        idle = await port.client(GET)
        assert await idle.answer() == (200, b"GET /  ")
        for client in (silent, blank, idle):
            assert await read_to_end(client) == b""
        for client in (head, body, chunks):
            assert (await read_to_end(client)).startswith(b"HTTP/1.1 408 ")


@on_both_loops
async def test_slow_head_does_not_extend_its_timeout() -> None:
    async with running(limits=HttpLimits(head_timeout=0.5)) as port:
        client = await port.client()
        answer = asyncio.ensure_future(read_to_end(client))
        sent = 0
        while not answer.done():
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\nA: a"[sent : sent + 1] or b"a")
            sent += 1
            await asyncio.sleep(0.01)
        assert (await answer).startswith(b"HTTP/1.1 408 ")


@on_both_loops
async def test_handler_has_no_timeout() -> None:
    async def later(_request: Request) -> Response:
        await asyncio.sleep(0.7)
        return Response(200, b"at last")

    times = HttpLimits(head_timeout=0.5, idle_timeout=0.1, body_timeout=0.1, write_timeout=0.1)
    async with running(later, limits=times) as port:
        client = await port.client(POST)
        assert await client.answer() == (200, b"at last")
        assert await read_to_end(client) == b""


@on_both_loops
async def test_client_that_reads_again_gets_its_response() -> None:
    async def later(_request: Request) -> Response:
        [connection] = port.port._connections._open
        assert isinstance(connection, HttpProtocol)
        connection.pause_writing()
        connection.resume_writing()
        await asyncio.sleep(0.2)
        return Response(200, b"at last")

    async with running(later, limits=HttpLimits(write_timeout=0.1)) as port:
        assert await port.ask(GET) == (200, b"at last")


# Responses.


def test_bodiless_response_has_no_content_length() -> None:
    data = serialize(Response(204, b"", headers={"Set-Cookie": "a=b"}), keep_alive=True)
    assert data == b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b\r\n\r\n"


def test_connection_header_of_a_handler_is_merged() -> None:
    upgrade = Response(426, b"", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert b"Connection: close, Upgrade\r\n" in serialize(upgrade, keep_alive=False)
    assert b"Connection: Upgrade\r\n" in serialize(upgrade, keep_alive=True)


@pytest.mark.parametrize(
    "response",
    [
        Response(101, b""),
        Response(999, b""),
        Response(200, b"", "text/plain\r\nX: y"),
        Response(200, b"", headers={"X\r\n": "y"}),
        Response(200, b"", headers={"": "y"}),
        Response(200, b"", headers={"X": "y\n"}),
        Response(200, b"", headers={"X": "\N{SNOWMAN}"}),
        Response(200, b"", headers={"Connection": "a\r\nX: y"}),
        Response(200, b"", headers={"Content-Length": "3"}),
        Response(200, b"", headers={"transfer-encoding": "chunked"}),
    ],
)
def test_invalid_response_is_an_error(response: Response) -> None:
    with pytest.raises(ValueError, match=r"."):
        serialize(response, keep_alive=True)


def test_repr_omits_secrets() -> None:
    request = Request("GET", "/", "token=secret", {"authorization": "secret"}, b"secret", "127.0.0.1:1", True)
    response = Response(200, b"secret", headers={"Set-Cookie": "secret"})
    assert f"{request!r} {response!r}" == "Request(GET / from 127.0.0.1:1) Response(200, 6 bytes)"


@on_both_loops
async def test_unstarted_handler_is_closed_after_disconnect() -> None:
    started: list[Coroutine[object, object, Response]] = []

    async def later(request: Request) -> Response:
        return echo(request)

    def answer(request: Request) -> Coroutine[object, object, Response]:
        (connection,) = port.port._connections._open
        assert isinstance(connection, HttpProtocol)
        connection._socket.abort()
        started.append(later(request))
        return started[0]

    async with running(answer) as port:
        client = await port.client(GET)
        assert await client.rest() == b""
        await until(lambda: not port.port.connections())
        assert inspect.getcoroutinestate(started[0]) == inspect.CORO_CLOSED


@on_both_loops
async def test_http_1_1_request_without_a_host_is_refused() -> None:
    async with running() as port:
        for target in (b"/", b"http://localhost/"):
            status, text = await port.ask(b"GET " + target + b" HTTP/1.1\r\n\r\n")
            assert (status, text) == (400, b"a request in HTTP/1.1 needs the header Host\n")
        assert (await port.ask(HANDSHAKE.replace(b"Host: localhost\r\n", b"")))[0] == 400
        # HTTP/1.0 has no such header, and an empty one is valid.
        for request in (b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost:\r\n\r\n"):
            assert (await port.ask(request))[0] == 200


@on_both_loops
async def test_content_encoding_gets_415() -> None:
    async with running() as port:
        for name in (b"gzip", b"GZIP", b"br", b"identity, gzip"):
            encoded = POST.replace(b"Content-Length", b"Content-Encoding: " + name + b"\r\nContent-Length")
            client = await port.client(encoded)
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 415 ")
            assert b"\r\nAccept-Encoding: identity\r\n" in head
            assert await client.rest() == b"content encodings are not supported\n"
        plain = POST.replace(b"Content-Length", b"Content-Encoding: Identity\r\nContent-Length")
        assert (await port.ask(plain))[0] == 200
