"""Many retained values for one subscription: in slices, in order, each once."""

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
from tests.support.hub_helpers import join, ok, opened, pattern, topic
from tests.support.line_counting import instructions

MANY = 1000
EVERYTHING = Pattern((ANY_SEGMENT,), True)


class Runtime:
    """Performs what a hub returns, as the event loop does: continuations in the next iteration."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.heard: dict[str, list[Event | Result]] = {}
        self.more: list[Continuation] = []
        self.most = 0
        """The most words that were said in one iteration."""

    def perform(self, deliveries: Deliveries) -> None:
        self.most = max(self.most, len(deliveries))
        for each in deliveries:
            if isinstance(each, Delivery):
                assert isinstance(each.message, Event | Result)
                self.heard.setdefault(each.peer, []).append(each.message)
            elif isinstance(each, Fanout):
                for one in each.subscribers:
                    self.heard.setdefault(one.peer, []).append(each.event)
            else:
                assert isinstance(each, Continuation)
                self.more.append(each)

    def iterate(self) -> bool:
        """Do what was left for the next iteration; say whether there was anything."""
        more, self.more = self.more, []
        for each in more:
            self.perform(each.resume())
        return bool(more)

    def subscribe(self, peer: str, wanted: Pattern = EVERYTHING, name: str = "s") -> None:
        self.perform(self.hub.handle(peer, Subscribe("1", wanted, name), 0.0))

    def publish(self, where: Topic, value: object, *, retain: bool = False, exclude_me: bool = False) -> None:
        self.perform(self.hub.handle("ann", Publish(None, where, Value(value), (), retain, exclude_me), 0.0))

    def events(self, peer: str) -> list[tuple[Topic, object]]:
        return [(word.topic, word.body.value()) for word in self.heard.get(peer, []) if isinstance(word, Event)]


def place(number: int) -> Topic:
    return "t", str(number)


@pytest.fixture
def runtime() -> Runtime:
    runtime = Runtime(opened())
    for number in range(MANY):
        runtime.publish(place(number), number, retain=True)
    return runtime


def test_response_precedes_values_in_slices(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    assert runtime.heard["bob"] == [Result("1", Value({"id": "s"}))]
    iterations = 0
    while runtime.iterate():
        iterations += 1
    assert sorted(runtime.events("bob")) == sorted((place(number), number) for number in range(MANY))
    assert runtime.most <= 65
    assert iterations >= MANY // 64
    assert runtime.hub.stats()["deliveries"] == MANY


def test_few_values_are_delivered_at_once(runtime: Runtime) -> None:
    runtime.subscribe("bob", pattern("t.99*"))
    assert runtime.more == [] or runtime.iterate()
    runtime.subscribe("cleo", pattern("t.7"))
    assert runtime.events("cleo") == [(place(7), 7)]


@pytest.mark.parametrize("wanted", [EVERYTHING, pattern("*.nothing"), pattern("t.*x"), pattern("t.*")])
def test_work_of_a_slice_does_not_grow_with_the_values(wanted: Pattern) -> None:
    most = []
    for many in (2000, 6000):
        runtime = Runtime(opened(max_retained=many, max_topics=2 * many))
        for number in range(many):
            runtime.publish(place(number), number, retain=True)
        runtime.hub._subscriptions._clear_caches()
        steps = [instructions(partial(runtime.subscribe, "bob", wanted))]
        while runtime.more:
            steps.append(instructions(runtime.iterate))
        most.append(max(steps))
    assert most[1] <= 1.2 * most[0]


def test_event_follows_older_value_of_its_topic(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    runtime.publish(place(1), "live")
    runtime.publish(place(2), "new", retain=True)
    runtime.publish(place(3), None, retain=True)
    assert runtime.events("bob") == [
        (place(1), 1), (place(1), "live"), (place(2), 2), (place(2), "new"), (place(3), 3), (place(3), None),
    ]  # fmt: skip
    while runtime.iterate():
        pass
    heard = runtime.events("bob")
    assert len(heard) == MANY + 3
    others = {place(number) for number in range(MANY)} - {place(number) for number in (1, 2, 3)}
    assert {where for where, _ in heard[6:]} == others
    runtime.publish(place(1), "later")
    assert runtime.events("bob")[-1] == (place(1), "later")
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
    heard = len(runtime.events("bob"))
    runtime.perform(ENDS[end](runtime))
    while runtime.iterate():
        pass
    assert len(runtime.events("bob")) == heard < MANY
    assert len(runtime.events("cleo")) == MANY
    assert runtime.hub._publishing._retained_deliveries.active == {}
    assert runtime.hub._publishing._retained_deliveries._queued == {}


def test_closed_topic_loses_its_pending_value(runtime: Runtime) -> None:
    runtime.subscribe("bob")
    for _ in range(4):
        runtime.iterate()
    left = next(iter(runtime.hub._publishing._retained_deliveries._current.values))  # type: ignore[union-attr]
    runtime.perform(runtime.hub.handle("ann", CloseTopic(None, left), 0.0))
    while runtime.iterate():
        pass
    assert left not in [where for where, _ in runtime.events("bob")]
    assert len(runtime.events("bob")) == MANY - 1


def test_owners_take_turns() -> None:
    runtime = Runtime(opened())
    for number in range(100):
        runtime.publish(place(number), number, retain=True)
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
    """Whatever is published meanwhile: no value twice, in the order of publication, and the last one of each topic."""
    runtime = Runtime(opened())
    for number in range(200):
        runtime.publish(place(number), number, retain=True)
    last: dict[Topic, int] = {}
    peers = ["bob", "cleo", "dan"]
    for count, (act, number, retain) in enumerate(acts):
        if act == 0 and peers:
            runtime.subscribe(peers.pop())
        elif act in (1, 2):
            runtime.iterate()
        else:
            where = place(number * 25)
            runtime.publish(where, 1000 + count, retain=retain)
            if retain:
                last[where] = 1000 + count
    while runtime.iterate():
        pass
    for peer in runtime.heard:
        heard: dict[Topic, list[object]] = {}
        for where, value in runtime.events(peer):
            heard.setdefault(where, []).append(value)
        assert len(heard) == 200
        for where, values in heard.items():
            assert values == sorted(set(values))  # type: ignore[type-var]
            assert last.get(where, int(where[1])) in values


def test_too_deep_topic_is_not_retained() -> None:
    hub = opened({"max_topic_depth": 2})
    text = "the topic has 3 segments, more than 2"
    for word in (
        Publish("1", topic("a.b.c"), Value(1), retain=True),
        Publish("1", topic("a.b.c"), NULL, retain=True),
        Publish("1", topic("a.b.c"), Value(1)),
        Subscribe("1", pattern("a.*.c"), "s"),
    ):
        (delivery,) = hub.handle("ann", word, 0.0)
        assert isinstance(delivery, Delivery)
        assert (delivery.message.reason.value, delivery.message.text) == ("bad_arguments", text)  # type: ignore[attr-defined]
    assert hub.handle("ann", CloseTopic("1", topic("a.b.c")), 0.0) == ok("ann", "1")
    assert hub.stats()["retained"] == 0
