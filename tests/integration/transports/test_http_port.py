"""Tests of a port for HTTP and WebSocket: upgrade, limits, closing."""

import asyncio
import errno
import gc
import logging
import resource
import weakref
from collections.abc import Callable

import pytest
from picows import WSListener, WSTransport

from fiveways.transports import address, http_connections
from fiveways.transports.http import HttpLimits, Request, Response
from fiveways.transports.http_port import Port
from tests.support.memory import nothing_left
from tests.support.raw_http import (
    ACCEPT,
    GET,
    HANDSHAKE,
    HOST,
    EchoListener,
    echo,
    echo_protocol,
    masked,
    running,
    unmasked,
    upgrade_to_echo,
)
from tests.support.running import on_both_loops
from tests.support.waiting import until


@on_both_loops
async def test_websocket_is_handed_over() -> None:
    async with running() as port:
        client = await port.client(HANDSHAKE)
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert ACCEPT in head
        client.send(masked(b"hello"))
        assert await client.reader.readexactly(7) == unmasked(b"hello")


@on_both_loops
async def test_frames_sent_with_the_request_are_delivered() -> None:
    texts = [b"a", b"b" * 125, b"c" * 40_000, b"d"]
    frames = b"".join(map(masked, texts))
    echoed = b"".join(map(unmasked, texts))
    async with running() as port:
        client = await port.client(GET + GET + HANDSHAKE + frames)
        assert [await client.answer(), await client.answer()] == [(200, b"GET /  ")] * 2
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        assert await client.reader.readexactly(len(echoed)) == echoed
        client.send(masked(b"e"))
        assert await client.reader.readexactly(3) == unmasked(b"e")


@on_both_loops
async def test_handshake_works_in_any_fragmentation() -> None:
    data = HANDSHAKE + masked(b"hello")
    async with running() as port:
        for at in range(1, len(data)):
            client = await port.client(data[:at])
            for _ in range(5):
                await asyncio.sleep(0)
            client.send(data[at:])
            assert (await client.head()).startswith(b"HTTP/1.1 101 "), at
            assert await client.reader.readexactly(7) == unmasked(b"hello"), at
            await client.close()


@on_both_loops
async def test_pipelined_handshake_is_handed_over() -> None:
    started, ready = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Response:
        started.set()
        await ready.wait()
        return echo(request)

    async with running(wait) as port:
        client = await port.client(GET)
        await started.wait()
        client.send(HANDSHAKE + masked(b"a"))
        await port.client(HANDSHAKE)
        ready.set()
        assert await client.answer() == (200, b"GET /  ")
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        client.send(masked(b"b"))
        assert await client.reader.readexactly(6) == unmasked(b"a") + unmasked(b"b")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Connection: Upgrade", b"Connection: keep-alive, Upgrade"),
        (b"Connection: Upgrade", b"connection: upgrade"),
        (b"Upgrade: websocket", b"Upgrade: WebSocket"),
        (b"\r\n\r\n", b"\r\nCookie: " + b"c" * 15_000 + b"\r\n\r\n"),
        (b"\r\n\r\n", b"\r\n" + b"X-More: x\r\n" * 500 + b"\r\n"),
        (b"\r\n\r\n", b"\r\nX-Odd: \xff\r\nContent-Length: 0\r\n\r\n"),
    ],
)
@on_both_loops
async def test_browser_variants_of_the_handshake_are_accepted(old: bytes, new: bytes) -> None:
    async with running() as port:
        client = await port.client(HANDSHAKE.replace(old, new) + masked(b"hello"))
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        assert await client.reader.readexactly(7) == unmasked(b"hello")


@on_both_loops
async def test_upgrade_handler_gets_the_request() -> None:
    seen: list[Request] = []

    def refuse(request: Request) -> Response:
        seen.append(request)
        return Response(403, b"no\n", headers={"X-Why": "because"})

    async with running(upgrade=refuse) as port:
        client = await port.client(HANDSHAKE + masked(b"hello"))
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 403 ")
        assert b"X-Why: because\r\n" in head
        assert await client.rest() == b"no\n"
    [request] = seen
    assert (request.path, request.query, request.headers["upgrade"]) == ("/ws", "a=b", "websocket")
    assert request.is_loopback


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"Version: 13", b"Version: 8", 426),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 426),
        (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhlIHNhbXBsZQ==", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"\xff!", 400),
        (b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\nabc", 400),
    ],
)
@on_both_loops
async def test_invalid_handshake_is_refused(old: bytes, new: bytes, status: int) -> None:
    async with running() as port:
        answered, body = await port.ask(HANDSHAKE.replace(old, new))
        assert (answered, body.endswith(b"\n")) == (status, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Upgrade: websocket", b"Upgrade: h2c"),
        (b"GET", b"POST"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Connection: Upgrade", b"Connection: close"),
    ],
)
@on_both_loops
async def test_other_upgrade_is_handled_as_http(old: bytes, new: bytes) -> None:
    async with running() as port:
        status, body = await port.ask(HANDSHAKE.replace(old, new))
        assert (status, body.split()[1:]) == (200, [b"/ws", b"a=b"])


def _raise() -> asyncio.BaseProtocol:
    raise RuntimeError("oh")


class _UnreadableProtocol(asyncio.BaseProtocol):
    """Protocol that cannot read."""


class _EmptyBufferProtocol(asyncio.BufferedProtocol):
    """Protocol with an empty buffer."""

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return bytearray()


@pytest.mark.parametrize(("factory", "status"), [(_raise, 500), (_UnreadableProtocol, 0), (_EmptyBufferProtocol, 0)])
@on_both_loops
async def test_failing_protocol_closes_only_its_connection(
    factory: Callable[[], asyncio.BaseProtocol], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "fiveways.http"):
        async with running(upgrade=lambda _: factory) as port:
            client = await port.client(HANDSHAKE)
            assert (await client.rest())[9:12] == (b"%d" % status if status else b"")
            assert [record.getMessage() for record in caplog.records] == ["cannot upgrade to WebSocket path=/ws"]
            assert await port.ask(GET) == (200, b"GET /  ")


@on_both_loops
async def test_invalid_refusal_becomes_500(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "fiveways.http"):
        async with running(upgrade=lambda _: Response(403, b"", headers={"X": "a\nb"})) as port:
            assert (await port.ask(HANDSHAKE))[0] == 500
    assert len(caplog.records) == 1


class _EchoOnceProtocol(asyncio.Protocol):
    """Protocol that returns received data once and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


@on_both_loops
async def test_unbuffered_protocol_gets_the_socket() -> None:
    async with running(upgrade=lambda _: _EchoOnceProtocol) as port:
        client = await port.client(HANDSHAKE + b"abc")
        received = await client.rest()
        assert received.startswith(b"GET /ws?a=b HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        assert received.endswith(b"\r\n\r\nabc")


@on_both_loops
async def test_upgraded_connection_frees_its_http_protocol() -> None:
    async with running() as port:
        client = await port.client()
        await until(lambda: bool(port.port._connections._open))
        [connection] = port.port._connections._open
        gone = weakref.ref(connection)
        del connection
        gc.disable()
        try:
            client.send(HANDSHAKE)
            await client.head()
            await asyncio.sleep(0)
            assert gone() is None
        finally:
            gc.enable()


@on_both_loops
async def test_connections_above_max_connections_get_503() -> None:
    async with running(limits=HttpLimits(max_connections=3)) as port:
        websockets = [await port.client(HANDSHAKE) for _ in range(2)]
        for websocket in websockets:
            assert (await websocket.head()).startswith(b"HTTP/1.1 101 ")
        plain = await port.client(GET)
        assert await plain.answer() == (200, b"GET /  ")
        assert port.port.connections() == 3
        for _ in range(10):
            refused = await port.client(GET)
            head = await refused.head()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in head
            await refused.close()
        await websockets[0].close()
        await until(lambda: port.port.connections() == 2)
        assert await port.ask(GET) == (200, b"GET /  ")
        plain.send(GET)
        assert await plain.answer() == (200, b"GET /  ")


@on_both_loops
async def test_refused_connections_are_bounded() -> None:
    async with running(limits=HttpLimits(max_connections=1)) as port, nothing_left(200):
        first = await port.client(GET)
        await first.answer()
        clients = [await port.client() for _ in range(200)]
        received = [await client.reader.read(12) for client in clients]
        assert set(received) <= {b"HTTP/1.1 503", b""}
        assert 0 < received.count(b"HTTP/1.1 503") <= 64
        first.send(GET)
        assert await first.answer() == (200, b"GET /  ")


@on_both_loops
async def test_reserved_paths_are_served_above_the_limits() -> None:
    limits = HttpLimits(max_connections=4, max_connections_per_address=2, reserved_paths=frozenset({"/"}))
    refused: list[tuple[str, str]] = []
    note: Callable[[str, str], None] = lambda limit, remote: refused.append((limit, remote))  # noqa: E731
    async with running(limits=limits, refused=note) as port, nothing_left(100):
        clients = [await port.client(GET) for _ in range(2)]
        assert [await client.answer() for client in clients] == [(200, b"GET /  ")] * 2
        for _ in range(100):  # more than may wait for their request
            await port.client(GET[:-1])
        for path, status in ((b"/", b"200"), (b"/x", b"429")):
            client = await port.client(GET.replace(b"/", path, 1) + GET)
            head = await client.head()
            assert head[9:12] == status
            assert b"Connection: close\r\n" in head
        assert {limit for limit, _ in refused} == {"max_connections_per_address"}
        assert len(refused) == 102
        assert port.port.connections() == 2


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 5, 0, 0), "2001:db8:1:2::/64"),
        (("somewhere", 5), "somewhere"),
        ("", "local"),
    ],
)
def test_network_address_of_a_client(peer: object, counted: str) -> None:
    assert address.network_address(address.describe_peer(_FakeTransport({"peername": peer}))[0]) == counted


@on_both_loops
async def test_many_connections_at_once() -> None:
    async with running() as port, nothing_left(400):
        clients = await asyncio.gather(*(port.client(GET if n % 2 else HANDSHAKE) for n in range(400)))
        heads = await asyncio.gather(*(client.head() for client in clients))
        assert [head[9:12] for head in heads] == [b"101", b"200"] * 200
        assert port.port.connections() == 400
        for client in clients:
            client.writer.close()
        await until(lambda: not port.port.connections())


@on_both_loops
async def test_closed_upgraded_sockets_are_forgotten() -> None:
    async with running() as port, nothing_left(200):
        for _ in range(200):
            client = await port.client(HANDSHAKE)
            await client.head()
            await client.close()
        assert len(port.port._connections._upgraded) <= 65


@on_both_loops
async def test_port_in_use_is_an_os_error() -> None:
    async with running() as port:
        with pytest.raises(OSError, match=r".") as caught:
            await Port(echo, upgrade_to_echo).listen(HOST, port.number)
        assert caught.value.errno == errno.EADDRINUSE


@on_both_loops
async def test_empty_host_listens_on_all_addresses() -> None:
    port = Port(echo, upgrade_to_echo)
    places = await port.listen("", 0)
    assert all(number > 0 for _, number in places)
    reader, writer = await asyncio.open_connection(HOST, next(number for host, number in places if host == "0.0.0.0"))  # noqa: S104
    writer.write(GET)
    assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
    writer.close()
    await writer.wait_closed()
    await port.close()


@on_both_loops
async def test_close_ends_idle_connections_and_drains_others() -> None:
    started, ready = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Response:
        if request.path == "/wait":
            started.set()
            await ready.wait()
        return echo(request)

    async with running(wait) as port:
        silent, idle = await port.client(), await port.client(GET)
        await idle.answer()
        half = await port.client(GET[:-3])
        websocket = await port.client(HANDSHAKE)
        await websocket.head()
        busy = await port.client(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        await started.wait()
        await port.port.close()
        assert [await silent.rest(), await idle.rest()] == [b"", b""]
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection(HOST, port.number)
        half.send(GET[-3:])
        head = await half.head()
        assert b"Connection: close\r\n" in head
        ready.set()
        assert b"Connection: close\r\n" in await busy.head()
        assert await busy.rest() == b"GET /wait  "
        await busy.close()
        websocket.send(masked(b"still here"))
        assert await websocket.reader.readexactly(12) == unmasked(b"still here")
        await until(lambda: port.port.connections() == 1)
        await port.port.close()


@on_both_loops
async def test_websocket_server_is_notified_of_disconnect() -> None:
    left = asyncio.Event()

    class Listener(EchoListener):
        def on_ws_disconnected(self, transport: WSTransport) -> None:
            del transport
            left.set()

    def listener() -> WSListener:
        return Listener()

    async with running(upgrade=lambda _: lambda: echo_protocol(listener)) as port:
        client = await port.client(HANDSHAKE)
        await client.head()
        await client.close()
        await left.wait()


def test_connection_limit_reserves_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(_which: int) -> tuple[int, int]:
        return soft, soft

    monkeypatch.setattr(resource, "getrlimit", limit)
    soft = 1024
    assert http_connections.limit_by_open_files(100_000) == 768  # for small limits, a quarter is reserved
    assert http_connections.limit_by_open_files(100) == 100
    soft = 20_000
    assert http_connections.limit_by_open_files(100_000) == 20_000 - 1024 - 64 - 64
    soft = 10
    assert http_connections.limit_by_open_files(100) == 8
    soft = resource.RLIM_INFINITY
    assert http_connections.limit_by_open_files(100_000) == 100_000
    monkeypatch.setattr(http_connections, "resource", None)
    assert http_connections.limit_by_open_files(100_000) == 100_000


class _FakeTransport(asyncio.BaseTransport):
    """Transport of a Unix socket."""


@pytest.mark.parametrize(
    ("peer", "described"),
    [
        (("127.0.0.1", 5), ("127.0.0.1:5", True)),
        (("127.8.8.8", 5), ("127.8.8.8:5", True)),
        (("::1", 5, 0, 0), ("[::1]:5", True)),
        (("::ffff:127.0.0.1", 5, 0, 0), ("[::ffff:127.0.0.1]:5", True)),
        (("::ffff:192.0.2.1", 5, 0, 0), ("[::ffff:192.0.2.1]:5", False)),
        (("fe80::1%eth0", 5, 0, 2), ("[fe80::1%eth0]:5", False)),
        (("192.0.2.1", 5), ("192.0.2.1:5", False)),
        (("somewhere", 5), ("somewhere:5", False)),
        ("", ("local", True)),
    ],
)
def test_peer_address_of_a_client(peer: object, described: tuple[str, bool]) -> None:
    assert address.describe_peer(_FakeTransport({"peername": peer})) == described
