"""Fan-out: one publisher, fifty subscribers, all in this process, and the router in another.

The subscribers count, in what their sockets give them, a character that every body has once: reading fifty
subscribers' frames one by one would measure this process instead of the router.
"""

import asyncio
from time import perf_counter
from typing import Final

from benchmarks.hub.calls import Contestant, connect
from benchmarks.hub.codecs import FIRST, MARK, Codec, UnexpectedFrame
from benchmarks.hub.links import Link, finish
from benchmarks.hub.results import Sample, Stopwatch

SUBSCRIBERS: Final = 50
WINDOW: Final = 64
"""Publications that the slowest subscriber may be behind: little enough that no router has to skip one."""
_WARM_UP: Final = 0.2
_GRACE: Final = 0.05
_TAIL: Final = 256
_BUFFER: Final = bytearray(1 << 18)
_VIEW: Final = memoryview(_BUFFER)


class Subscriber(asyncio.BufferedProtocol):
    """Takes over the socket of a link that has subscribed. All share one buffer: each is done with it at once."""

    def __init__(self, link: Link, pace: "PacedPublisher") -> None:
        self.received = 0
        self.tail = b""
        self._link = link
        self._pace = pace
        link.socket.set_protocol(self)

    def get_buffer(self, _hint: int) -> memoryview:
        """Return where to read to."""
        return _VIEW

    def buffer_updated(self, size: int) -> None:
        """Count."""
        self.received += _BUFFER.count(MARK, 0, size)
        piece = _BUFFER[max(0, size - _TAIL) : size]
        self.tail = bytes(piece) if size >= _TAIL else (self.tail + piece)[-_TAIL:]
        self._pace.soon()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Fail."""
        self._link.fail(UnexpectedFrame("a subscriber was thrown out"))


class PacedPublisher:
    """Publishes as fast as the slowest subscriber lets it."""

    def __init__(self, link: Link, codec: Codec) -> None:
        self.subscribers: list[Subscriber] = []
        self.published = 0
        self._send = link.send
        self._publish = codec.say_publish
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._stop_at = 0.0
        self._done: asyncio.Future[float]
        link.heard = lambda _: None  # some routers acknowledge

    async def run(self, seconds: float) -> float:
        """Return how long it took from the first publication to the last delivery."""
        self._done = self._loop.create_future()
        started = perf_counter()
        self._stop_at = started + seconds
        self._fill(self.published)
        return await self._done - started

    def soon(self) -> None:
        """Go on after this pass of the loop: looking at all subscribers once is enough."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        slowest = min(each.received for each in self.subscribers)
        if (now := perf_counter()) < self._stop_at:
            self._fill(slowest)
        elif slowest >= self.published and not self._done.done():
            self._done.set_result(now)

    def _fill(self, slowest: int) -> None:
        for _ in range(slowest + WINDOW - self.published):
            self._send(self._publish(FIRST + self.published))
            self.published += 1


async def measure(who: Contestant, seconds: float, *, subscribers: int = SUBSCRIBERS) -> Sample:
    """One measurement on fresh connections, after a short one that does not count."""
    links = [await connect(who.router, codec) for codec in [who.caller] + [who.callee] * subscribers]
    try:
        pace = PacedPublisher(links[0], who.caller)
        for link in links[1:]:
            await link.ask(who.callee.follow)
        pace.subscribers = [Subscriber(link, pace) for link in links[1:]]
        await finish(pace.run(min(_WARM_UP, seconds)), links, seconds)
        before = pace.published
        watch = Stopwatch(who.router.cpu)
        took = await finish(pace.run(seconds), links, seconds)
        cpu, others = watch.stop()
        await asyncio.sleep(_GRACE)
        _check(pace)
    finally:
        for link in links:
            link.close()
    deliveries = (pace.published - before) * subscribers
    return Sample(deliveries / took, cpu / deliveries * 1e6, others=others)


def _check(pace: PacedPublisher) -> None:
    """Everybody has everything, once, and the last one last."""
    last = b"%d%b" % (FIRST + pace.published - 1, MARK)
    for each in pace.subscribers:
        if each.received != pace.published or last not in each.tail:
            raise UnexpectedFrame(f"{each.received} of {pace.published} publications came, and at last {each.tail!r}")
