"""Subscribers of a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.hub.delivery import Subscriber
from fiveways.hub.refusal import Refusal
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import HUB_OWNER
from fiveways.hub.subscriptions import Subscriptions
from fiveways.model.topics import ANY_SEGMENT, Pattern
from fiveways.wire.limits import Limits
from tests.support.hub_helpers import pattern, topic

segments = st.sampled_from(["", "a", "b", "ab", "aba", "$s"])
levels = segments.map(lambda text: (text,)) | st.sampled_from(
    [ANY_SEGMENT, ("", ""), ("a", ""), ("", "a"), ("a", "a"), ("", "b", ""), ("a", "b", "a"), ("ab", "")]
)
patterns = st.builds(Pattern, st.lists(levels, max_size=3).map(tuple), st.booleans())
all_topics = st.lists(segments, min_size=1, max_size=4).map(tuple)


def make_subscriptions(limit: int = 10) -> Subscriptions:
    return Subscriptions(Limits(max_subscriptions=limit))


def subscriptions_to(*patterns: str) -> Subscriptions:
    """Return subscriptions to these patterns, each of a peer with the pattern as its name."""
    subscriptions = make_subscriptions()
    for text in patterns:
        subscriptions.add(pattern(text), Subscriber(text, "s"), HUB_OWNER)
    return subscriptions


def matching_peers(subscriptions: Subscriptions, text: str) -> list[str]:
    return [subscriber.peer for subscriber in subscriptions.match(topic(text))]


def test_exact_topics_and_patterns_match() -> None:
    subscriptions = subscriptions_to("a.b", "a.*", "*.b", "a/#", "#", "a/+", "a.b.c", "x*.y")
    assert matching_peers(subscriptions, "a.b") == ["a.b", "a.*", "*.b", "a/+", "a/#", "#"]
    assert matching_peers(subscriptions, "a") == ["a/#", "#"]
    assert matching_peers(subscriptions, "xx.y") == ["x*.y", "#"]
    assert matching_peers(subscriptions, "x.y") == ["#"]
    assert matching_peers(subscriptions, "a.b.c") == ["a.b.c", "a/#", "#"]


def test_leading_wildcard_does_not_match_system_topics() -> None:
    subscriptions = subscriptions_to("#", "*", "+/x", "$sys", "$sys/#")
    assert matching_peers(subscriptions, "$sys") == ["$sys", "$sys/#"]
    assert matching_peers(subscriptions, "$sys.x") == ["$sys/#"]
    assert matching_peers(subscriptions, "sys.x") == ["+/x", "#"]


@given(st.lists(patterns, max_size=8), st.data())
def test_index_finds_all_matching_patterns(requested: list[Pattern], data: st.DataObject) -> None:
    requested = [pattern_ for pattern_ in requested if pattern_.levels or pattern_.matches_deeper]
    subscriptions = make_subscriptions(100)
    for number, pattern_ in enumerate(requested):
        subscriptions.add(pattern_, Subscriber("peer", str(number)), HUB_OWNER)
    removed = data.draw(st.sets(st.sampled_from(range(len(requested))))) if requested else set()
    for number in removed:
        assert subscriptions.remove("peer", str(number))
    for topic_ in data.draw(st.lists(all_topics, max_size=4)):
        for _ in range(2):  # the second time from the cache
            numbers = sorted(int(subscriber.subscription) for subscriber in subscriptions.match(topic_))
            assert numbers == [n for n, other in enumerate(requested) if n not in removed and other.matches(topic_)]
    subscriptions.leave("peer")
    assert len(subscriptions) == 0
    assert (len(subscriptions._patterns), subscriptions._steps.used, subscriptions.size) == (0, 0, 0)
    assert (subscriptions._exact, subscriptions._by_peer) == ({}, {})


def test_subscriber_tuple_is_reused_until_subscribers_change() -> None:
    subscriptions = subscriptions_to("a.b", "a.*")
    first, other = subscriptions.match(topic("a.b")), subscriptions.match(topic("x"))
    subscriptions.add(pattern("x"), Subscriber("new", "s"), HUB_OWNER)
    assert subscriptions.match(topic("a.b")) is first
    assert subscriptions.match(topic("x")) != other
    subscriptions.add(pattern("a.b"), Subscriber("new", "t"), HUB_OWNER)
    second = subscriptions.match(topic("a.b"))
    assert second is not first
    subscriptions.remove("new", "x")
    assert subscriptions.match(topic("a.b")) is second
    subscriptions.add(pattern("z.*"), Subscriber("new", "u"), HUB_OWNER)
    assert subscriptions.match(topic("a.b")) is second
    subscriptions.remove("new", "u")
    assert subscriptions.match(topic("a.b")) is second
    subscriptions.add(pattern("*.b"), Subscriber("new", "v"), HUB_OWNER)
    assert len(subscriptions.match(topic("a.b"))) == len(second) + 1


def test_cache_is_limited_by_topics_and_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveways.hub.subscriptions._MAX_CACHED_TOPICS", 3)
    monkeypatch.setattr("fiveways.hub.subscriptions._MAX_CACHED_SUBSCRIBERS", 5)
    subscriptions = subscriptions_to("x")
    for text in "abcd":
        subscriptions.match(topic(text))
    assert list(subscriptions._cache) == [("d",)]
    subscriptions = subscriptions_to("#", "+", "a")
    for text in "abc":
        subscriptions.match(topic(text))
    assert (list(subscriptions._joined_lists), subscriptions._joined_length) == ([("c",)], 2)
    subscriptions.add(pattern("c"), Subscriber("new", "s"), HUB_OWNER)
    assert list(subscriptions._cache) == []
    subscriptions.match(topic("c"))
    assert (list(subscriptions._joined_lists), subscriptions._joined_length) == ([("c",)], 3)


def test_subscription_names_are_unique_and_limited() -> None:
    subscriptions = subscriptions_to(*"abcdefghij")
    for number in range(10):
        subscriptions.add(pattern("x"), Subscriber("peer", str(number)), HUB_OWNER)
    with pytest.raises(Refusal, match="more than 10 subscriptions"):
        subscriptions.add(pattern("x"), Subscriber("peer", "10"), HUB_OWNER)
    with pytest.raises(Refusal, match="subscription 1 is in use"):
        subscriptions.add(pattern("y"), Subscriber("peer", "1"), HUB_OWNER)
    assert subscriptions.remove("peer", "1")
    assert not subscriptions.remove("peer", "1")
    assert not subscriptions.remove("stranger", "1")
    subscriptions.add(pattern("y"), Subscriber("peer", "1"), HUB_OWNER)


def test_configured_overflow_policy_overrides_subscriber() -> None:
    subscriptions = make_subscriptions()
    subscriptions.configure(HubSettings(topic_policies=(("orders.*", "block"), ("*", "close"))))
    subscriptions.add(pattern("#"), Subscriber("all", "s", when_full="skip"), HUB_OWNER)
    subscriptions.add(pattern("orders.new"), Subscriber("one", "s", envelope=True, when_full="unsubscribe"), HUB_OWNER)
    one, everything = Subscriber("one", "s", True, "block"), Subscriber("all", "s", False, "block")
    assert subscriptions.match(topic("orders.new")) == (one, everything)
    assert subscriptions.match(topic("other")) == (Subscriber("all", "s", False, "close"),)
    subscriptions.configure(HubSettings())
    assert subscriptions.match(topic("other")) == (Subscriber("all", "s"),)
    subscriptions.configure(HubSettings(topic_policies=(("nothing", "close"),)))
    assert subscriptions.match(topic("other")) == (Subscriber("all", "s"),)


def test_closed_topic_ends_exact_subscriptions_only() -> None:
    subscriptions = subscriptions_to("a.b", "a.*")
    subscriptions.add(pattern("a.b"), Subscriber("peer", "t"), HUB_OWNER)
    assert subscriptions.close_topic(topic("a.b")) == [Subscriber("a.b", "s"), Subscriber("peer", "t")]
    assert subscriptions.close_topic(topic("a.b")) == []
    assert matching_peers(subscriptions, "a.b") == ["a.*"]
