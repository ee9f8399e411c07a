"""Routed calls. Caller and callee are in this process, the router is in another."""

import asyncio
from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter
from typing import Final, Protocol

from benchmarks.hub.codecs import FIRST, Codec, UnexpectedFrame
from benchmarks.hub.links import Link, finish, open_nats, open_websocket
from benchmarks.hub.results import Sample, Stopwatch
from benchmarks.hub.routers import Router

WARM_UP: Final = 0.2


@dataclass(frozen=True)
class Contestant:
    """A router, and the codecs of its caller and its callee."""

    name: str
    router: Router
    caller: Codec
    callee: Codec


class CallCodec(Protocol):
    """Encodes calls and decodes responses."""

    def encode_call(self, number: int) -> bytes:
        """Return a call."""

    def answered(self, answer: bytes) -> int:
        """Return the number of the answered call."""


class Callee:
    """Answers every call with its own body."""

    def __init__(self, link: Link, codec: Codec) -> None:
        self.served = 0
        self._send = link.send
        self._reply = codec.reply
        link.on_frame = self._on_frame

    def _on_frame(self, frame: bytes) -> None:
        self.served += 1
        self._send(self._reply(frame))


class Caller:
    """Keeps a number of calls pending until the time is over, then waits for the last responses."""

    def __init__(self, link: Link, codec: CallCodec) -> None:
        self.latencies: list[float] = []
        self._number = FIRST
        self._pending: dict[int, float] = {}
        self._stop_at = 0.0
        self._done: asyncio.Future[float]
        self._link = link
        self._send = link.send
        self._call = codec.encode_call
        self._answered = codec.answered
        link.on_frame = self._on_frame

    async def run(self, in_flight: int, seconds: float) -> float:
        """Return the seconds from the first call to the last response."""
        self.latencies = []
        self._done = asyncio.get_running_loop().create_future()
        started = perf_counter()
        self._stop_at = started + seconds
        for _ in range(in_flight):
            self._next()
        return await self._done - started

    def _next(self) -> None:
        number = self._number
        self._number = number + 1
        self._pending[number] = perf_counter()
        self._send(self._call(number))

    def _on_frame(self, frame: bytes) -> None:
        # A response to an unknown or answered call raises KeyError here.
        sent_at = self._pending.pop(self._answered(frame))
        now = perf_counter()
        self.latencies.append(now - sent_at)
        if now < self._stop_at:
            self._next()
        elif not self._pending:
            self._done.set_result(now)


async def connect(router: Router, codec: Codec, *, batches: bool = False, local: str = "") -> Link:
    """Connect and perform the handshake; `local` is the local address, if any."""
    if codec.is_nats:
        link = await open_nats(router.port, batches=batches)
    else:
        url = f"ws://127.0.0.1:{router.port}{codec.path}"
        link = await open_websocket(url, codec.subprotocol, is_text=codec.is_text, batches=batches, local=local)
    for handshake in codec.opening:
        await link.ask(handshake)
    return link


async def measure(contestant: Contestant, in_flight: int, seconds: float, *, batches: bool = False) -> Sample:
    """Measure once, on fresh connections."""
    links = [
        await connect(contestant.router, codec, batches=batches) for codec in (contestant.callee, contestant.caller)
    ]
    try:
        await links[0].ask(contestant.callee.register)
        call_ends = Callee(links[0], contestant.callee), Caller(links[1], contestant.caller)
        return await timed(contestant.router, call_ends, links, in_flight, seconds)
    finally:
        for link in links:
            link.close()


async def timed(
    router: Router, ends: tuple[Callee, Caller], links: list[Link], in_flight: int, seconds: float
) -> Sample:
    """Measure for a number of seconds, after a warm-up."""
    callee, caller = ends
    await finish(caller.run(in_flight, min(WARM_UP, seconds)), links, seconds)
    callee.served = 0
    watch = Stopwatch(router.cpu)
    duration = await finish(caller.run(in_flight, seconds), links, seconds)
    cpu, others = watch.stop()
    answers = len(caller.latencies)
    if callee.served != answers:
        raise UnexpectedFrame(f"{callee.served} calls were served, {answers} were answered")
    cuts = quantiles(caller.latencies, n=100)
    return Sample(answers / duration, cpu / answers * 1e6, cuts[49] * 1e6, cuts[98] * 1e6, others=others)
