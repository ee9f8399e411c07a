"""Memory and match steps of subscriptions and retained values, and their limits."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

from fiveways.hub.delivery import Subscriber
from fiveways.hub.refusal import Refusal
from fiveways.hub.retained import RetainedValue, RetainedValues, retained_memory
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB_OWNER, Owner
from fiveways.hub.sizes import memory_of
from fiveways.hub.subscriptions import Subscriptions
from fiveways.hub.subscriptions import subscription_memory as bytes_of_subscription
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Binary, Json, Payload, Text, Value
from tests.support.hub_helpers import pattern, topic
from tests.support.line_counting import instructions
from tests.unit.hub.test_subscriptions import all_topics, make_subscriptions, patterns

MANY = 2000
PATTERNS: dict[str, Callable[[int], str]] = {
    "exact topics": lambda n: f"sensors.s{n}.heat",
    "one topic": lambda _: "sensors.heat",
    "deep topics": lambda n: ".".join(f"s{n}x{level}" for level in range(16)),
    "wildcards": lambda n: f"s{n}.*.heat",
    "one pattern": lambda _: "sensors.*",
    "deep wildcards": lambda n: ".".join(f"s{n}x{level}" for level in range(15)) + ".*",
    "partial wildcards": lambda n: ".".join(f"s{n}x{level}*" for level in range(16)),
    "long texts": lambda n: f"s{n}" + "x" * 240 + ".*",
    "texts outside of Latin-1": lambda n: f"\u20ac{n}" + "x" * 60 + ".*",
}


def subscriptions_to(texts: list[str]) -> Subscriptions:
    subscriptions = make_subscriptions(len(texts) + 10)
    for number, text in enumerate(texts):
        subscriptions.add(pattern(text), Subscriber("peer", f"subscription {number}"), HUB_OWNER)
    return subscriptions


@pytest.mark.parametrize("kind", PATTERNS)
def test_subscription_memory_estimate_covers_allocations(kind: str) -> None:
    texts = [PATTERNS[kind](number) for number in range(MANY)]
    gc.collect()
    tracemalloc.start()
    try:
        previous, _ = tracemalloc.get_traced_memory()
        subscriptions = subscriptions_to(texts)
        subscriptions.match(topic("sensors.heat"))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - previous
    finally:
        tracemalloc.stop()
    assert taken <= subscriptions.size <= 3 * taken


MATCHED: dict[str, Callable[[int], str]] = {
    "partial wildcards with other beginnings": lambda n: f"sens{n:05}*",
    "partial wildcards with other ends": lambda n: f"*{n:05}",
    "partial wildcards with both": lambda n: f"s{n:05}*{n:05}",
    "wildcards behind other beginnings": lambda n: f"s{n}.*",
    "deep wildcards that differ at the end": lambda n: f"*.a.*.a.*.a.*.a.*.a.*.a.*.a.*.s{n}",
}


@pytest.mark.parametrize("kind", MATCHED)
@pytest.mark.parametrize("published", ["sensors", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a"])
def test_other_patterns_cost_a_publication_nothing(kind: str, published: str) -> None:
    few, number_of_patterns = (
        subscriptions_to([MATCHED[kind](number) for number in range(count)]) for count in (10, MANY)
    )
    assert few.match(topic(published)) == number_of_patterns.match(topic(published)) == ()
    few._clear_caches()
    number_of_patterns._clear_caches()
    steps = instructions(lambda: few.match(topic(published)))
    assert instructions(lambda: number_of_patterns.match(topic(published))) == steps


def test_number_of_pattern_shapes_is_limited() -> None:
    mallory = Owner("identity mallory", is_anonymous=False)
    subscriptions = make_subscriptions(1 << 13)
    refused = 0
    for number in range(1 << 12):
        text = ".".join("*" if number >> level & 1 else "a" for level in range(12)) + ".z.*"
        try:
            subscriptions.add(pattern(text), Subscriber("mallory", str(number)), mallory)
        except Refusal as refusal:
            assert "the share of 512 for identity mallory is used up" in refusal.text  # noqa: PT017
            refused += 1
    assert refused == (1 << 12) - 512
    victim = ".".join("a" * 13) + ".b"
    steps = instructions(lambda: subscriptions.match(topic(victim)))
    one = subscriptions_to([".".join("*" * 14)])
    assert steps < 600 * instructions(lambda: one.match(topic(victim)))
    subscriptions.leave("mallory")
    assert (subscriptions._steps.used, subscriptions._steps.used_by(mallory)) == (0, 0)


def test_shape_is_charged_to_an_owner_that_uses_it() -> None:
    ann, bob = (Owner(name, is_anonymous=False) for name in ("ann", "bob"))
    subscriptions = make_subscriptions()
    subscriptions.add(pattern("a*b.c"), Subscriber("ann", "1"), ann)
    subscriptions.add(pattern("x*y.z"), Subscriber("bob", "1"), bob)
    subscriptions.add(pattern("x*y.w"), Subscriber("bob", "2"), bob)
    held = subscriptions._steps.used_by
    assert (held(ann), held(bob)) == (2, 0)
    subscriptions.leave("ann")
    assert (held(ann), held(bob)) == (0, 2)
    subscriptions.remove("bob", "1")
    assert held(bob) == 2
    subscriptions.remove("bob", "2")
    assert (held(bob), subscriptions._steps.used) == (0, 0)


def test_subscriptions_are_limited_in_bytes() -> None:
    ann, bob = (Owner(name, is_anonymous=False) for name in ("ann", "bob"))
    subscriptions = make_subscriptions(100)
    subscriptions.configure(HubSettings(max_subscription_bytes=10_000, share=0.5))
    max_count = 5000 // bytes_of_subscription(pattern("t"), "0")
    for number in range(max_count):
        subscriptions.add(pattern("t"), Subscriber("ann", str(number)), ann)
    with pytest.raises(Refusal, match="no room for a subscription: the share of 5000"):
        subscriptions.add(pattern("t"), Subscriber("ann", "more"), ann)
    for number in range(max_count):
        subscriptions.add(pattern("t"), Subscriber("bob", str(number)), bob)
    subscriptions.leave("ann")
    subscriptions.leave("bob")
    assert subscriptions.size == 0


def test_too_deep_pattern_is_refused() -> None:
    subscriptions = Subscriptions(Limits(max_topic_depth=3))
    subscriptions.add(pattern("a/b/c/#"), Subscriber("peer", "1"), HUB_OWNER)
    with pytest.raises(Refusal, match="the topic has 4 segments, more than 3"):
        subscriptions.add(pattern("a.b.c.*"), Subscriber("peer", "2"), HUB_OWNER)
    with pytest.raises(Refusal, match="the topic has 4 segments, more than 3"):
        subscriptions.match(topic("a.b.c.d"))


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            patterns.filter(lambda drawn: bool(drawn.levels or drawn.matches_deeper)),
        )
    ),
    st.data(),
)
def test_changed_pattern_keeps_lists_of_other_topics(changes: list[tuple[bool, Pattern]], data: st.DataObject) -> None:
    subscriptions = make_subscriptions(100)
    current: dict[int, Pattern] = {}
    watched: list[Topic] = data.draw(st.lists(all_topics, max_size=6, unique=True))
    for number, (ends, added) in enumerate(changes):
        previous = {watched_topic: subscriptions.match(watched_topic) for watched_topic in watched}
        changed = added
        if ends and current:
            old = data.draw(st.sampled_from(sorted(current)))
            changed = current.pop(old)
            subscriptions.remove("peer", str(old))
        else:
            current[number] = added
            subscriptions.add(added, Subscriber("peer", str(number)), HUB_OWNER)
        for watched_topic in watched:
            result = subscriptions.match(watched_topic)
            assert sorted(int(one.subscription) for one in result) == [
                n for n in current if current[n].matches(watched_topic)
            ]
            assert changed.matches(watched_topic) or result is previous[watched_topic]


def test_topics_with_same_subscribers_share_their_list() -> None:
    subscriptions = subscriptions_to(["a.*"])
    assert subscriptions.match(topic("a.b")) is subscriptions.match(topic("a.c"))
    assert subscriptions._joined_length == 0


def test_changed_pattern_keeps_cached_topics_with_other_first_segment() -> None:
    subscriptions = subscriptions_to(["a.*", "*.b", "c.d"])
    subscriptions.match(topic("a.b"))
    subscriptions.match(topic("c.d"))
    subscriptions.add(pattern("a.x*"), Subscriber("new", "s"), HUB_OWNER)
    assert list(subscriptions._cache) == [topic("c.d")]
    assert subscriptions._by_first == {"c": {topic("c.d")}}


def test_cost_of_changed_pattern_does_not_grow_with_subscribers() -> None:
    steps = []
    for count in (10, 1000):
        subscriptions = make_subscriptions(2 * count)
        for number in range(count):
            subscriptions.add(pattern("a.b"), Subscriber("peer", f"b{number}"), HUB_OWNER)
            subscriptions.add(pattern("a.*"), Subscriber("peer", f"w{number}"), HUB_OWNER)
        first = subscriptions.match(topic("a.b"))

        def change(current: Subscriptions = subscriptions) -> None:
            current.add(pattern("*.c"), Subscriber("mallory", "s"), HUB_OWNER)
            current.match(topic("a.b"))
            current.remove("mallory", "s")

        steps.append(instructions(change))
        assert subscriptions.match(topic("a.b")) is first
    assert steps[0] == steps[1]


RETAINED: dict[str, Callable[[int], str]] = {
    "wide": lambda n: f"sensors.s{n}",
    "usual": lambda n: f"hall{n % 10}.line{n % 100}.sensor{n}.heat",
    "deep": lambda n: ".".join(f"s{n}x{level}" for level in range(16)),
    "long": lambda n: f"s{n}" + "x" * 240,
}


@pytest.mark.parametrize("kind", RETAINED)
@pytest.mark.parametrize("body", [Json(b"21.5"), Text("x" * 100), Value([[]] * 50), Binary(b"x" * 1000)])
def test_retained_memory_estimate_covers_allocations(kind: str, body: Payload) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        previous, _ = tracemalloc.get_traced_memory()
        values = RetainedValues()
        for number in range(MANY):
            topic_ = tuple(RETAINED[kind](number).split("."))  # not from the cache of `topic`
            own = decode(encode(body.value())) if isinstance(body, Value) else None
            retained = body if own is None else Value(own)
            values.store(RetainedValue(topic_, retained, number, retained_memory(topic_, retained)))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - previous
    finally:
        tracemalloc.stop()
    shared = 0 if isinstance(body, Value) else MANY * memory_of(body)
    assert taken + shared <= values.size <= 4 * (taken + shared)
