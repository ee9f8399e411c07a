"""Deadlines of an event loop that was blocked."""

import asyncio
import socket
import time

from fiveways.runtime.deadline_timer import DeadlineTimer
from tests.support.running import on_both_loops


class Waiting(DeadlineTimer):
    """Records its deadlines and received data."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.woken = asyncio.Event()

    def _on_deadline(self) -> None:
        self.notes.append("woken")
        self.woken.set()


@on_both_loops
async def test_blocked_loop_reads_data_before_a_late_deadline() -> None:
    waiting, loop = Waiting(), asyncio.get_running_loop()
    (ours, theirs), (busy, other) = socket.socketpair(), socket.socketpair()

    def block() -> None:
        """Read one socket for longer than the grace time, while data arrives on another."""
        busy.recv(10)
        time.sleep(1.5)
        theirs.send(b"data")

    with ours, theirs, busy, other:
        loop.add_reader(ours, lambda: waiting.notes.append(ours.recv(10).decode()))
        loop.add_reader(busy, block)
        waiting._set_deadline(loop.time() + 0.5)
        other.send(b"go")
        await asyncio.wait_for(waiting.woken.wait(), 60)
        loop.remove_reader(ours)
        loop.remove_reader(busy)
    assert waiting.notes == ["data", "woken"]


@on_both_loops
async def test_late_deadline_can_be_cancelled() -> None:
    waiting, loop = Waiting(), asyncio.get_running_loop()
    waiting._set_deadline(loop.time())
    time.sleep(0.5)  # noqa: ASYNC251  the event loop is blocked
    await asyncio.sleep(0)
    waiting._cancel_timer()
    await asyncio.sleep(0.1)
    assert waiting.notes == []
