"""Errors of connections that cannot be opened, and retries of the first connection."""

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import fiveways
from fiveways.client.connect import connect
from fiveways.errors import ConnectionLost, Refused
from fiveways.settings.sections import AuthSettings, ServerSettings
from fiveways.transports.address import connect_error
from tests.support.raw_peers import hub, settings

PATIENCE = 60.0
SCHEMES = ["umq+ws", "umq36+ws", "lrpm+ws", "nq+ws", "nq+http"]


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """Serve a port on which every connection gets the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])


async def opening_error(url: str, **options: object) -> str:
    with pytest.raises(ConnectionLost) as caught:
        async with asyncio.timeout(PATIENCE), connect(url, **options):  # type: ignore[arg-type]
            pass
    return str(caught.value)


@pytest.mark.parametrize("scheme", [*SCHEMES, "mqtt-rpc+mqtt"])
def test_port_without_listener(scheme: str) -> None:
    port = free_port()
    text = asyncio.run(opening_error(f"{scheme}://127.0.0.1:{port}"))
    assert text.endswith(f"127.0.0.1:{port}: nothing listens on 127.0.0.1:{port}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_unknown_host(scheme: str) -> None:
    assert asyncio.run(opening_error(f"{scheme}://no-such-host.invalid")).endswith(
        ": unknown host no-such-host.invalid"
    )


@pytest.mark.parametrize("scheme", ["umq+ws", "lrpm+ws", "nq+ws", "nq+http"])
def test_tls_to_a_plain_port_names_the_plain_scheme(scheme: str) -> None:
    async def run() -> None:
        async with hub() as place:
            text = await opening_error(f"{scheme}s://127.0.0.1:{place.port}")
            assert text.endswith(f": 127.0.0.1:{place.port} does not speak TLS; use {scheme}://")

    asyncio.run(run())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        b"HTTP/1.1 503 Unavailable\r\nContent-Length: 33\r\n\r\n<html>\n<body>\nlater</body></html>",
        b"HTTP/1.0 501 Unsupported\r\nContent-Length: 6\r\n\r\n<html>",
    ],
)
def test_foreign_web_server(scheme: str, answer: bytes) -> None:
    async def run() -> None:
        async with answering(answer) as port:
            text = await opening_error(f"{scheme}://127.0.0.1:{port}")
            assert f"a web server answers at 127.0.0.1:{port}, but no Fiveways hub" in text
            assert "<" not in text

    asyncio.run(run())


def test_certificate_that_is_not_trusted_is_named() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    assert connect_error(error, "hub", 443) == "the certificate of hub:443 is not trusted: self-signed certificate"


def test_several_refusing_addresses_give_one_error() -> None:
    error = OSError("Multiple exceptions: [Errno 111] Connect call failed (a), [Errno 111] Connect call failed (b)")
    assert connect_error(error, "localhost", 1) == "nothing listens on localhost:1"


async def connected_late(opening: Callable[[int], Awaitable[fiveways.Peer]], log: pytest.LogCaptureFixture) -> None:
    """Start a hub after the first connection attempt has failed."""
    port = free_port()
    with log.at_level(logging.WARNING, "fiveways.client"):
        peer = asyncio.ensure_future(opening(port))
        async with asyncio.timeout(PATIENCE):
            while not log.records:  # noqa: ASYNC110  a log has no event
                await asyncio.sleep(0.01)
            async with hub(settings(server=ServerSettings(port=port))):
                opened = await peer
                assert await opened.call("hub.echo", [1]) == [1]
                await opened.close()
    (message,) = log.messages
    assert message.startswith("cannot connect to ")
    assert message.endswith(f"nothing listens on 127.0.0.1:{port}; retrying wait={PATIENCE:g}s")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("reconnect", [True, False])
def test_first_connection_is_retried(scheme: str, *, reconnect: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def opening(port: int) -> fiveways.Peer:
        return await connect(f"{scheme}://127.0.0.1:{port}", wait=PATIENCE, reconnect=reconnect)

    asyncio.run(connected_late(opening, caplog))


def test_first_connection_gives_up_after_wait() -> None:
    text = asyncio.run(opening_error(f"lrpm+ws://127.0.0.1:{free_port()}", wait=0.3))
    assert text.endswith(" (retried for 0.3 seconds)")


def test_wrong_token_is_not_retried() -> None:
    async def run() -> None:
        async with hub(settings(auth=AuthSettings(anonymous="never"))) as place:
            with pytest.raises(Refused, match="the hub does not know this token"):
                await connect(f"lrpm+ws://127.0.0.1:{place.port}", token="wrong", wait=math.inf)  # noqa: S106

    asyncio.run(run())
