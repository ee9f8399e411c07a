"""What is left of a ZeroMQ link when it has ended: nothing that does harm to the next one, or to the process."""

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
from tests.support.event_loops import on_both_loops

LIMITS = ZmqLimits(linger=2.0)
"""What a link leaves behind would be there for so long."""
PATIENCE_MS = 60_000
A_WHILE_MS = 700
"""ZeroMQ tries again every 100 ms where it is told nothing else."""


class Greeter:
    """Says something as soon as there is a link, connected or not, as our client does."""

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
def a_context() -> Iterator[Context]:
    context: Context = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


def a_router(context: Context) -> Socket:
    """Return one that lets the latest have a routing id, as our port does."""
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)
    return router


def all_heard(router: Socket) -> list[bytes]:
    """Return what comes until there is silence."""
    heard: list[bytes] = []
    while router.poll(A_WHILE_MS if heard else PATIENCE_MS):
        heard.append(router.recv_multipart()[1])
    return heard


async def dial(context: Context, url: str, text: bytes, wait: float = 10.0) -> tuple[ZmqLink, Greeter]:
    made: list[Greeter] = []

    def receive(link: ZmqLink) -> Greeter:
        made.append(Greeter(link, text))
        return made[0]

    options = {"routing_id": b"me", "limits": LIMITS, "context": context}
    link = await open_zmq(url, receive, **options, reconnects=False, timeout=wait)  # type: ignore[arg-type]
    return link, made[0]


@on_both_loops
async def test_a_failed_attempt_does_not_come_back_in_place_of_the_next() -> None:
    with a_context() as context:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            for _ in range(3):
                with pytest.raises(ConnectionError, match="did not answer"):
                    await dial(context, url, b"too early", 0.1)
        with pytest.raises(ConnectionError, match="no server is listening"):
            await dial(context, url, b"too early")
        router = a_router(context)
        await asyncio.to_thread(bind_again, router, url)
        link, _ = await dial(context, url, b"in time")
        assert await asyncio.to_thread(all_heard, router) == [b"in time"]
        link.close()


@on_both_loops
async def test_what_a_lost_link_had_to_say_is_not_said_behind_the_back_of_the_next() -> None:
    with a_context() as context:
        router = a_router(context)
        router.setsockopt(zmq.RCVHWM, 1)
        url = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        link, greeter = await dial(context, url, b"hello")
        link.write(link.frames([Packet(bytes(100_000))] * 150))  # more than the system takes
        router.close(0)
        await asyncio.wait_for(greeter.is_over.wait(), PATIENCE_MS / 1000)
        again = a_router(context)
        await asyncio.to_thread(bind_again, again, url)
        link, _ = await dial(context, url, b"here again")
        assert [len(each) for each in await asyncio.to_thread(all_heard, again)] == [len(b"here again")]
        link.close()


def bind_again(router: Socket, url: str) -> None:
    """Listen where another did, as soon as that is gone."""
    for _ in range(1000):
        try:
            router.bind(url)
        except zmq.ZMQError:
            router.poll(10)
        else:
            return
    raise AssertionError(f"{url} is never free")


@on_both_loops
async def test_what_was_said_before_a_close_still_goes_out() -> None:
    with a_context() as context:
        router = a_router(context)
        url = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        link, _ = await dial(context, url, b"hello")
        link.write(link.frames([Packet(b"%d" % number) for number in range(100)]))
        link.close()
        assert await asyncio.to_thread(all_heard, router) == [b"hello", *(b"%d" % number for number in range(100))]


@on_both_loops
async def test_neither_end_has_heartbeats_of_zeromq() -> None:
    """They abort the process when somebody goes whose routing id another one has taken."""
    with a_context() as context:
        port = ZmqPort(lambda link, _: Greeter(link, b"welcome"), limits=LIMITS, context=context)
        _, number = await port.listen("127.0.0.1", 0)
        link, _ = await dial(context, f"tcp://127.0.0.1:{number}", b"hello")
        sockets = [port._socket, link._owner._socket]  # type: ignore[attr-defined]
        assert [each.getsockopt(zmq.HEARTBEAT_IVL) for each in sockets if each is not None] == [0, 0]
        link.close()
        await port.close()
