"""Tests of the workaround for stale readers: they do not block the next user of the file descriptor."""

import asyncio
import os
import socket
import struct

import pytest
import uvloop
import zmq

from fiveways.transports.base import Receiver
from fiveways.transports.stale_file_descriptors import forget_stale_handle
from fiveways.transports.websocket import WebSocketLink
from fiveways.transports.websocket_client import open_websocket
from fiveways.transports.zmq_socket_watcher import SocketWatcher
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.running import on_both_loops

RESET = struct.pack("ii", 1, 0)


class Quiet:
    def received(self, packet: Packet) -> None: ...

    def progressed(self, size: int) -> bool:
        raise AssertionError

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...


async def leave_stale_handle() -> None:
    """Close a reset socket without its handle. Its file descriptor is the lowest free one."""
    with socket.socket() as client, socket.create_server(("127.0.0.1", 0)) as server:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        received = asyncio.Event()
        asyncio.get_running_loop().add_reader(client.fileno(), received.set)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        accepted.close()
        await received.wait()
        os.close(client.detach())


def receive(_link: WebSocketLink) -> Receiver:
    return Quiet()


def test_second_attempt_connects() -> None:
    async def connect() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
            await leave_stale_handle()
            with pytest.raises(ConnectionAbortedError, match="the handler is closed"):
                await open_websocket(url, receive, limits=Limits())
            with pytest.raises(ConnectionError, match="did not answer"):
                await open_websocket(url, receive, limits=Limits(), timeout=0.1)

    uvloop.run(connect())


def test_other_errors_are_not_handled() -> None:
    assert not forget_stale_handle(RuntimeError("no running event loop"))


@on_both_loops
async def test_zmq_socket_is_read_where_a_reader_was_left() -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.bind("inproc://stale")
        closed, other = socket.socketpair()
        number = closed.fileno()
        asyncio.get_running_loop().add_reader(number, bool)
        await asyncio.sleep(0)
        os.close(closed.detach())
        with other, context.socket(zmq.PULL) as pull:
            assert pull.getsockopt(zmq.FD) == number
            received = asyncio.Event()

            def read() -> None:
                pull.recv(zmq.NOBLOCK)
                received.set()

            watch = SocketWatcher(pull, read)
            pull.connect("inproc://stale")
            for _ in range(10):  # the first check, which finds no message
                await asyncio.sleep(0)
            push.send(b"something")
            await asyncio.wait_for(received.wait(), 60)
            watch.close()
