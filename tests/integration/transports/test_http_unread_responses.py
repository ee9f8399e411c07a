"""How much a port has written that its clients have not read."""

import asyncio
import socket

from fiveways.transports.http import HttpLimits, Request, Response
from fiveways.transports.http_protocol import HttpProtocol
from tests.support.event_loops import on_both_loops
from tests.support.raw_http import GET, HANDSHAKE, masked, running, unmasked, until

LARGE = Response(200, bytes(32 << 20))
"""More than any socket takes at once."""


def large(_request: Request) -> Response:
    return LARGE


@on_both_loops
async def test_it_is_counted_until_it_is_read() -> None:
    async with running(large) as port:
        assert port.port.unread() == 0
        clients = [await port.client(GET) for _ in range(2)]
        await until(lambda: port.port.unread() > len(LARGE.body))
        assert port.port.unread() <= 2 * (len(LARGE.body) + 1000)
        for client in clients:
            assert await client.answer() == (200, LARGE.body)
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_it_is_counted_until_the_client_is_gone() -> None:
    async with running(large) as port:
        gone = await port.client(GET)
        await until(lambda: port.port.unread() > 0)
        gone.writer.transport.abort()
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_who_reads_nothing_does_not_stay() -> None:
    async with running(large, limits=HttpLimits(write_timeout=0.05)) as port:
        await port.client(GET)
        await until(lambda: port.port.unread() > 0)
        await until(lambda: port.port.unread() == 0)


@on_both_loops
async def test_what_is_read_at_once_is_not_counted() -> None:
    async with running() as port:
        assert await port.ask(GET) == (200, b"GET /  ")
        assert port.port.unread() == 0


@on_both_loops
async def test_a_socket_that_is_handed_over_is_not_counted_any_more() -> None:
    most: list[int] = []

    def answer(_request: Request) -> Response:
        """Let the socket take little, and count at once what it does not."""
        (connection,) = port.port._connections._open
        assert isinstance(connection, HttpProtocol)
        connection._socket.set_write_buffer_limits(high=0)
        connection._socket.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        pause = connection.pause_writing

        def paused() -> None:
            pause()
            most.append(port.port.unread())

        connection.pause_writing = paused  # type: ignore[method-assign]
        return Response(200, bytes(60_000))  # it is written together with what comes next

    async with running(answer) as port:
        client = await port.client(GET + HANDSHAKE + masked(b"hello"))
        assert await client.answer() == (200, bytes(60_000))
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        assert await client.reader.readexactly(7) == unmasked(b"hello")
        assert most or type(asyncio.get_running_loop()).__module__ == "uvloop"  # it tells of it later, or not at all
        assert all(most)
        assert port.port.unread() == 0
