"""Publications and retained values."""

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Fanout, Subscriber
from fiveways.hub.retained import retained_memory
from fiveways.hub.settings import HubSettings
from fiveways.model.messages import CloseTopic, Event, Publish, Result, Subscribe, TopicClosed, Unsubscribe
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value
from tests.support.hub_helpers import hub_with_peers, join, pattern, refusal, register_method, subscribe, success, topic

BODY = Json(b"21.5")
HEAT = topic("sensors.1.heat")


def published(
    hub: Hub,
    topic_text: str = "sensors.1.heat",
    body: Payload = BODY,
    *,
    retain: bool = False,
    exclude_me: bool = False,
) -> Deliveries:
    return hub.handle("ann", Publish(None, topic(topic_text), body, (), retain, exclude_me), 0.0)


def test_publication_goes_to_all_subscribers() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("sensors.1.heat"), "b", envelope=True, when_full="close")
    subscribe(hub, "cleo", pattern("sensors.*.heat"), "c")
    subscribe(hub, "dan", pattern("sensors.2.heat"), "d")
    subscribers = (Subscriber("bob", "b", True, "close"), Subscriber("cleo", "c", False, "skip"))
    fanout = Fanout(Event("", HEAT, BODY, (), 256), subscribers, "ann", "p256")
    answer = Delivery("ann", Result("1", Value(256)), "p256")
    assert hub.handle("ann", Publish("1", HEAT, BODY), 0.0) == [fanout, answer]
    fanout = Fanout(Event("", HEAT, NULL, (), 257), subscribers, "ann", "p257")
    assert hub.handle("ann", Publish(None, HEAT), 0.0) == [fanout]
    assert (hub.stats()["publications"], hub.stats()["deliveries"]) == (2, 4)


def test_publication_without_subscribers_has_a_number() -> None:
    hub = hub_with_peers()
    assert hub.handle("ann", Publish("1", HEAT), 0.0) == success("ann", "1", Value(256), "p256")
    assert published(hub) == []
    assert hub.handle("ann", Publish("2", HEAT), 0.0) == success("ann", "2", Value(258), "p258")


def test_publisher_may_exclude_itself() -> None:
    hub = hub_with_peers()
    subscribe(hub, "ann", pattern("t"), "1")
    subscribe(hub, "ann", pattern("*"), "2")
    assert published(hub, "t", exclude_me=True) == []
    subscribe(hub, "bob", pattern("t"), "3")
    (fanout,) = published(hub, "t", exclude_me=True)
    assert isinstance(fanout, Fanout)
    assert fanout.subscribers == (Subscriber("bob", "3"),)
    (fanout,) = published(hub, "t")
    assert isinstance(fanout, Fanout)
    assert [subscriber.subscription for subscriber in fanout.subscribers] == ["1", "3", "2"]


# Subscriptions.


def test_subscription_name_is_unique_within_session() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("t"), "s")
    refused = refusal(hub.handle("bob", Subscribe("1", pattern("u"), "s"), 0.0))
    assert refused == ("bob", "1", Reason.BAD_ARGUMENTS, "subscription s is in use")
    subscribe(hub, "eve", pattern("t"), "s")


def test_subscriptions_of_a_session_are_limited() -> None:
    hub = hub_with_peers({"max_subscriptions": 2})
    subscribe(hub, "bob", pattern("t"), "1")
    subscribe(hub, "bob", pattern("t"), "2")
    refused = refusal(hub.handle("bob", Subscribe("1", pattern("t"), "3"), 0.0))
    assert refused == ("bob", "1", Reason.OVERLOADED, "more than 2 subscriptions")


def test_subscriber_may_not_choose_policy_block() -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("bob", Subscribe("1", pattern("t"), "s", when_full="block"), 0.0))
    assert refused[2] is Reason.DENIED


def test_unsubscribed_peer_gets_no_events() -> None:
    hub = hub_with_peers()
    for name in ("1", "2", "3"):
        subscribe(hub, "bob", pattern("t"), name)
    assert hub.handle("bob", Unsubscribe("u", "1"), 0.0) == success("bob", "u")
    assert hub.handle("bob", Unsubscribe(None, "2"), 0.0) == []
    assert hub.handle("bob", Unsubscribe(None, "2"), 0.0) == []
    refused = refusal(hub.handle("bob", Unsubscribe("u", "2"), 0.0))
    assert refused == ("bob", "u", Reason.BAD_ARGUMENTS, "there is no subscription 2")
    (fanout,) = published(hub, "t")
    assert isinstance(fanout, Fanout)
    assert fanout.subscribers == (Subscriber("bob", "3"),)


def test_slow_consumer_is_unsubscribed() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("t"), "s")
    assert hub.unsubscribe_slow_consumer("bob", "s") == [Delivery("bob", TopicClosed("s"))]
    assert hub.unsubscribe_slow_consumer("bob", "s") == []
    assert published(hub, "t") == []


def test_departed_peer_gets_no_events() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("t"), "1")
    subscribe(hub, "bob", pattern("*"), "2")
    assert len(published(hub, "t")) == 1
    assert hub.leave("bob", 0.0) == []
    assert published(hub, "t") == []


def test_closed_topic_ends_its_subscriptions() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("t"), "1")
    subscribe(hub, "ann", pattern("t"), "2")
    subscribe(hub, "cleo", pattern("*"), "3")
    published(hub, "t", retain=True)
    closed = [Delivery("bob", TopicClosed("1")), Delivery("ann", TopicClosed("2"))]
    assert hub.handle("ann", CloseTopic("c", topic("t")), 0.0) == [*closed, *success("ann", "c")]
    assert hub.handle("ann", CloseTopic(None, topic("t")), 0.0) == []
    subscribe(hub, "bob", pattern("t"), "1")


# Retained values.


def test_retained_value_goes_to_later_subscribers() -> None:
    hub = hub_with_peers()
    published(hub, retain=True)
    published(hub, body=Value(2), retain=True)
    published(hub, body=Value(3))
    event = Event("s", HEAT, Value(2), (), 257, 0, True)
    result = [*success("bob", "1", Value({"id": "s"})), Delivery("bob", event, "p257")]
    assert hub.handle("bob", Subscribe("1", pattern("sensors.*.heat"), "s", envelope=True), 0.0) == result
    subscribe(hub, "cleo", pattern("sensors.*.cold"), "s")
    assert hub.stats()["retained"] == 1


@pytest.mark.parametrize("nothing", [NULL, Json(b"null"), Text("null"), Cbor(b"\xf6"), Cbor(b"\xf7"), Binary(b"")])
def test_null_deletes_retained_value(nothing: Payload) -> None:
    hub = hub_with_peers()
    published(hub, retain=True)
    subscribe(hub, "cleo", pattern("other"), "c")
    published(hub, "other", body=nothing, retain=True)
    (fanout,) = published(hub, "other", body=nothing, retain=True)
    assert isinstance(fanout, Fanout)
    assert hub.stats()["retained"] == 1
    published(hub, body=nothing, retain=True)
    assert hub.stats()["retained"] == 0
    subscribe(hub, "bob", pattern("#"), "s")


@pytest.mark.parametrize("something", [Value(0), Value(""), Json(b"[]"), Text(""), Cbor(b"\x00"), Binary(b"\0")])
def test_values_other_than_null_are_retained(something: Payload) -> None:
    hub = hub_with_peers()
    published(hub, body=something, retain=True)
    assert hub.stats()["retained"] == 1


def test_retained_values_are_limited() -> None:
    one = retained_memory(topic("a"), BODY)
    hub = hub_with_peers(max_retained=2, max_retained_bytes=2 * one + 50, share=1.0)
    published(hub, "a", retain=True)
    published(hub, "b", retain=True)
    refused = refusal(hub.handle("ann", Publish("1", topic("c"), BODY, retain=True), 0.0))
    text = "too many values are retained: the limit of 2 for the whole hub is reached"
    assert refused == ("ann", "1", Reason.OVERLOADED, text)
    longer = Json(b'"%s"' % (b"x" * 50))
    assert hub.handle("ann", Publish("1", topic("b"), longer, retain=True), 0.0) == success(
        "ann", "1", Value(258), "p258"
    )
    longest = Json(b'"%s"' % (b"x" * 60))
    assert refusal(hub.handle("ann", Publish("1", topic("b"), longest, retain=True), 0.0))[2] is Reason.OVERLOADED
    assert hub.retained_value(topic("b")) == (longer, 258)
    published(hub, "a", NULL, retain=True)
    assert hub.handle("ann", Publish("1", topic("b"), longest, retain=True), 0.0) == success(
        "ann", "1", Value(260), "p260"
    )
    assert published(hub, "c", longest, retain=True) == []
    assert (hub.stats()["retained"], hub.stats()["dropped"]) == (1, 1)


def test_unretainable_value_is_refused() -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("ann", Publish("1", HEAT, BODY, ("a",), retain=True), 0.0))
    assert refused == ("ann", "1", Reason.BAD_ARGUMENTS, "a value with attachments cannot be retained")
    refused = refusal(hub.handle("ann", Publish("1", HEAT, Value("\ud800"), retain=True), 0.0))
    assert refused[2] is Reason.BAD_ARGUMENTS


def test_retained_value_outlives_its_publisher() -> None:
    hub = hub_with_peers()
    published(hub, retain=True)
    hub.leave("ann", 0.0)
    assert len(hub.handle("bob", Subscribe("1", pattern("#"), "s"), 0.0)) == 2


def test_new_settings_hold_at_once() -> None:
    hub = hub_with_peers()
    subscribe(hub, "bob", pattern("t"), "s")
    published(hub, "t")
    hub.reload(HubSettings(topic_policies=(("t", "block"),), max_retained=0))
    (fanout,) = published(hub, "t")
    assert isinstance(fanout, Fanout)
    assert fanout.subscribers == (Subscriber("bob", "s", False, "block"),)
    assert published(hub, "u", retain=True) == []
    assert hub.stats()["retained"] == 0


def test_methods_and_topics_are_separate_namespaces() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "t")
    assert published(hub, "t") == []
    join(hub, "new")
