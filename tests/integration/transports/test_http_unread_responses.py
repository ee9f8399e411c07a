"""Tests of the count of unread response bytes."""

import asyncio
import socket

from fiveways.transports.http import HttpLimits, Request, Response
from fiveways.transports.http_protocol import HttpProtocol
from tests.support.raw_http import GET, HANDSHAKE, masked, running, unmasked
from tests.support.running import on_both_loops
from tests.support.waiting import until

LARGE = Response(200, bytes(32 << 20))
"""More than a socket accepts at once."""


def large(_request: Request) -> Response:
    return LARGE


@on_both_loops
async def test_unread_bytes_are_counted_until_read() -> None:
    async with running(large) as port:
        assert port.port.unread() == 0
        clients = [await port.client(GET) for _ in range(2)]
        await until(lambda: port.port.unread() > len(LARGE.body))
        assert port.port.unread() <= 2 * (len(LARGE.body) + 1000)
        for client in clients:
            assert await client.answer() == (200, LARGE.body)
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_unread_bytes_are_counted_until_disconnect() -> None:
    async with running(large) as port:
        gone = await port.client(GET)
        await until(lambda: port.port.unread() > 0)
        gone.writer.transport.abort()
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_client_that_never_reads_is_disconnected() -> None:
    async with running(large, limits=HttpLimits(write_timeout=0.05)) as port:
        await port.client(GET)
        await until(lambda: port.port.unread() > 0)
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_response_read_at_once_is_not_counted() -> None:
    async with running() as port:
        assert await port.ask(GET) == (200, b"GET /  ")
        assert port.port.unread() == 0


@on_both_loops
async def test_upgraded_socket_is_no_longer_counted() -> None:
    counts: list[int] = []

    def answer(_request: Request) -> Response:
        """Make the socket accept little, and record the count when it is full."""
        (connection,) = port.port._connections._open
        assert isinstance(connection, HttpProtocol)
        connection._socket.set_write_buffer_limits(high=0)
        connection._socket.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        pause = connection.pause_writing

        def paused() -> None:
            pause()
            counts.append(port.port.unread())

        connection.pause_writing = paused  # type: ignore[method-assign]
        return Response(200, bytes(60_000))  # written together with the handshake response

    async with running(answer) as port:
        client = await port.client(GET + HANDSHAKE + masked(b"hello"))
        assert await client.answer() == (200, bytes(60_000))
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        assert await client.reader.readexactly(7) == unmasked(b"hello")
        assert (
            counts or type(asyncio.get_running_loop()).__module__ == "uvloop"
        )  # uvloop reports it later, or not at all
        assert all(counts)
        assert port.port.unread() == 0
