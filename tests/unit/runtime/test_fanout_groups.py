"""Fan-out groups: members share frames until they receive or send anything else, which peers cannot notice."""

import asyncio
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fiveways.hub.core import Hub
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.unit.runtime.lrpm_peers import FrameLink, enter

LIMITS = Limits()
TOPICS = ("a", "b")
SUBSCRIBERS = 5
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(TOPICS)),
    st.tuples(st.sampled_from(["ping", "full", "free", "wake", "lose"]), st.integers(0, SUBSCRIBERS - 1)),
    st.tuples(st.just("flush"), st.none()),
)


class Place:
    def __init__(self) -> None:
        self.exchange = Exchange(Hub(Random(1), LIMITS))
        self.links: list[FrameLink] = []
        self.pumps: list[PeerConnection] = []
        for _ in range(SUBSCRIBERS + 1):
            self._enter()
        for connection in self.pumps[:SUBSCRIBERS]:
            for number, topic in enumerate(TOPICS):
                connection.received(Packet(b'[63,%d,"%b",{}]' % (300 + number, topic.encode())))
        self.exchange.flush()
        self.published: list[tuple[str, int]] = []

    def _enter(self) -> None:
        link = FrameLink()
        self.pumps.append(enter(str(len(self.pumps)), link, self.exchange, LIMITS))
        self.links.append(link)

    def publish(self, topic: str) -> None:
        number = len(self.published)
        self.published.append((topic, number))
        self.pumps[-1].received(Packet(b'[61,%d,"%b",%d,{}]' % (1000 + number, topic.encode(), number)))

    def do(self, step: str, what: object) -> None:
        if step == "publish":
            self.publish(str(what))
        elif step == "flush":
            self.exchange.flush()
        elif isinstance(what, int):
            self._do(step, self.pumps[what], self.links[what])

    def _do(self, step: str, connection: PeerConnection, link: FrameLink) -> None:
        if connection._ended:
            return
        if step == "ping":
            self.published.append(("", pings := len(self.published)))
            connection.received(Packet(b'[40,%d,"hub.echo",%d,{}]' % (5000 + pings, pings)))
        elif step == "full":
            link.is_full = True
        elif step == "free" and link.is_full:
            link.is_full = False
            connection.writable()
        elif step == "wake":
            connection._on_deadline()
        elif step == "lose":
            connection.lost("for the test")


@given(st.lists(STEPS, max_size=40))
def test_each_member_gets_each_frame_once_and_in_order(steps: list[tuple[str, object]]) -> None:
    async def run() -> None:
        place = Place()
        for step, what in steps:
            place.do(step, what)
        for connection, link in zip(place.pumps, place.links, strict=True):
            place._do("free", connection, link)
        place.exchange.flush()
        for connection, link in zip(place.pumps[:SUBSCRIBERS], place.links, strict=False):
            events = [(frame[4]["topic"], frame[3]) for frame in link.heard() if frame[0] == 60]
            expected = [each for each in place.published if each[0]]
            assert events == (expected[: len(events)] if connection._ended else expected)
            echoes = [frame[2] for frame in link.heard() if frame[0] == 41]
            own = [number for topic, number in place.published if not topic and number in echoes]
            assert echoes == own
            # A response keeps its place: behind earlier events, ahead of later ones.
            received = [frame[3] if frame[0] == 60 else frame[2] for frame in link.heard() if frame[0] in (41, 60)]
            assert received == sorted(received)

    asyncio.run(run())


def test_shared_frames_are_stored_once() -> None:
    async def run() -> None:
        place = Place()
        for _ in range(2):
            place.publish("a")
            place.exchange.flush()
        for _ in range(10):
            place.publish("a")
        assert [len(connection.outbox.pending) for connection in place.pumps[:SUBSCRIBERS]] == [0] * SUBSCRIBERS
        place.exchange.flush()
        assert len({tuple(link.written.splitlines()[3:]) for link in place.links[:SUBSCRIBERS]}) == 1

    asyncio.run(run())
