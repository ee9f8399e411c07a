"""Fan-out: one publisher and fifty subscribers in this process, the router in another.

The subscribers count a character that every body has once, in the data that their sockets read. Parsing the frames of
fifty subscribers would measure this process instead of the router.
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
"""Limit of publications by which the slowest subscriber is behind; low enough that no router drops one."""
_WARM_UP: Final = 0.2
_GRACE: Final = 0.05
_TAIL: Final = 256
_BUFFER: Final = bytearray(1 << 18)
_VIEW: Final = memoryview(_BUFFER)


class Subscriber(asyncio.BufferedProtocol):
    """Takes over the socket of a subscribed link. All subscribers share one buffer: each is done with it at once."""

    def __init__(self, link: Link, publisher: "PacedPublisher") -> None:
        self.received = 0
        self.tail = b""
        self._link = link
        self._publisher = publisher
        link.socket.set_protocol(self)

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the shared buffer."""
        return _VIEW

    def buffer_updated(self, size: int) -> None:
        """Count the received events."""
        self.received += _BUFFER.count(MARK, 0, size)
        piece = _BUFFER[max(0, size - _TAIL) : size]
        self.tail = bytes(piece) if size >= _TAIL else (self.tail + piece)[-_TAIL:]
        self._publisher.schedule()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Record a failure."""
        self._link.fail(UnexpectedFrame("the router disconnected a subscriber"))


class PacedPublisher:
    """Publishes as fast as the slowest subscriber receives."""

    def __init__(self, link: Link, codec: Codec) -> None:
        self.subscribers: list[Subscriber] = []
        self.published = 0
        self._send = link.send
        self._publish = codec.encode_publication
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._stop_at = 0.0
        self._done: asyncio.Future[float]
        link.on_frame = lambda _: None  # ignore acknowledgements, which some routers send

    async def run(self, seconds: float) -> float:
        """Return the seconds from the first publication to the last delivery."""
        self._done = self._loop.create_future()
        started = perf_counter()
        self._stop_at = started + seconds
        self._fill(self.published)
        return await self._done - started

    def schedule(self) -> None:
        """Continue after this event loop iteration: checking all subscribers once is enough."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_due = False
        slowest = min(subscriber.received for subscriber in self.subscribers)
        if (now := perf_counter()) < self._stop_at:
            self._fill(slowest)
        elif slowest >= self.published and not self._done.done():
            self._done.set_result(now)

    def _fill(self, slowest: int) -> None:
        for _ in range(slowest + WINDOW - self.published):
            self._send(self._publish(FIRST + self.published))
            self.published += 1


async def measure(contestant: Contestant, seconds: float, *, subscribers: int = SUBSCRIBERS) -> Sample:
    """Measure once, on fresh connections, after a warm-up."""
    links = [
        await connect(contestant.router, codec) for codec in [contestant.caller] + [contestant.callee] * subscribers
    ]
    try:
        publisher = PacedPublisher(links[0], contestant.caller)
        for link in links[1:]:
            await link.ask(contestant.callee.subscribe)
        publisher.subscribers = [Subscriber(link, publisher) for link in links[1:]]
        await finish(publisher.run(min(_WARM_UP, seconds)), links, seconds)
        before = publisher.published
        watch = Stopwatch(contestant.router.cpu)
        duration = await finish(publisher.run(seconds), links, seconds)
        cpu, others = watch.stop()
        await asyncio.sleep(_GRACE)
        _check(publisher)
    finally:
        for link in links:
            link.close()
    deliveries = (publisher.published - before) * subscribers
    return Sample(deliveries / duration, cpu / deliveries * 1e6, others=others)


def _check(publisher: PacedPublisher) -> None:
    """Verify that every subscriber received every publication once, and the last one last."""
    last = b"%d%b" % (FIRST + publisher.published - 1, MARK)
    for subscriber in publisher.subscribers:
        if subscriber.received != publisher.published or last not in subscriber.tail:
            raise UnexpectedFrame(
                f"{subscriber.received} of {publisher.published} publications were received; "
                f"the last data is {subscriber.tail!r}"
            )
