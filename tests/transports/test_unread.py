"""How much a port has written that its clients have not read."""

import asyncio

from fiveways.transports.http import HttpLimits, Request, Response
from tests.transports.loops import on_both_loops
from tests.transports.raw import GET, HANDSHAKE, echo, masked, running, unmasked, until

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
    def answer(request: Request) -> Response:
        return Response(200, bytes(60_000)) if request.path == "/" else echo(request)

    async with running(answer) as port:
        client = await port.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            client.send(GET)
        client.send(HANDSHAKE + masked(b"hello"))
        await until(lambda: port.port.unread() > 0)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            assert (await client.answer())[0] == 200
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        assert await client.reader.readexactly(7) == unmasked(b"hello")
        await asyncio.sleep(0)
        assert port.port.unread() == 0
