"""Processors: programs with plain ZeroMQ sockets, which die, restart and are silent."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import zmq

from fiveways.transports.zmq_processor_pool import ProcessorPool, ProcessorsBusy
from fiveways.transports.zmq_socket_watcher import Context, Socket
from tests.support.event_loops import on_both_loops
from tests.support.freezing import freeze

ANY = "tcp://127.0.0.1:*"
REP = """
import sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
print(socket.LAST_ENDPOINT.decode(), flush=True)
while True:
    socket.send(sys.argv[2].encode() + b":" + socket.recv())
"""


@asynccontextmanager
async def running(retry_after: float = 5.0, max_pending: int = 4096) -> AsyncIterator[tuple[ProcessorPool, Context]]:
    context: Context = zmq.Context()
    processors = ProcessorPool(retry_after=retry_after, max_pending=max_pending, max_answer=1000, context=context)
    try:
        yield processors, context
    finally:
        processors.close()
        context.destroy(linger=0)


class Answers:
    """Notes what became of what was submitted."""

    def __init__(self) -> None:
        self.got: dict[bytes, tuple[bytes | None, str]] = {}

    def submit(self, processors: ProcessorPool, payload: bytes) -> int:
        return processors.submit(payload, partial(self._done, payload))

    def _done(self, payload: bytes, answer: bytes | None, note: str) -> None:
        assert payload not in self.got
        self.got[payload] = answer, note


class Worker:
    """A processor in this process. Answers when it is told to `work`."""

    def __init__(self, context: Context, kind: int, *, connect: str = "") -> None:
        self.socket: Socket = context.socket(kind)
        self.endpoint = connect
        if connect:
            self.socket.connect(connect)
        else:
            self.socket.bind(ANY)
            self.endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT).decode()  # type: ignore[union-attr]
        self.seen: list[bytes] = []

    def take(self) -> list[bytes] | None:
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self.seen.append(parts[-1])
        return parts

    def work(self) -> None:
        while (parts := self.take()) is not None:
            self.socket.send_multipart([*parts[:-1], b"done " + parts[-1]])


async def until(condition: Callable[[], object], *workers: Worker, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            for worker in workers:
                worker.work()
            await asyncio.sleep(0.002)


def start(endpoint: str, name: str) -> tuple["subprocess.Popen[bytes]", str]:
    child = subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", REP, endpoint, name], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    return child, child.stdout.readline().decode().strip()


def kill(child: "subprocess.Popen[bytes]") -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


@on_both_loops
@pytest.mark.parametrize("kind", [zmq.REP, zmq.DEALER, zmq.ROUTER])
async def test_each_kind_of_processor_answers_whoever_connects(kind: int) -> None:
    async with running() as (processors, context):
        there = Worker(context, kind)
        processors.add(there.endpoint)
        workers = [there]
        if kind != zmq.ROUTER:  # which would have to be spoken to first
            workers.append(Worker(context, kind, connect=processors.listen(ANY)))
        answers = Answers()
        for number in range(500):
            answers.submit(processors, b"%d" % number)
        await until(lambda: len(answers.got) == 500, *workers)
        assert all(got == (b"done " + payload, "") for payload, got in answers.got.items())
        assert (processors.pending(), processors.retried, processors.stray_answers) == (0, 0, 0)


@on_both_loops
async def test_a_processor_that_is_killed_and_restarted_answers_in_the_end() -> None:
    async with running(retry_after=0.2) as (processors, _):
        child, endpoint = start(ANY, "first")
        answers = Answers()
        try:
            processors.add(endpoint)
            answers.submit(processors, b"a")
            await until(lambda: answers.got)
            freeze(child.pid)
            for text in (b"b", b"c", b"d"):
                answers.submit(processors, text)
            await asyncio.sleep(0.05)
        finally:
            kill(child)
        await asyncio.sleep(0.3)
        assert processors.pending() == 3
        child, _ = start(endpoint, "second")
        try:
            await until(lambda: len(answers.got) == 4)
        finally:
            kill(child)
        assert answers.got[b"a"] == (b"first:a", "")
        assert [answers.got[text] for text in (b"b", b"c", b"d")] == [
            (b"second:b", ""),
            (b"second:c", ""),
            (b"second:d", ""),
        ]


@on_both_loops
async def test_one_that_never_answers_does_not_matter_when_another_does() -> None:
    async with running(retry_after=0.05) as (processors, context):
        mute, good = Worker(context, zmq.DEALER), Worker(context, zmq.REP)
        processors.add(mute.endpoint)
        answers = Answers()
        answers.submit(processors, b"0")
        await until(mute.take)
        processors.add(good.endpoint)
        for number in range(1, 20):
            answers.submit(processors, b"%d" % number)
        await until(lambda: len(answers.got) == 20, good)
        assert processors.retried > 0


@on_both_loops
async def test_the_first_answer_counts_however_late() -> None:
    async with running(retry_after=0.05) as (processors, context):
        slow = Worker(context, zmq.DEALER)
        processors.add(slow.endpoint)
        answers = Answers()
        answers.submit(processors, b"x")
        asked: list[list[bytes]] = []

        def is_asked_twice() -> bool:
            parts = slow.take()
            if parts is not None:
                asked.append(parts)
            return len(asked) == 2

        await until(is_asked_twice)
        assert asked[0] == asked[1]
        slow.socket.send_multipart([*asked[0][:-1], b"one"])
        slow.socket.send_multipart([*asked[0][:-1], b"two"])
        await until(lambda: processors.stray_answers == 1)
        assert answers.got == {b"x": (b"one", "")}


@on_both_loops
async def test_a_second_processor_shares_the_load() -> None:
    async with running() as (processors, context):
        first, second = Worker(context, zmq.REP), Worker(context, zmq.REP)
        processors.add(first.endpoint)
        answers = Answers()
        answers.submit(processors, b"alone")
        await until(lambda: answers.got, first)
        processors.add(second.endpoint)
        sent = 0
        while not second.seen:
            answers.submit(processors, b"warm up %d" % sent)
            sent += 1
            await until(lambda: not processors.pending(), first, second)
        first.seen.clear()
        second.seen.clear()
        for number in range(300):
            answers.submit(processors, b"%d" % number)
        await until(lambda: not processors.pending(), first, second)
        assert len(first.seen) + len(second.seen) == 300
        assert min(len(first.seen), len(second.seen)) > 100
        processors.remove(first.endpoint)
        await asyncio.sleep(0.05)
        first.seen.clear()
        for number in range(20):
            answers.submit(processors, b"later %d" % number)
        await until(lambda: not processors.pending(), second)
        assert first.seen == []


@on_both_loops
async def test_what_is_cancelled_is_not_answered_and_not_sent_again() -> None:
    async with running(retry_after=0.05) as (processors, context):
        answers = Answers()
        unsent = answers.submit(processors, b"never sent")
        assert processors.cancel(unsent)
        worker = Worker(context, zmq.REP)
        processors.add(worker.endpoint)
        handle = answers.submit(processors, b"sent")
        parts: list[bytes] = []

        def is_taken() -> bool:
            parts.extend(worker.take() or [])
            return bool(parts)

        await until(is_taken)
        assert processors.cancel(handle)
        assert not processors.cancel(handle)
        worker.socket.send(b"too late")
        await until(lambda: processors.stray_answers == 1)
        await asyncio.sleep(0.1)
        worker.work()
        assert worker.seen.count(b"never sent") == 0
        assert (answers.got, processors.pending()) == ({}, 0)


@on_both_loops
async def test_more_than_may_wait_is_refused() -> None:
    async with running(max_pending=2) as (processors, _):
        answers = Answers()
        first = answers.submit(processors, b"a")
        answers.submit(processors, b"b")
        with pytest.raises(ProcessorsBusy, match="2 requests wait"):
            answers.submit(processors, b"c")
        processors.cancel(first)
        answers.submit(processors, b"d")
        processors.close()
        processors.close()
        await asyncio.sleep(0)
        assert answers.got == {b"b": (None, "closed"), b"d": (None, "closed")}
        with pytest.raises(ProcessorsBusy, match="closed"):
            answers.submit(processors, b"e")


@on_both_loops
async def test_an_answer_that_is_none_says_so() -> None:
    async with running() as (processors, context):
        worker = Worker(context, zmq.REP)
        processors.add(worker.endpoint)
        answers = Answers()
        for text, answer in ((b"parts", [b"a", b"b"]), (b"long", [b"x" * 1001]), (b"empty", [b""])):
            answers.submit(processors, text)
            await until(worker.take)
            worker.socket.send_multipart(answer)
            await until(lambda: not processors.pending())
        assert answers.got == {
            b"parts": (None, "the answer has 2 parts"),
            b"long": (None, "the answer has 1001 bytes"),
            b"empty": (b"", ""),
        }


@on_both_loops
async def test_an_endpoint_that_is_none_says_so() -> None:
    async with running() as (processors, _):
        with pytest.raises(ValueError, match="cannot connect to"):
            processors.add("nowhere")
        with pytest.raises(ValueError, match="is not connected"):
            processors.remove("tcp://127.0.0.1:9")
        with pytest.raises(OSError, match="cannot listen on"):
            processors.listen("nowhere")
