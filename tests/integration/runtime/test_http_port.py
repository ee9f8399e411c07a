"""One port for everything: plain HTTP gets an explanation, an oversized frame its protocol's error."""

import asyncio

import pytest
from picows import WSHandshakeError, WSMsgType

from fiveways.runtime.listen_errors import CannotListen
from fiveways.runtime.server import Server
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import ServerSettings
from tests.support.raw_peers import http, hub, settings


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/livez", "200", "ok"),
        ("/readyz", "200", "ok"),
        ("/", "200", "umq+ws://"),
        ("/nothing", "404", "nothing is served under /nothing"),
        ("/umq", "426", "/umq is for WebSocket clients"),
        ("/lrpm", "426", "lrpm+ws://"),
    ],
)
def test_plain_requests_get_an_answer(path: str, status: str, sentence: str) -> None:
    async def run() -> str:
        async with hub() as place:
            return await http(place.port, path)

    answer = asyncio.run(run())
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert sentence in answer


def test_websocket_on_an_unknown_path_is_refused() -> None:
    async def run() -> None:
        async with hub() as place:
            with pytest.raises(WSHandshakeError) as refused:
                await place.peer("/nothing")
            assert "404" in str(refused.value)

    asyncio.run(run())


@pytest.mark.parametrize(("header", "value"), [("Origin", "https://evil.example"), ("Host", "evil.example")])
def test_websocket_of_a_foreign_page_is_refused(header: str, value: str) -> None:
    async def run() -> None:
        async with hub() as place:
            with pytest.raises(WSHandshakeError) as refused:
                await place.peer("/lrpm", **{header: value})
            assert "403" in str(refused.value)
            assert (await http(place.port, "/", **{header: value})).startswith("HTTP/1.1 403 ")

    asyncio.run(run())


def test_subprotocols_are_optional() -> None:
    async def run() -> None:
        async with hub() as place:
            for offered in ("umq.1", "other, umq.1", "other", ""):
                headers = {"Sec-WebSocket-Protocol": offered} if offered else {}
                peer = await place.peer("/umq", **headers)
                chosen = peer.ws.response.headers.get("Sec-WebSocket-Protocol")
                assert chosen == ("umq.1" if "umq.1" in offered else None)
                peer.text("H1.0.0\n")
                assert (await peer.heard()).startswith("W1.0.0\n")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "hello", "error"),
    [("/umq", "H1.0.0\n", "E\n"), ("/umq36", "H1:", "F0:"), ("/lrpm", "[2,null,{}]", '[1,".err.protocol"')],
)
@pytest.mark.parametrize("pieces", [1, 4])
def test_frame_over_the_limit_gets_the_protocols_error(path: str, hello: str, error: str, pieces: int) -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_text=10_000))) as place:
            peer, other = await place.peer(path), await place.umq()
            peer.text(hello)
            await peer.heard()
            piece = b"x" * (10_001 // pieces + 1)
            for number in range(pieces):
                kind = WSMsgType.TEXT if number == 0 else WSMsgType.CONTINUATION
                peer.ws.send(kind, piece, number == pieces - 1)
            assert (await peer.heard()).startswith(error)
            await peer.over()
            other.text("M1\nhub:ping\n")
            assert (await other.heard()).startswith("R1\n")

    asyncio.run(run())


def test_frame_above_the_memory_limit_closes_the_websocket() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_text=1000, max_frame=20_000))) as place:
            peer = await place.umq()
            peer.binary(b"x" * 30_000)
            await peer.over()
            assert peer.close_code is not None
            assert peer.close_code.value == 1009

    asyncio.run(run())


def test_interleaved_fragments_of_two_messages_are_refused() -> None:
    async def run() -> None:
        async with hub() as place:
            peer = await place.umq()
            peer.ws.send(WSMsgType.TEXT, b"M1\n", fin=False)
            peer.ws.send(WSMsgType.TEXT, b"M2\n", fin=True)
            await peer.over()
            assert peer.close_code is not None
            assert peer.close_code.value == 1002

    asyncio.run(run())


def test_used_port_is_named() -> None:
    async def run() -> None:
        async with hub() as place:
            taken = settings(server=ServerSettings(port=place.port))
            with pytest.raises(CannotListen, match=f"port {place.port} is in use; choose another with --port"):
                await Server(taken).start()

    asyncio.run(run())


def test_garbage_ends_only_its_own_session() -> None:
    async def run() -> None:
        async with hub() as place:
            good = await place.umq()
            for path in ("/umq", "/umq36", "/lrpm"):
                bad = await place.peer(path)
                bad.text("what is this")
                assert await bad.heard()
                await bad.over()
            good.text("M1\nhub:ping\n")
            assert (await good.heard()).startswith("R1\n")

    asyncio.run(run())
