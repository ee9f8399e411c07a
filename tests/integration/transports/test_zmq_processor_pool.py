"""Tests of the processor pool with plain ZeroMQ programs that die, restart or stay silent."""

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
from tests.support.freezing import freeze
from tests.support.running import on_both_loops

ANY_PORT = "tcp://127.0.0.1:*"
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


class Responses:
    """Recorder of the outcomes of submitted requests."""

    def __init__(self) -> None:
        self.got: dict[bytes, tuple[bytes | None, str]] = {}

    def submit(self, processors: ProcessorPool, payload: bytes) -> int:
        return processors.submit(payload, partial(self._done, payload))

    def _done(self, payload: bytes, response: bytes | None, note: str) -> None:
        assert payload not in self.got
        self.got[payload] = response, note


class Worker:
    """Processor in this process. It answers in `work`."""

    def __init__(self, context: Context, kind: int, *, connect: str = "") -> None:
        self.socket: Socket = context.socket(kind)
        self.endpoint = connect
        if connect:
            self.socket.connect(connect)
        else:
            self.socket.bind(ANY_PORT)
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
async def test_each_kind_of_processor_answers(kind: int) -> None:
    async with running() as (processors, context):
        listening = Worker(context, kind)
        processors.add(listening.endpoint)
        workers = [listening]
        if kind != zmq.ROUTER:  # a ROUTER cannot send before it has received
            workers.append(Worker(context, kind, connect=processors.listen(ANY_PORT)))
        responses = Responses()
        for number in range(500):
            responses.submit(processors, b"%d" % number)
        await until(lambda: len(responses.got) == 500, *workers)
        assert all(got == (b"done " + payload, "") for payload, got in responses.got.items())
        assert (processors.pending(), processors.retried, processors.stray_answers) == (0, 0, 0)


@on_both_loops
async def test_restarted_processor_answers_pending_requests() -> None:
    async with running(retry_after=0.2) as (processors, _):
        child, endpoint = start(ANY_PORT, "first")
        responses = Responses()
        try:
            processors.add(endpoint)
            responses.submit(processors, b"a")
            await until(lambda: responses.got)
            freeze(child.pid)
            for text in (b"b", b"c", b"d"):
                responses.submit(processors, text)
            await asyncio.sleep(0.05)
        finally:
            kill(child)
        await asyncio.sleep(0.3)
        assert processors.pending() == 3
        child, _ = start(endpoint, "second")
        try:
            await until(lambda: len(responses.got) == 4)
        finally:
            kill(child)
        assert responses.got[b"a"] == (b"first:a", "")
        assert [responses.got[text] for text in (b"b", b"c", b"d")] == [
            (b"second:b", ""),
            (b"second:c", ""),
            (b"second:d", ""),
        ]


@on_both_loops
async def test_requests_of_a_mute_processor_are_retried() -> None:
    async with running(retry_after=0.05) as (processors, context):
        mute, good = Worker(context, zmq.DEALER), Worker(context, zmq.REP)
        processors.add(mute.endpoint)
        responses = Responses()
        responses.submit(processors, b"0")
        await until(mute.take)
        processors.add(good.endpoint)
        for number in range(1, 20):
            responses.submit(processors, b"%d" % number)
        await until(lambda: len(responses.got) == 20, good)
        assert processors.retried > 0


@on_both_loops
async def test_first_response_counts() -> None:
    async with running(retry_after=0.05) as (processors, context):
        slow = Worker(context, zmq.DEALER)
        processors.add(slow.endpoint)
        responses = Responses()
        responses.submit(processors, b"x")
        requests: list[list[bytes]] = []

        def is_requested_twice() -> bool:
            parts = slow.take()
            if parts is not None:
                requests.append(parts)
            return len(requests) == 2

        await until(is_requested_twice)
        assert requests[0] == requests[1]
        slow.socket.send_multipart([*requests[0][:-1], b"one"])
        slow.socket.send_multipart([*requests[0][:-1], b"two"])
        await until(lambda: processors.stray_answers == 1)
        assert responses.got == {b"x": (b"one", "")}


@on_both_loops
async def test_second_processor_shares_the_load() -> None:
    async with running() as (processors, context):
        first, second = Worker(context, zmq.REP), Worker(context, zmq.REP)
        processors.add(first.endpoint)
        responses = Responses()
        responses.submit(processors, b"alone")
        await until(lambda: responses.got, first)
        processors.add(second.endpoint)
        sent = 0
        while not second.seen:
            responses.submit(processors, b"warm up %d" % sent)
            sent += 1
            await until(lambda: not processors.pending(), first, second)
        first.seen.clear()
        second.seen.clear()
        for number in range(300):
            responses.submit(processors, b"%d" % number)
        await until(lambda: not processors.pending(), first, second)
        assert len(first.seen) + len(second.seen) == 300
        assert min(len(first.seen), len(second.seen)) > 100
        processors.remove(first.endpoint)
        await asyncio.sleep(0.05)
        first.seen.clear()
        for number in range(20):
            responses.submit(processors, b"later %d" % number)
        await until(lambda: not processors.pending(), second)
        assert first.seen == []


@on_both_loops
async def test_cancelled_request_is_not_answered_or_retried() -> None:
    async with running(retry_after=0.05) as (processors, context):
        responses = Responses()
        unsent = responses.submit(processors, b"never sent")
        assert processors.cancel(unsent)
        worker = Worker(context, zmq.REP)
        processors.add(worker.endpoint)
        handle = responses.submit(processors, b"sent")
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
        assert (responses.got, processors.pending()) == ({}, 0)


@on_both_loops
async def test_requests_above_max_pending_are_refused() -> None:
    async with running(max_pending=2) as (processors, _):
        responses = Responses()
        first = responses.submit(processors, b"a")
        responses.submit(processors, b"b")
        with pytest.raises(ProcessorsBusy, match="too many pending requests: 2"):
            responses.submit(processors, b"c")
        processors.cancel(first)
        responses.submit(processors, b"d")
        processors.close()
        processors.close()
        await asyncio.sleep(0)
        assert responses.got == {b"b": (None, "closed"), b"d": (None, "closed")}
        with pytest.raises(ProcessorsBusy, match="closed"):
            responses.submit(processors, b"e")


@on_both_loops
async def test_invalid_response_fails_the_request() -> None:
    async with running() as (processors, context):
        worker = Worker(context, zmq.REP)
        processors.add(worker.endpoint)
        responses = Responses()
        for text, response in ((b"parts", [b"a", b"b"]), (b"long", [b"x" * 1001]), (b"empty", [b""])):
            responses.submit(processors, text)
            await until(worker.take)
            worker.socket.send_multipart(response)
            await until(lambda: not processors.pending())
        assert responses.got == {
            b"parts": (None, "the response has 2 parts"),
            b"long": (None, "the response has 1001 bytes"),
            b"empty": (b"", ""),
        }


@on_both_loops
async def test_invalid_endpoint_is_an_error() -> None:
    async with running() as (processors, _):
        with pytest.raises(ValueError, match="cannot connect to"):
            processors.add("nowhere")
        with pytest.raises(ValueError, match="is not connected"):
            processors.remove("tcp://127.0.0.1:9")
        with pytest.raises(OSError, match="cannot listen on"):
            processors.listen("nowhere")
