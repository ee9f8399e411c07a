"""Tests of the end of a ZeroMQ link: it does not affect the next link or the process."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from fiveways.transports.zmq_client import open_zmq
from fiveways.transports.zmq_link import ZmqLimits, ZmqLink
from fiveways.transports.zmq_port import ZmqPort
from fiveways.transports.zmq_socket_watcher import Context, Socket
from fiveways.wire.packet import Packet
from tests.support.running import on_both_loops

LIMITS = ZmqLimits(linger=2.0)
"""The linger time would keep old sockets alive for this long."""
MAX_WAIT_MS = 60_000
SILENCE_MS = 700
"""ZeroMQ retries every 100 ms by default."""


class Greeter:
    """Receiver that sends a message as soon as it gets a link, like the client."""

    def __init__(self, link: ZmqLink, text: bytes) -> None:
        self.is_over = asyncio.Event()
        link.write(link.frame(Packet(text)))

    def received(self, packet: Packet) -> None: ...

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_over.set()


@contextmanager
def new_context() -> Iterator[Context]:
    context: Context = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


def new_router(context: Context) -> Socket:
    """Return a ROUTER in which the latest peer takes over a routing id, as in the port."""
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)
    return router


def receive_all(router: Socket) -> list[bytes]:
    """Return all messages until there is silence."""
    messages: list[bytes] = []
    while router.poll(SILENCE_MS if messages else MAX_WAIT_MS):
        messages.append(router.recv_multipart()[1])
    return messages


async def connect(context: Context, url: str, text: bytes, wait: float = 10.0) -> tuple[ZmqLink, Greeter]:
    greeters: list[Greeter] = []

    def receive(link: ZmqLink) -> Greeter:
        greeters.append(Greeter(link, text))
        return greeters[0]

    options = {"routing_id": b"me", "limits": LIMITS, "context": context}
    link = await open_zmq(url, receive, **options, reconnects=False, timeout=wait)  # type: ignore[arg-type]
    return link, greeters[0]


@on_both_loops
async def test_failed_attempt_does_not_replace_the_next_connection() -> None:
    with new_context() as context:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            for _ in range(3):
                with pytest.raises(ConnectionError, match="did not answer"):
                    await connect(context, url, b"too early", 0.1)
        with pytest.raises(ConnectionError, match="no server is listening"):
            await connect(context, url, b"too early")
        router = new_router(context)
        await asyncio.to_thread(bind_again, router, url)
        link, _ = await connect(context, url, b"in time")
        assert await asyncio.to_thread(receive_all, router) == [b"in time"]
        link.close()


@on_both_loops
async def test_messages_of_a_lost_link_are_not_sent_later() -> None:
    with new_context() as context:
        router = new_router(context)
        router.setsockopt(zmq.RCVHWM, 1)
        url = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        link, greeter = await connect(context, url, b"hello")
        link.write(link.frames([Packet(bytes(100_000))] * 150))  # more than the system accepts
        router.close(0)
        await asyncio.wait_for(greeter.is_over.wait(), MAX_WAIT_MS / 1000)
        second_router = new_router(context)
        await asyncio.to_thread(bind_again, second_router, url)
        link, _ = await connect(context, url, b"here again")
        assert [len(item) for item in await asyncio.to_thread(receive_all, second_router)] == [len(b"here again")]
        link.close()


def bind_again(router: Socket, url: str) -> None:
    """Bind to the address of a closed socket as soon as it is free."""
    for _ in range(1000):
        try:
            router.bind(url)
        except zmq.ZMQError:
            router.poll(10)
        else:
            return
    raise AssertionError(f"{url} is not released")


@on_both_loops
async def test_written_messages_are_sent_after_close() -> None:
    with new_context() as context:
        router = new_router(context)
        url = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        link, _ = await connect(context, url, b"hello")
        link.write(link.frames([Packet(b"%d" % number) for number in range(100)]))
        link.close()
        assert await asyncio.to_thread(receive_all, router) == [b"hello", *(b"%d" % number for number in range(100))]


@on_both_loops
async def test_zeromq_heartbeats_are_disabled() -> None:
    """They abort the process when a peer leaves and another one has taken over its routing id."""
    with new_context() as context:
        port = ZmqPort(lambda link, _: Greeter(link, b"welcome"), limits=LIMITS, context=context)
        _, number = await port.listen("127.0.0.1", 0)
        link, _ = await connect(context, f"tcp://127.0.0.1:{number}", b"hello")
        sockets = [port._socket, link._owner._socket]  # type: ignore[attr-defined]
        assert [item.getsockopt(zmq.HEARTBEAT_IVL) for item in sockets if item is not None] == [0, 0]
        link.close()
        await port.close()
