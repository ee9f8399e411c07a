"""The hub as a whole: rate limit, draining, reload, unknown peers."""

from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Caller
from fiveways.hub.settings import HubSettings
from fiveways.hub.traits import Credentials
from fiveways.model.messages import (
    Accepted,
    Acknowledged,
    Call,
    Cancel,
    Event,
    Failure,
    Goodbye,
    Hello,
    HubMessage,
    Part,
    Progress,
    Publish,
    Register,
    Result,
    SetVariable,
    Subscribe,
    TopicClosed,
    Unsubscribe,
)
from fiveways.wire.payload import Value
from tests.support.hub_helpers import (
    LRPM,
    NQ,
    UMQ,
    hub_with_peers,
    join,
    make_hub,
    only_message,
    pattern,
    refusal,
    register_method,
    subscribe,
    success,
    topic,
)

PONG = Value("pong")


# Rate limit.


def test_requests_above_rate_limit_are_refused() -> None:
    hub = make_hub(rate=2.0)
    join(hub, "x")
    assert [hub.handle("x", Call("c", "hub.ping"), 0.0) for _ in range(2)] == [success("x", "c", PONG)] * 2
    expected = Failure("c", Reason.OVERLOADED, "more than 2 requests per second", retry_after=0.5)
    assert hub.handle("x", Call("c", "hub.ping"), 0.0) == [Delivery("x", expected)]
    (delivery,) = hub.handle("x", Call("c", "hub.ping"), 0.25)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Failure)
    assert delivery.message.retry_after == 0.25
    assert hub.handle("x", Call("c", "hub.ping"), 0.5) == success("x", "c", PONG)
    assert refusal(hub.handle("x", Register("c", "m"), 0.5))[2] is Reason.OVERLOADED


def test_unused_allowance_is_kept_for_one_second() -> None:
    hub = make_hub(rate=2.0)
    join(hub, "x")
    results = [hub.handle("x", Call("c", "hub.ping"), 100.0) for _ in range(3)]
    assert results[:2] == [success("x", "c", PONG)] * 2
    assert refusal(results[2])[2] is Reason.OVERLOADED


def test_publication_above_rate_limit_without_id_is_dropped() -> None:
    hub = make_hub(rate=1.0)
    join(hub, "x")
    join(hub, "y")
    subscribe(hub, "y", pattern("t"))
    assert len(hub.handle("x", Publish(None, topic("t")), 0.0)) == 1
    assert hub.handle("x", Publish(None, topic("t")), 0.0) == []
    assert hub.stats()["dropped"] == 1
    assert refusal(hub.handle("x", Publish("p", topic("t")), 0.0))[2] is Reason.OVERLOADED


def test_rate_limit_of_one_session_does_not_affect_others() -> None:
    hub = make_hub(rate=1.0)
    join(hub, "x")
    join(hub, "y")
    for _ in range(10):
        hub.handle("x", Call("c", "hub.ping"), 0.0)
    assert hub.handle("y", Call("c", "hub.ping"), 0.0) == success("y", "c", PONG)


def test_responses_are_not_rate_limited() -> None:
    hub = make_hub(rate=1.0)
    join(hub, "x")
    join(hub, "y")
    register_method(hub, "y", "m")
    subscribe(hub, "x", pattern("t"))
    hub.handle("x", Call("1", "m"), 5.0)
    hub.handle("x", Call("2", "m"), 10.0)
    assert only_message(hub.handle("y", Result("1"), 10.0), Result).id == "1"
    assert only_message(hub.handle("y", Result("2"), 10.0), Result).id == "2"
    assert hub.handle("x", Unsubscribe("u", "s"), 10.0) == success("x", "u")


def test_trusted_session_is_not_rate_limited() -> None:
    hub = make_hub(rate=1.0)
    hub.arrive("app", LRPM, Credentials(is_trusted=True), 0.0)
    hub.handle("app", Hello(), 0.0)
    for name in ("a.one", "a.two", "a.three"):
        register_method(hub, "app", name)


def test_rate_below_one_allows_one_request() -> None:
    hub = make_hub(rate=0.1)
    join(hub, "x")
    assert hub.handle("x", Call("c", "hub.ping"), 0.0) == success("x", "c", PONG)
    assert refusal(hub.handle("x", Call("c", "hub.ping"), 9.0))[2] is Reason.OVERLOADED
    assert hub.handle("x", Call("c", "hub.ping"), 10.0) == success("x", "c", PONG)


# Draining.


def test_draining_hub_refuses_new_calls_and_finishes_pending_ones() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("1", "m"), 0.0)
    assert hub.drain(0.0) == []
    refused = refusal(hub.handle("ann", Call("2", "m"), 0.0))
    assert refused == ("ann", "2", Reason.UNAVAILABLE, "the hub is closing")
    assert refusal(hub.handle("ann", Call("2", "x", callback=True), 0.0))[2] is Reason.UNAVAILABLE
    assert hub.open_calls() == 1
    assert only_message(hub.handle("bob", Result("1"), 0.0), Result).id == "1"
    assert hub.open_calls() == 0
    assert hub.handle("ann", Publish("p", topic("t")), 0.0) == success("ann", "p", Value(256), "p256")


def test_stopping_hub_ends_all_calls() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("1", "m"), 0.0)
    hub.handle("cleo", Call("2", "m", more=True, timeout=5.0), 0.0)
    hub.handle("ann", Call("q", "hub.push", Value(["q", 1])), 0.0)
    hub.handle("eve", Call("q", "hub.pull", Value(["q", "w"])), 0.0)
    hub.drain(0.0)
    text = "the hub is closing"
    assert hub.end_calls(0.0) == [
        Delivery("bob", Cancel("1"), "1"),
        Delivery("ann", Failure("1", Reason.LOST, text), "1"),
        Delivery("eve", Cancel("3"), "3"),
        Delivery("cleo", Failure("2", Reason.UNAVAILABLE, text), "2"),
    ]
    assert (hub.open_calls(), hub.stats()["queues"], hub.deadline()) == (0, {"q": 1}, None)


# Reload of the settings.


def test_new_timeouts_apply_to_new_calls() -> None:
    hub = hub_with_peers(call_timeout=30.0)
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("old", "m"), 0.0)
    hub.reload(HubSettings(call_timeout=5.0, max_timeout=8.0))
    assert only_message(hub.handle("ann", Call("new", "m"), 1.0), Call).timeout == 5.0
    assert only_message(hub.handle("ann", Call("long", "m", timeout=20.0), 1.0), Call).timeout == 8.0
    assert hub.deadline() == 6.0
    ended = []
    while (deadline := hub.deadline()) is not None:
        messages = [delivery.message for delivery in hub.expire(deadline) if isinstance(delivery, Delivery)]
        ended += [(deadline, message.id) for message in messages if isinstance(message, Failure)]
    assert ended == [(6.0, "new"), (9.0, "long"), (30.0, "old")]


def test_call_timeout_is_capped_by_max_timeout() -> None:
    hub = hub_with_peers(call_timeout=30.0, max_timeout=10.0)
    register_method(hub, "bob", "m")
    assert only_message(hub.handle("ann", Call("c", "m"), 0.0), Call).timeout == 10.0


def test_new_limits_apply_immediately() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.reload(HubSettings(max_offers=1, max_queues=0, rate=1.0))
    assert refusal(hub.handle("bob", Register("1", "n"), 0.0)) == (
        "bob",
        "1",
        Reason.OVERLOADED,
        "more than 1 registrations",
    )
    text = "too many queues: the limit of 0 for the whole hub is reached"
    assert refusal(hub.handle("eve", Call("1", "hub.push", Value(["q", 1])), 0.0))[3] == text
    assert refusal(hub.handle("eve", Call("1", "hub.ping"), 0.0))[3] == "more than 1 requests per second"


# Unknown peers and other messages.


def test_messages_of_unknown_peer_are_ignored() -> None:
    hub = make_hub()
    assert hub.handle("nobody", Call("c", "hub.ping"), 0.0) == []
    assert hub.leave("nobody", 0.0) == []
    assert hub.unsubscribe_slow_consumer("nobody", "s") == []


def test_peer_cannot_arrive_twice() -> None:
    hub = hub_with_peers()
    with pytest.raises(AssertionError, match="session ann exists already"):
        hub.arrive("ann", LRPM, Credentials(), 0.0)


def test_peer_may_return_after_it_left() -> None:
    hub = hub_with_peers()
    hub.leave("ann", 0.0)
    join(hub, "ann")


@pytest.mark.parametrize(
    "message",
    [
        Call("c", "hub.ping"),
        Publish("c", topic("t")),
        Result("1"),
        Cancel("c"),
        Part("c"),
        Progress("1"),
        Unsubscribe("c", "s"),
    ],
)
def test_messages_before_hello_are_ignored(message: HubMessage) -> None:
    hub = make_hub()
    hub.arrive("x", LRPM, Credentials(), 0.0)
    assert hub.handle("x", message, 0.0) == []


def test_goodbye_needs_no_response() -> None:
    hub = make_hub()
    hub.arrive("x", LRPM, Credentials(), 0.0)
    assert hub.handle("x", Goodbye(), 0.0) == []
    hub.handle("x", Hello(), 0.0)
    assert hub.handle("x", Goodbye("bye"), 0.0) == []


@pytest.mark.parametrize(
    "message",
    [Hello(), Accepted("1"), Acknowledged("1"), Event("s", ("t",)), TopicClosed("s"), Cancel("c"), Progress("c")],
)
def test_meaningless_messages_are_ignored(message: HubMessage) -> None:
    assert hub_with_peers().handle("ann", message, 0.0) == []


def test_register_and_subscribe_are_not_pending_calls() -> None:
    hub = make_hub()
    join(hub, "x", UMQ)
    join(hub, "y", NQ)
    hub.handle("x", Register("1", "m"), 0.0)
    hub.handle("x", Subscribe("2", pattern("t"), "s"), 0.0)
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_local_method_knows_its_caller() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", SetVariable(None, "colour", Value("red")), 0.0)
    hub.handle("ann", Call("c", "m"), 0.0)
    assert hub.caller_info("1") == Caller("ann", "lrpm-json", "", {"colour": Value("red")})
    assert hub.caller_info("2") is None
    hub.handle("bob", Result("1"), 0.0)
    assert hub.caller_info("1") is None


def test_stats_report_counters_and_table_sizes() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    subscribe(hub, "bob", pattern("t"))
    for _ in range(2):
        hub.handle("ann", Call("c", "m"), 0.0)
    hub.handle("bob", Result("1"), 0.0)
    hub.handle("ann", Publish(None, topic("t")), 0.0)
    hub.handle("ann", Call("t", "hub.callback", Value("x")), 0.0)
    hub.handle("ann", Call("t", "hub.push", Value(["q", 1])), 0.0)
    expected: dict[str, Any] = {
        "closing": False,
        "sessions": 5,
        "connected_sessions": 5,
        "resumable_sessions": 0,
        "arrived": 5,
        "offers": 1,
        "subscriptions": 1,
        "retained": 0,
        "callbacks": 1,
        "queues": {"q": 1},
        "open_calls": 0,
        "owed": 0,
        "incomplete_bytes": 0,
        "calls": 1,
        "results": 1,
        "failures": {"bad_arguments": 1},
        "refused": 1,
        "refused_logins": 0,
        "refused_sessions": 0,
        "publications": 1,
        "deliveries": 1,
        "dropped": 0,
        "stray": 0,
        "undelivered": 0,
    }
    assert hub.stats() == expected
    hub.drain(0.0)
    assert hub.stats()["closing"]
