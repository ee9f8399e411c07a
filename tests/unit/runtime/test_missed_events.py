"""Slow consumers: they cost other subscribers nothing, and finally receive the number of missed events."""

import asyncio
from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.hub.core import Hub
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.line_counting import instructions
from tests.unit.runtime.lrpm_peers import FrameLink, enter

LIMITS = Limits(max_unread_events=1000)
TOPICS = ("a", "b")


class Link(FrameLink):
    """A link with a reader that can be stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0
        self.is_stuck = False

    def write(self, data: bytes) -> None:
        super().write(data)
        self.unread = len(data) if self.is_stuck else 0
        self.is_full = self.unread > 0

    def unsent_bytes(self) -> int:
        return self.unread

    def events(self) -> list[tuple[str, int, int]]:
        """Topic, number and count of missed events before it, for each event."""
        return [(each[4]["topic"], each[3][0], each[4].get("missed", 0)) for each in self.heard() if each[0] == 60]


class Place:
    def __init__(self, subscribers: int, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.hub = Hub(Random(1), limits)
        self.exchange = Exchange(self.hub)
        self.published: list[tuple[str, int]] = []
        self.members = [self._enter(str(number)) for number in range(subscribers)]
        self.publisher, _ = self._enter("publisher")
        for connection, _ in self.members:
            for number, topic in enumerate(TOPICS):
                connection.received(Packet(b'[63,%d,"%b",{}]' % (300 + number, topic.encode())))
        self.exchange.flush()

    def _enter(self, peer: str) -> tuple[PeerConnection, Link]:
        link = Link()
        return enter(peer, link, self.exchange, self.limits), link

    def publish(self, topic: str) -> None:
        number = len(self.published)
        self.published.append((topic, number))
        self.publisher.received(
            Packet(b'[61,%d,"%b",[%d,"%b"],{}]' % (1000 + number, topic.encode(), number, b"x" * 100))
        )

    def free(self, number: int) -> None:
        connection, link = self.members[number]
        link.is_stuck, link.unread, link.is_full = False, 0, False
        connection.writable()


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([0, 1])),
    st.tuples(st.just("burst"), st.sampled_from([0, 1])),
    st.tuples(st.sampled_from(["stick", "free", "ping", "lose"]), st.integers(0, 2)),
    st.tuples(st.just("flush"), st.none()),
)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=40))
def test_every_event_is_delivered_or_counted_as_missed(steps: list[tuple[str, int | None]]) -> None:
    async def run() -> None:
        place = Place(4)
        lost = set[int]()
        for step, which in steps:
            if step == "flush" or which is None:
                place.exchange.flush()
            elif step in ("publish", "burst"):
                for _ in range(1 if step == "publish" else 12):
                    place.publish(TOPICS[which])
                    place.exchange.flush()
            elif which in lost:
                continue
            elif step == "stick":
                place.members[which][1].is_stuck = True
            elif step == "free":
                place.free(which)
            elif step == "ping":
                place.members[which][0].received(Packet(b'[40,5000,"hub.ping",null,{}]'))
            elif which == 0:
                place.members[0][0].lost("for the test")
                lost.add(0)
        place.exchange.flush()
        missed_by_peer = {each.peer: each.missed for each in place.hub.traffic.slow_consumers()}
        for number in sorted({0, 1, 2, 3} - lost):
            place.free(number)
        place.exchange.flush()
        missed = 0
        for topic in TOPICS:
            place.publish(topic)
        place.exchange.flush()
        for number, (connection, link) in enumerate(place.members):
            if number in lost:
                continue
            received = link.events()
            for topic in TOPICS:
                numbers = [each[1] for each in received if each[0] == topic]
                assert numbers == sorted(set(numbers))
                left_out = sum(each[2] for each in received if each[0] == topic)
                assert len(numbers) + left_out == sum(each[0] == topic for each in place.published)
            missed = sum(each[2] for each in received)
            assert connection.missed == missed == missed_by_peer.get(place.hub.find_session(connection.peer).name, 0)  # type: ignore[union-attr]
            assert connection._skip_groups == ()
        if not lost:
            total = sum(connection.missed for connection, _ in place.members)
            assert sum(each.missed for each in place.hub.traffic.topics.values()) == total

    asyncio.run(run())


def test_event_costs_the_same_for_20_and_200_stuck_subscribers() -> None:
    async def run() -> None:
        steps = []
        for count in (20, 200):
            place = Place(count)
            for _, link in place.members:
                link.is_stuck = True
            for _ in range(30):
                place.publish("a")
                place.exchange.flush()
            assert all(connection.is_slow for connection, _ in place.members)

            def publish(target: Place = place) -> None:
                target.publish("a")
                target.exchange.flush()

            steps.append(instructions(publish))
        assert steps[1] <= 1.1 * steps[0]

    asyncio.run(run())


class CountingQueue(deque[Any]):
    """A queue that counts iterations over it."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.looks += 1
            yield each

    def __reversed__(self) -> Iterator[Any]:
        for each in super().__reversed__():
            self.looks += 1
            yield each


def test_outbox_of_a_stuck_subscriber_is_not_recounted_completely() -> None:
    async def run() -> None:
        place = Place(1, Limits())
        connection, link = place.members[0]
        link.is_stuck = True
        connection.outbox.pending = pending = CountingQueue()
        for _ in range(500):
            place.publish("a")
            place.exchange.flush()
        assert len(pending) > 400
        assert pending.looks < 5 * len(pending)
        assert connection.outbox.buffered_bytes == sum(map(len, pending))

    asyncio.run(run())


@pytest.mark.parametrize("others", [0, 1])
def test_ended_subscription_leaves_no_count(others: int) -> None:
    async def run() -> None:
        place = Place(1 + others)
        connection, link = place.members[0]
        link.is_stuck = True
        for _ in range(30):
            place.publish("a")
            place.exchange.flush()
        assert connection.is_slow
        connection.received(Packet(b"[65,900,256,{}]"))
        assert "256" not in connection._missed_events
        connection.received(Packet(b'[63,901,"a",{}]'))
        place.publish("a")
        place.exchange.flush()
        place.free(0)
        place.publish("a")
        place.exchange.flush()
        assert link.events()[-1] == ("a", 31, 1)
        assert "256" not in connection._missed_events

    asyncio.run(run())
