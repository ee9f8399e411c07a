"""Limits of connections: long polls of clients that left, limits per address, health checks."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from fiveways.runtime import session_registry
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.integration.runtime.test_websocket_rules import frame
from tests.support.memory import nothing_left
from tests.support.nq_peers import ask, packed, posters, served
from tests.support.raw_http import HANDSHAKE
from tests.support.raw_peers import PATIENCE, Place, http, hub, settings
from tests.support.running import LOOPS, NewLoop
from tests.support.waiting import until

POLL = b"POST /nq?wait=3600 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]"
HEALTH = ("/livez", "/readyz", "/metrics")


@pytest.fixture(autouse=True)
def long_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls that last longer than any test."""
    monkeypatch.setattr(session_registry, "_MAX_WAIT", 3600.0)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until_connections(place: Place, number: int) -> None:
    await until(lambda: place.server._port.connections() == number)


def waiting_polls(place: Place) -> int:
    return sum(each.is_connected for each in place.server.resumable_sessions._by_id.values())


@asynccontextmanager
async def silent(port: int, count: int, address: str = "127.0.0.1") -> AsyncIterator[None]:
    """Connections that send nothing."""
    writers = [(await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))[1] for _ in range(count)]
    try:
        yield
    finally:
        for each in writers:
            each.close()


@pytest.mark.parametrize("more", [b"", b"POST", POLL], ids=["closed", "with half a request", "with another poll"])
def test_long_polls_of_clients_that_left_are_closed_at_once(more: bytes) -> None:
    async def run() -> None:
        async with hub() as place, nothing_left(50):
            before = descriptors()
            writers = [(await asyncio.open_connection("127.0.0.1", place.port))[1] for _ in range(50)]
            for writer in writers:
                writer.write(POLL)
            await until(lambda: waiting_polls(place) == 50)
            assert descriptors() >= before + 100
            for writer in writers:
                writer.write(more)
                writer.close()
            await until_connections(place, 0)
            assert waiting_polls(place) == 0
            assert descriptors() < before + 50

    asyncio.run(run())


def test_response_after_an_aborted_poll_comes_with_the_next_request() -> None:
    async def run() -> None:
        async with hub() as place, posters(place.port) as (peer,):
            callee = await served(place)
            await peer.post(ask("k1", "work", 1))
            await callee.heard()
            await peer.begin(b"[]", "/nq?wait=3600")
            await until(lambda: waiting_polls(place) == 1)
            await peer.close()
            await until_connections(place, 1)
            callee.text("R1\n42")
            (response,) = await peer.post(wait=20)
            assert (response["i"], response["d"]) == ("k1", 42)

    asyncio.run(run())


def test_response_during_a_disconnect_comes_with_the_next_request() -> None:
    async def run() -> None:
        async with hub() as place, posters(place.port) as (peer,):
            callee = await place.umq()
            callee.text("M1\nhub:subscribe\nnews\nt1")
            await callee.heard()
            await peer.post({"t": "hub-subscribe", "r": "s", "d": {"topic": "news", "id": "n"}})
            for number in range(20):
                await peer.begin(b"[]", "/nq?wait=3600")
                await until(lambda: waiting_polls(place) == 1)
                # Both arrive in one event loop iteration.
                callee.text(f"M2\nhub:publish\nnews\n{number}")
                await peer.close()
                while number not in [each.get("d") for each in await peer.post(wait=20)]:
                    pass

    asyncio.run(run())


def test_half_closed_client_is_answered_at_once() -> None:
    async def run() -> None:
        async with hub() as place:
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(POLL)
            writer.write_eof()
            response = await asyncio.wait_for(reader.read(), PATIENCE)
            assert response.startswith(b"HTTP/1.1 200 ")
            assert response.endswith(b"\r\n\r\n[]")
            writer.close()
            body = packed(ask("k1", data="hi"))
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(b"POST /nq HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            writer.write_eof()
            assert b'"hi"' in await asyncio.wait_for(reader.read(), PATIENCE)
            writer.close()

    asyncio.run(run())


def test_empty_line_after_a_body_does_not_end_a_long_poll() -> None:
    async def run() -> None:
        async with hub() as place, posters(place.port) as (peer,):
            callee = await served(place)
            await peer.post(ask("k1", "work", 1))
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            named = POLL.replace(b"Host", f"NQ-Peer: {peer.peer}\r\nHost".encode())
            for lines in (b"", b"\r\n"):
                writer.write(named + lines)
                await until(lambda: waiting_polls(place) == 1)
                writer.write(b"\r\n")
                await http(place.port, "/livez")
                assert waiting_polls(place) == 1
                callee.text("R1\n42")
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length is not None
                assert b"42" in await reader.readexactly(int(length[1]))
            writer.close()

    asyncio.run(run())


def resident() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_bodies_of_waiting_long_polls_are_freed() -> None:
    async def run() -> None:
        body = b"[" + b" " * ((1 << 20) - 2) + b"]"
        async with hub() as place:
            before, writers = 0, []
            for number in range(110):
                _, writer = await asyncio.open_connection("127.0.0.1", place.port)
                writers.append(writer)
                writer.write(POLL.replace(b": 2", b": %d" % len(body)).removesuffix(b"[]") + body)
                await writer.drain()
                await until(lambda number=number: len(place.server.resumable_sessions) == number + 1)  # type: ignore[misc]
                if number == 9:
                    before = resident()
            assert resident() - before < 50 * len(body)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(run())


# Health checks.


@pytest.mark.parametrize(
    "limits", [LimitSettings(max_sessions=5), LimitSettings(max_connections_per_address=5)], ids=["all", "address"]
)
def test_health_checks_are_answered_when_no_more_connections_are_admitted(limits: LimitSettings) -> None:
    status = "503" if limits.max_sessions == 5 else "429"

    async def run() -> None:
        async with hub(settings(limits=limits)) as place, nothing_left(200), silent(place.port, 5):
            await until_connections(place, 5)
            # More than may stay to send a request.
            async with silent(place.port, 200):
                for path in HEALTH:
                    assert (await http(place.port, path)).startswith("HTTP/1.1 200 "), path
                for path in ("/", "/nothing", "/livez/x"):
                    response = await http(place.port, path)
                    assert response.startswith(f"HTTP/1.1 {status} "), path
                    assert "\r\nRetry-After: 1\r\n" in response
                assert place.server._port.connections() == 5
            page = await http(place.port, "/metrics")
            limit = "max_sessions" if status == "503" else "max_connections_per_address"
            assert "\nfiveways_connections 5\n" in page
            match = re.search(rf'\nfiveways_connections_refused_total{{limit="{limit}"}} (\d+)\n', page)
            assert match is not None
            assert int(match[1]) > 200

    asyncio.run(run())


def test_refused_client_gets_no_websocket_and_sends_no_body() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_sessions=1))) as place, silent(place.port, 1):
            await until_connections(place, 1)
            upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            for request in (
                f"GET /livez HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n",
                "POST /nq HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
                writer.write(request.encode())
                response = await asyncio.wait_for(reader.read(), PATIENCE)
                assert response.startswith(b"HTTP/1.1 503 ")
                writer.close()

    asyncio.run(run())


def test_connections_of_one_address_are_bounded_and_those_of_others_admitted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        limits = LimitSettings(max_connections_per_address=3)
        async with hub(settings(limits=limits)) as place, silent(place.port, 3):
            await until_connections(place, 3)
            for _ in range(30):
                assert (await http(place.port, "/")).startswith("HTTP/1.1 429 ")
            async with silent(place.port, 3, "127.0.0.2"):
                await until_connections(place, 6)
            await until_connections(place, 3)
        async with hub(settings(limits=limits)) as place:
            for _ in range(5):
                async with silent(place.port, 3):
                    await until_connections(place, 3)
                await until_connections(place, 0)
            peers = [await place.umq() for _ in range(3)]
            assert (await http(place.port, "/")).startswith("HTTP/1.1 429 ")
            peers[0].leave()
            await until_connections(place, 2)
            assert (await http(place.port, "/")).startswith("HTTP/1.1 200 ")

    with caplog.at_level(logging.WARNING, "fiveways.connections"):
        asyncio.run(run())
    lines = [record for record in caplog.records if record.name == "fiveways.connections"]
    assert 1 < len(lines) <= 11
    assert lines[0].__dict__["fields"]["limit"] == "max_connections_per_address"


# Incomplete input.

MIB = 1 << 20
SLOW = AuthSettings(login_timeout=3600.0)
ANN = AuthSettings(anonymous="never", login_timeout=3600.0, identity=(IdentitySettings("ann", token=Secret("of-ann")),))


def head_of_post(size: int, **headers: str) -> bytes:
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"POST /nq HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["sized", "chunked"])
def test_body_limit_is_small_without_a_token(is_chunked: bool, caplog: pytest.LogCaptureFixture) -> None:
    limit = LimitSettings().max_unauthenticated
    assert limit == 65_536

    async def status_of(place: Place, size: int, **headers: str) -> bytes:
        head = head_of_post(size, **headers)
        body = b"[" + b" " * (size - 2) + b"]"
        if is_chunked:
            head = head.replace(b"Content-Length: %d" % size, b"Transfer-Encoding: chunked")
            body = b"%x\r\n" % size + body + b"\r\n0\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head + body)
        response = await asyncio.wait_for(reader.read(), PATIENCE) if size > limit and not headers else b""
        response = response or await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.close()
        if b" 413 " in response:
            assert response.endswith(b"\nthe body is longer than 65536 bytes, the limit before authentication\n")
        return response[9:12]

    async def run() -> None:
        async with hub(settings(auth=ANN)) as place:
            assert await status_of(place, limit) == b"401"
            assert await status_of(place, limit + 1) == b"413"
            assert await status_of(place, limit + 1, Authorization="Bearer of-ann") == b"200"
            page = await http(place.port, "/metrics")
            assert '\nfiveways_connections_refused_total{limit="max_unauthenticated"} 1\n' in page
        async with hub() as place:  # the hub admits anonymous peers
            assert await status_of(place, MIB, **{"NQ-Peer": ""}) == b"200"

    asyncio.run(run())
    (line,) = [record for record in caplog.records if record.name == "fiveways.connections"]
    assert line.__dict__["fields"]["limit"] == "max_unauthenticated"


def test_unfinished_bodies_of_all_connections_are_bounded() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_unfinished=8 * MIB, share=1.0))) as place:
            before, answered, writers = resident(), 0, []
            for _ in range(40):
                reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
                writers.append(writer)
                writer.write(head_of_post(MIB) + bytes(MIB - 1))
                await writer.drain()
                if place.server._port.unfinished.held > 7 * MIB:
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                    assert head.startswith(b"HTTP/1.1 503 ")
                    assert b"\r\nRetry-After: 1\r\n" in head
                    answered += 1
                else:
                    held = place.server._port.unfinished.held
                    await until(lambda held=held: place.server._port.unfinished.held >= held)  # type: ignore[misc]
            assert answered >= 30
            assert place.server._port.unfinished.held <= 8 * MIB
            assert resident() - before < 24 * MIB
            page = await http(place.port, "/metrics")
            assert f'\nfiveways_connections_refused_total{{limit="max_unfinished"}} {answered}\n' in page
            assert re.search(r"\nfiveways_unfinished_bytes [78]\d{6}\n", page)
            for writer in writers:
                writer.transport.abort()
            await until(lambda: place.server._port.unfinished.held == 0)
            async with posters(place.port) as (peer,):
                assert (await peer.raw(b"[" + b" " * (MIB - 2) + b"]")).status == 200
            assert place.server._port.unfinished.held == 0

    asyncio.run(run())


# WebSocket.

LARGE = 8 * MIB


def header(size: int, opcode: int = 2, *, fin: bool = True) -> bytes:
    """The header of a frame with a mask of zeros."""
    length = bytes((0xFF,)) + size.to_bytes(8) if size > 0xFFFF else bytes((0xFE,)) + size.to_bytes(2)
    return bytes((opcode | (0x80 if fin else 0),)) + length + bytes(4)


class Wire:
    """A WebSocket that sends raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def login(self) -> None:
        self.writer.write(frame(b"H1.0.0\n"))
        assert b"W1.0.0" in await self.short_payload()

    async def short_payload(self) -> bytes:
        """Return the payload of the next short frame."""
        first, size = await asyncio.wait_for(self.reader.readexactly(2), PATIENCE)
        return (b"close " if first == 0x88 else b"") + await asyncio.wait_for(self.reader.readexactly(size), PATIENCE)

    async def payload(self) -> bytes:
        """Return the payload of the next frame of any length."""
        _, size = await asyncio.wait_for(self.reader.readexactly(2), PATIENCE)
        if size > 125:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE)

    async def closed(self) -> tuple[int, str]:
        """Return code and reason of the close frame."""
        while not (short_payload := await self.short_payload()).startswith(b"close "):
            pass
        return int.from_bytes(short_payload[6:8]), short_payload[8:].decode()


@asynccontextmanager
async def wires(place: Place, count: int, path: str = "/umq") -> AsyncIterator[list[Wire]]:
    connections = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(HANDSHAKE.replace(b"/ws?a=b", path.encode()))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        connections.append(Wire(reader, writer))
    try:
        yield connections
    finally:
        for each in connections:
            each.writer.transport.abort()


async def send_part(wire: Wire, size: int) -> None:
    """Send part of a frame; the hub may close the connection meanwhile."""
    for _ in range(0, size, 1 << 16):
        wire.writer.write(bytes(1 << 16))
        with suppress(ConnectionError):
            await wire.writer.drain()


@pytest.mark.parametrize(("path", "auth"), [("/umq", SLOW), ("/lrpm", SLOW), ("/nq", ANN)])
def test_unfinished_frame_limit_is_small_before_authentication(path: str, auth: AuthSettings) -> None:
    async def run() -> None:
        async with hub(settings(auth=auth)) as place, wires(place, 20, path) as clients:
            before = resident()
            for wire in clients:
                wire.writer.write(header(LARGE))
                await asyncio.wait([push := asyncio.ensure_future(send_part(wire, 2 * MIB))], timeout=PATIENCE)
                await push
                if auth is ANN:  # it was refused already, and the connection is closing
                    with suppress(asyncio.IncompleteReadError, ConnectionError):
                        assert (await wire.closed())[0] in {1008, 1009}
                else:
                    assert await wire.closed() == (1009, "a frame is too large before authentication")
            assert resident() - before < 20 * MIB
            page = await http(place.port, "/metrics")
            match = re.search(r'\nfiveways_connections_refused_total{limit="max_unauthenticated"} (\d+)\n', page)
            assert auth is ANN or (match is not None and match[1] == "20")

    asyncio.run(run())


@pytest.mark.parametrize("pieces", [1, 4])
def test_message_limit_grows_after_authentication(pieces: int) -> None:
    async def run() -> None:
        limit = LimitSettings().max_unauthenticated
        async with hub(settings(auth=SLOW)) as place, wires(place, 3) as clients:
            for wire, size in zip(clients, (limit, limit + 1, MIB), strict=True):
                if size == MIB:
                    await wire.login()
                text = (b"H1.0.0\n" if size != MIB else b"M1\nhub:ping\n").ljust(size)
                step = -(-size // pieces)
                for at in range(0, size, step):
                    piece = text[at : at + step]
                    wire.writer.write(header(len(piece), 0 if at else 1, fin=at + step >= size) + piece)
                if size == limit + 1:
                    assert await wire.closed() == (1009, "a message is too large before authentication")
                else:
                    assert (await wire.short_payload())[:2] in {b"W1", b"R1"}

    asyncio.run(run())


def test_number_of_fragments_is_limited_before_authentication() -> None:
    async def run() -> None:
        piece = LimitSettings().max_unauthenticated // 2
        async with hub(settings(auth=SLOW)) as place, wires(place, 1) as (wire,):
            for number in range(3):
                wire.writer.write(header(piece, 0 if number else 1, fin=False) + bytes(piece))
            assert await wire.closed() == (1009, "a message is too large before authentication")

    asyncio.run(run())


def test_unfinished_frames_of_all_connections_are_bounded() -> None:
    async def run() -> None:
        async with (
            hub(settings(auth=SLOW, limits=LimitSettings(max_unfinished=16 * MIB, share=1.0))) as place,
            wires(place, 16) as clients,
        ):
            before = resident()
            unfinished = place.server._port.unfinished
            for number, wire in enumerate(clients):
                await wire.login()
                wire.writer.write(header(LARGE))
                await send_part(wire, 3 * MIB)
                if number < 4:  # buffers of 3.9 MiB
                    await until(lambda number=number: unfinished.held > (number + 1) * 3 * MIB)  # type: ignore[misc]
                else:
                    assert await wire.closed() == (1013, "too much unfinished input; try again later")
            assert 12 * MIB < unfinished.held <= 16 * MIB
            assert resident() - before < 24 * MIB
            page = await http(place.port, "/metrics")
            assert '\nfiveways_connections_refused_total{limit="max_unfinished"} 12\n' in page
            clients[0].writer.transport.abort()
            await until(lambda: unfinished.held < 16 * MIB)
        assert unfinished.held == 0

    asyncio.run(run())


def test_unfinished_input_of_one_address_leaves_room_for_others() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_unfinished=8 * MIB))) as place:
            unfinished, writers = place.server._port.unfinished, []
            for number in range(8):
                address = "127.0.0.1" if number < 6 else "127.0.0.2"
                reader, writer = await asyncio.open_connection("127.0.0.1", place.port, local_addr=(address, 0))
                writers.append(writer)
                writer.write(head_of_post(MIB) + bytes(MIB - 1))
                if number in (4, 5):
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                    assert head.startswith(b"HTTP/1.1 503 ")
                else:
                    held = (number + 1 if number < 4 else number - 1) * (MIB - 1)
                    await until(lambda held=held: unfinished.held >= held)  # type: ignore[misc]
            for each in writers:
                each.close()
            await until(lambda: unfinished.held == 0)
            assert not unfinished._by_address

    asyncio.run(run())


def test_fragments_of_all_connections_are_bounded() -> None:
    async def run() -> None:
        async with (
            hub(settings(auth=SLOW, limits=LimitSettings(max_unfinished=4 * MIB, share=1.0))) as place,
            wires(place, 8) as clients,
        ):
            piece, refused = 40_000, 0
            for wire in clients:
                await wire.login()
                size = bytes((0x01, 0xFE)) + piece.to_bytes(2, "big") + bytes(4)
                wire.writer.write(size + bytes(piece) + 25 * (b"\0" + size[1:] + bytes(piece)) + frame(b"", 9))
                response = await wire.short_payload()
                if response:
                    assert response[6:] == b"\x03\xf5too much unfinished input; try again later"
                    refused += 1
            assert 3 <= refused <= 6  # read buffers count, too
            assert 2 * MIB < place.server._port.unfinished.held <= 4 * MIB
        assert place.server._port.unfinished.held == 0

    asyncio.run(run())


def test_attachments_on_disk_count_for_the_address_of_their_connection() -> None:
    async def run() -> None:
        async with hub(settings(auth=SLOW)) as place, wires(place, 1) as (wire,):
            await wire.login()
            (connection,) = place.server.connections
            for spools in (connection._spools, connection.link._spools):  # type: ignore[attr-defined]
                blob = spools.store(b"x")
                assert dict(place.server._spools._by_address) == {"127.0.0.1": 1}
                del blob

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())
def test_buffers_of_finished_frames_make_room_for_others_and_lose_nothing(new_loop: NewLoop) -> None:
    async def run() -> None:
        limits = LimitSettings(max_unfinished=3 * MIB, share=1.0)
        async with hub(settings(auth=SLOW, limits=limits)) as place, wires(place, 12) as clients:
            chance, maximum, total = Random(1), 0, 0
            unfinished = place.server._port.unfinished
            for wire in clients:
                await wire.login()
            ping = frame(b"M1\nhub:ping\n")
            for number in range(80):
                wire = chance.choice(clients)
                text = b"M%d\nhub:echo\n" % number + b"x" * chance.choice([1, 20_000, 40_000, 200_000, 700_000])
                opening = header(len(text), 1) if len(text) > 125 else frame(text)[: -len(text)]
                sent = ping + opening + text + ping
                total += len(sent)
                # Frames begin and end anywhere in the bytes of one read.
                while sent:
                    size = chance.choice([1, 100, 16_128, 60_000, len(sent)])
                    wire.writer.write(sent[:size])
                    await wire.writer.drain()
                    sent = sent[size:]
                assert await wire.payload() == b"R1\npong"
                assert await wire.payload() == b"R%d\n" % number + text.split(b"\n", 2)[2]
                assert await wire.payload() == b"R1\npong"
                maximum = max(maximum, unfinished.held)
            assert total > 6 * MIB
            assert 2 * MIB < maximum <= 3 * MIB

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
