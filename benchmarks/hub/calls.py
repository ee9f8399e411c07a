"""Routed calls: caller, router, callee, router, caller. Both ends are in this process, the router in another."""

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
    """A router, and how its caller and its callee speak."""

    name: str
    router: Router
    caller: Codec
    callee: Codec


class CallCodec(Protocol):
    """How a caller says a call, and knows which one is answered."""

    def say_call(self, number: int) -> bytes:
        """Return a call."""

    def answered(self, answer: bytes) -> int:
        """Return which call this answers."""


class Callee:
    """Answers every call with its own body."""

    def __init__(self, link: Link, codec: Codec) -> None:
        self.served = 0
        self._send = link.send
        self._reply = codec.reply
        link.heard = self._heard

    def _heard(self, frame: bytes) -> None:
        self.served += 1
        self._send(self._reply(frame))


class Caller:
    """Keeps so many calls in flight until the time is over, and then waits for the last answers."""

    def __init__(self, link: Link, codec: CallCodec) -> None:
        self.waits: list[float] = []
        self._number = FIRST
        self._pending: dict[int, float] = {}
        self._stop_at = 0.0
        self._done: asyncio.Future[float]
        self._link = link
        self._send = link.send
        self._call = codec.say_call
        self._answered = codec.answered
        link.heard = self._heard

    async def run(self, in_flight: int, seconds: float) -> float:
        """Return how long it took from the first call to the last answer."""
        self.waits = []
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

    def _heard(self, frame: bytes) -> None:
        # An answer to no call, or a second one to the same, raises KeyError here.
        asked = self._pending.pop(self._answered(frame))
        now = perf_counter()
        self.waits.append(now - asked)
        if now < self._stop_at:
            self._next()
        elif not self._pending:
            self._done.set_result(now)


async def connect(router: Router, codec: Codec, *, batches: bool = False, local: str = "") -> Link:
    """Open a connection, from another address of this machine if `local` names one, and shake hands."""
    if codec.is_nats:
        link = await open_nats(router.port, batches=batches)
    else:
        url = f"ws://127.0.0.1:{router.port}{codec.path}"
        link = await open_websocket(url, codec.subprotocol, is_text=codec.is_text, batches=batches, local=local)
    for each in codec.opening:
        await link.ask(each)
    return link


async def measure(who: Contestant, in_flight: int, seconds: float, *, batches: bool = False) -> Sample:
    """One measurement on fresh connections."""
    links = [await connect(who.router, codec, batches=batches) for codec in (who.callee, who.caller)]
    try:
        await links[0].ask(who.callee.offer)
        ends = Callee(links[0], who.callee), Caller(links[1], who.caller)
        return await timed(who.router, ends, links, in_flight, seconds)
    finally:
        for link in links:
            link.close()


async def timed(
    router: Router, ends: tuple[Callee, Caller], links: list[Link], in_flight: int, seconds: float
) -> Sample:
    """Let them talk for so long, after a short while that does not count."""
    callee, caller = ends
    await finish(caller.run(in_flight, min(WARM_UP, seconds)), links, seconds)
    callee.served = 0
    watch = Stopwatch(router.cpu)
    took = await finish(caller.run(in_flight, seconds), links, seconds)
    cpu, others = watch.stop()
    answers = len(caller.waits)
    if callee.served != answers:
        raise UnexpectedFrame(f"{callee.served} calls were served and {answers} answered")
    cuts = quantiles(caller.waits, n=100)
    return Sample(answers / took, cpu / answers * 1e6, cuts[49] * 1e6, cuts[98] * 1e6, others=others)
