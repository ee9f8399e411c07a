"""How many connections clients can hold: long polls of clients that left, limits, health checks."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fiveways.runtime import standings
from fiveways.settings.sections import AuthSettings, IdentitySettings, LimitSettings, Secret
from tests.runtime.nqwire import ask, packed, posters, served
from tests.runtime.wire import PATIENCE, Place, http, hub, settings

POLL = b"POST /nq?wait=3600 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]"
HEALTH = ("/livez", "/readyz", "/metrics")


@pytest.fixture(autouse=True)
def long_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls that last longer than any test."""
    monkeypatch.setattr(standings, "_LONGEST_WAIT", 3600.0)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  see above
            await asyncio.sleep(0.001)


async def until_connections(place: Place, number: int) -> None:
    await until(lambda: place.server._port.connections() == number)


def waiting_polls(place: Place) -> int:
    return sum(each.is_here for each in place.server.standings._by_id.values())


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
        async with hub() as place:
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


def test_answer_that_a_client_did_not_wait_for_comes_with_its_next_request() -> None:
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
            (answer,) = await peer.post(wait=20)
            assert (answer["i"], answer["d"]) == ("k1", 42)

    asyncio.run(run())


def test_answer_that_comes_while_its_client_leaves_comes_with_its_next_request() -> None:
    async def run() -> None:
        async with hub() as place, posters(place.port) as (peer,):
            callee = await place.umq()
            callee.text("M1\nhub:subscribe\nnews\nt1")
            await callee.heard()
            await peer.post({"t": "hub-subscribe", "r": "s", "d": {"topic": "news", "id": "n"}})
            for number in range(20):
                await peer.begin(b"[]", "/nq?wait=3600")
                await until(lambda: waiting_polls(place) == 1)
                # Both reach the hub in one iteration of the event loop.
                callee.text(f"M2\nhub:publish\nnews\n{number}")
                await peer.close()
                while number not in [each.get("d") for each in await peer.post(wait=20)]:
                    pass

    asyncio.run(run())


def test_client_that_closes_one_direction_is_answered_without_a_wait() -> None:
    async def run() -> None:
        async with hub() as place:
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(POLL)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\n[]")
            writer.close()
            body = packed(ask("k1", data="hi"))
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(b"POST /nq HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            writer.write_eof()
            assert b'"hi"' in await asyncio.wait_for(reader.read(), PATIENCE)
            writer.close()

    asyncio.run(run())


def test_empty_line_behind_a_body_does_not_end_a_long_poll() -> None:
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
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_bodies_of_long_polls_are_not_held_while_they_wait() -> None:
    async def run() -> None:
        body = b"[" + b" " * ((1 << 20) - 2) + b"]"
        async with hub() as place:
            before, writers = 0, []
            for number in range(110):
                _, writer = await asyncio.open_connection("127.0.0.1", place.port)
                writers.append(writer)
                writer.write(POLL.replace(b": 2", b": %d" % len(body)).removesuffix(b"[]") + body)
                await writer.drain()
                await until(lambda number=number: len(place.server.standings) == number + 1)  # type: ignore[misc]
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
        async with hub(settings(limits=limits)) as place, silent(place.port, 5):
            await until_connections(place, 5)
            # More than may stay to send a request.
            async with silent(place.port, 200):
                for path in HEALTH:
                    assert (await http(place.port, path)).startswith("HTTP/1.1 200 "), path
                for path in ("/", "/nothing", "/livez/x"):
                    answer = await http(place.port, path)
                    assert answer.startswith(f"HTTP/1.1 {status} "), path
                    assert "\r\nRetry-After: 1\r\n" in answer
                assert place.server._port.connections() == 5
            page = await http(place.port, "/metrics")
            limit = "max_sessions" if status == "503" else "max_connections_per_address"
            assert "\nfiveways_connections 5\n" in page
            found = re.search(rf'\nfiveways_connections_refused_total{{limit="{limit}"}} (\d+)\n', page)
            assert found is not None
            assert int(found[1]) > 200

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
                answer = await asyncio.wait_for(reader.read(), PATIENCE)
                assert answer.startswith(b"HTTP/1.1 503 ")
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


# Input that has not come completely.

MIB = 1 << 20
ANN = AuthSettings(anonymous="never", identity=(IdentitySettings("ann", token=Secret("of-ann")),))


def head_of_post(size: int, **headers: str) -> bytes:
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"POST /nq HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["sized", "chunked"])
def test_body_is_small_until_its_client_shows_a_token(is_chunked: bool, caplog: pytest.LogCaptureFixture) -> None:
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
        answer = await asyncio.wait_for(reader.read(), PATIENCE) if size > limit and not headers else b""
        answer = answer or await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.close()
        if b" 413 " in answer:
            assert answer.endswith(b"\nthe body is longer than 65536 bytes, the limit before authentication\n")
        return answer[9:12]

    async def run() -> None:
        async with hub(settings(auth=ANN)) as place:
            assert await status_of(place, limit) == b"401"
            assert await status_of(place, limit + 1) == b"413"
            assert await status_of(place, limit + 1, Authorization="Bearer of-ann") == b"200"
            page = await http(place.port, "/metrics")
            assert '\nfiveways_connections_refused_total{limit="max_unauthenticated"} 1\n' in page
        async with hub() as place:  # it takes the anonymous
            assert await status_of(place, MIB, **{"NQ-Peer": ""}) == b"200"

    asyncio.run(run())
    (line,) = [record for record in caplog.records if record.name == "fiveways.connections"]
    assert line.__dict__["fields"]["limit"] == "max_unauthenticated"


def test_unfinished_bodies_of_all_connections_are_bounded() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_unfinished=8 * MIB))) as place:
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
