"""Delivery of many retained values to one subscription: in slices, in order, each value once."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Continuation, Deliveries, Delivery, Fanout
from fiveways.hub.traits import Credentials
from fiveways.model.messages import CloseTopic, Event, Publish, Result, Subscribe, Unsubscribe
from fiveways.model.topics import ANY_SEGMENT, Pattern, Topic
from fiveways.wire.payload import NULL, Value
from tests.support.hub_helpers import hub_with_peers, join, pattern, success, topic
from tests.support.line_counting import instructions

MANY = 1000
EVERYTHING = Pattern((ANY_SEGMENT,), True)


class Runtime:
    """Performs deliveries like the event loop: continuations run in the next iteration."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.received: dict[str, list[Event | Result]] = {}
        self.continuations: list[Continuation] = []
        self.max_deliveries = 0
        """Maximum number of deliveries in one iteration."""

    def perform(self, deliveries: Deliveries) -> None:
        self.max_deliveries = max(self.max_deliveries, len(deliveries))
        for delivery in deliveries:
            if isinstance(delivery, Delivery):
                assert isinstance(delivery.message, Event | Result)
                self.received.setdefault(delivery.peer, []).append(delivery.message)
            elif isinstance(delivery, Fanout):
                for subscriber in delivery.subscribers:
                    self.received.setdefault(subscriber.peer, []).append(delivery.event)
            else:
                assert isinstance(delivery, Continuation)
                self.continuations.append(delivery)

    def iterate(self) -> bool:
        """Run the continuations of the last iteration; return whether there were any."""
        continuations, self.continuations = self.continuations, []
        for continuation in continuations:
            self.perform(continuation.resume())
        return bool(continuations)

    def subscribe(self, peer: str, subscribed: Pattern = EVERYTHING, name: str = "s") -> None:
        self.perform(self.hub.handle(peer, Subscribe("1", subscribed, name), 0.0))

    def publish(self, topic: Topic, value: object, *, retain: bool = False, exclude_me: bool = False) -> None:
        self.perform(self.hub.handle("ann", Publish(None, topic, Value(value), (), retain, exclude_me), 0.0))

    def events(self, peer: str) -> list[tuple[Topic, object]]:
        return [
            (message.topic, message.body.value())
            for message in self.received.get(peer, [])
            if isinstance(message, Event)
        ]


def topic_of(number: int) -> Topic:
    return "t", str(number)


@pytest.fixture
def runtime() -> Runtime:
    runtime = Runtime(hub_with_peers())
    for number in range(MANY):
        runtime.publish(topic_of(number), number, retain=True)
    return runtime


def test_response_precedes_values_in_slices(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    assert runtime.received["bob"] == [Result("1", Value({"id": "s"}))]
    iterations = 0
    while runtime.iterate():
        iterations += 1
    assert sorted(runtime.events("bob")) == sorted((topic_of(number), number) for number in range(MANY))
    assert runtime.max_deliveries <= 65
    assert iterations >= MANY // 64
    assert runtime.hub.stats()["deliveries"] == MANY


def test_few_values_are_delivered_at_once(runtime: Runtime) -> None:
    runtime.subscribe("bob", pattern("t.99*"))
    assert runtime.continuations == [] or runtime.iterate()
    runtime.subscribe("cleo", pattern("t.7"))
    assert runtime.events("cleo") == [(topic_of(7), 7)]


@pytest.mark.parametrize("subscribed", [EVERYTHING, pattern("*.nothing"), pattern("t.*x"), pattern("t.*")])
def test_work_of_a_slice_does_not_grow_with_the_values(subscribed: Pattern) -> None:
    max_steps = []
    for count in (2000, 6000):
        runtime = Runtime(hub_with_peers(max_retained=count, max_topics=2 * count))
        for number in range(count):
            runtime.publish(topic_of(number), number, retain=True)
        runtime.hub._subscriptions._clear_caches()
        steps = [instructions(partial(runtime.subscribe, "bob", subscribed))]
        while runtime.continuations:
            steps.append(instructions(runtime.iterate))
        max_steps.append(max(steps))
    assert max_steps[1] <= 1.2 * max_steps[0]


def test_event_follows_older_value_of_its_topic(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    runtime.publish(topic_of(1), "live")
    runtime.publish(topic_of(2), "new", retain=True)
    runtime.publish(topic_of(3), None, retain=True)
    assert runtime.events("bob") == [
        *((topic_of(1), value) for value in (1, "live")),
        *((topic_of(2), value) for value in (2, "new")),
        *((topic_of(3), value) for value in (3, None)),
    ]
    while runtime.iterate():
        pass
    events = runtime.events("bob")
    assert len(events) == MANY + 3
    others = {topic_of(number) for number in range(MANY)} - {topic_of(number) for number in (1, 2, 3)}
    assert {topic for topic, _ in events[6:]} == others
    runtime.publish(topic_of(1), "later")
    assert runtime.events("bob")[-1] == (topic_of(1), "later")
    assert len(runtime.events("bob")) == MANY + 4


ENDS: dict[str, Callable[[Runtime], Deliveries]] = {
    "unsubscribed": lambda runtime: runtime.hub.handle("bob", Unsubscribe(None, "s"), 0.0),
    "struck": lambda runtime: runtime.hub.unsubscribe_slow_consumer("bob", "s")[1:],
    "gone": lambda runtime: runtime.hub.leave("bob", 0.0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_ended_subscription_gets_no_further_values(runtime: Runtime, end: str, iterations: int) -> None:
    runtime.subscribe("bob")
    runtime.subscribe("cleo")
    for _ in range(iterations):
        runtime.iterate()
    events = len(runtime.events("bob"))
    runtime.perform(ENDS[end](runtime))
    while runtime.iterate():
        pass
    assert len(runtime.events("bob")) == events < MANY
    assert len(runtime.events("cleo")) == MANY
    assert runtime.hub._publishing._retained_deliveries.active == {}
    assert runtime.hub._publishing._retained_deliveries._queued == {}


def test_closed_topic_loses_its_pending_value(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    for _ in range(4):
        runtime.iterate()
    pending = next(iter(runtime.hub._publishing._retained_deliveries._current.values))  # type: ignore[union-attr]
    runtime.perform(runtime.hub.handle("ann", CloseTopic(None, pending), 0.0))
    while runtime.iterate():
        pass
    assert pending not in [topic for topic, _ in runtime.events("bob")]
    assert len(runtime.events("bob")) == MANY - 1


def test_owners_take_turns() -> None:
    runtime = Runtime(hub_with_peers())
    for number in range(100):
        runtime.publish(topic_of(number), number, retain=True)
    join(runtime.hub, "guest")
    runtime.hub.resume("guest", Credentials(is_loopback=True, remote="192.0.2.7:1000"))
    for number in range(10):
        runtime.subscribe("bob", name=str(number))
    runtime.subscribe("guest")
    while len(runtime.events("guest")) < 100:
        assert runtime.iterate()
    assert len(runtime.events("bob")) <= 200
    while runtime.iterate():
        pass
    assert len(runtime.events("bob")) == 1000


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), st.booleans()), max_size=30))
def test_each_subscriber_receives_each_topic_in_order(acts: list[tuple[int, int, bool]]) -> None:
    """With any publications meanwhile: no value twice, in order of publication, and the last one of each topic."""
    runtime = Runtime(hub_with_peers())
    for number in range(200):
        runtime.publish(topic_of(number), number, retain=True)
    last: dict[Topic, int] = {}
    peers = ["bob", "cleo", "dan"]
    for count, (act, number, retain) in enumerate(acts):
        if act == 0 and peers:
            runtime.subscribe(peers.pop())
        elif act in (1, 2):
            runtime.iterate()
        else:
            topic = topic_of(number * 25)
            runtime.publish(topic, 1000 + count, retain=retain)
            if retain:
                last[topic] = 1000 + count
    while runtime.iterate():
        pass
    for peer in runtime.received:
        events: dict[Topic, list[object]] = {}
        for topic, value in runtime.events(peer):
            events.setdefault(topic, []).append(value)
        assert len(events) == 200
        for topic, values in events.items():
            assert values == sorted(set(values))  # type: ignore[type-var]
            assert last.get(topic, int(topic[1])) in values


def test_too_deep_topic_is_not_retained() -> None:
    hub = hub_with_peers({"max_topic_depth": 2})
    text = "the topic has 3 segments, more than 2"
    for message in (
        Publish("1", topic("a.b.c"), Value(1), retain=True),
        Publish("1", topic("a.b.c"), NULL, retain=True),
        Publish("1", topic("a.b.c"), Value(1)),
        Subscribe("1", pattern("a.*.c"), "s"),
    ):
        (delivery,) = hub.handle("ann", message, 0.0)
        assert isinstance(delivery, Delivery)
        assert (delivery.message.reason.value, delivery.message.text) == ("bad_arguments", text)  # type: ignore[attr-defined]
    assert hub.handle("ann", CloseTopic("1", topic("a.b.c")), 0.0) == success("ann", "1")
    assert hub.stats()["retained"] == 0
