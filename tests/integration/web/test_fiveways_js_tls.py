"""fiveways.js over TLS, in Node.js, through a proxy that terminates TLS in front of the hub."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from tests.integration.web.engines import Node, run
from tests.support.broker_processes import Certificate, certificate
from tests.support.hubs import Hub

SCHEMES = {"umq+wss": "umq", "lrpm+wss": "lrpm", "nq+wss": "nq", "nq+https": "nq"}


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def proxy(server_certificate: Certificate, port: int) -> Iterator[int]:
    """Terminate TLS in front of a port; yield the port of the proxy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_certificate.file, server_certificate.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    with asyncio.Runner() as runner:
        server = runner.run(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
        loop, stop = runner.get_loop(), asyncio.Event()
        thread = threading.Thread(target=runner.run, args=(stop.wait(),))
        thread.start()
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(stop.set)
            thread.join()


@pytest.fixture(scope="module")
def trusting_node(hub: Hub) -> Iterator[tuple[Node, int]]:
    """A Node.js that trusts the certificate of a proxy, and the proxy's port."""
    port = urlsplit(hub.url("lrpm+ws")).port
    assert port is not None
    with (
        certificate() as new_certificate,
        proxy(new_certificate, port) as proxy_port,
        closing(Node(NODE_EXTRA_CA_CERTS=str(new_certificate.file))) as node,
    ):
        yield node, proxy_port


@pytest.mark.parametrize("scheme", SCHEMES)
def test_features_behind_a_tls_proxy(trusting_node: tuple[Node, int], scheme: str) -> None:
    engine, port = trusting_node
    for case in ("calls", "topics", "serving"):
        run(engine, case, url=f"{scheme}://localhost:{port}/{SCHEMES[scheme]}")


@pytest.mark.parametrize("scheme", ["lrpm+wss", "nq+https"])
def test_unknown_certificate_is_refused(trusting_node: tuple[Node, int], node: Node, scheme: str) -> None:
    run(node, "no_hub", url=f"{scheme}://localhost:{trusting_node[1]}")
