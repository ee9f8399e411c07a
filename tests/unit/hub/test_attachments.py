"""Attachments in transit."""

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Fanout, Subscriber
from fiveways.model.messages import Attachment, Call, Event, Hurry, Publish, Result, SetVariable
from fiveways.wire.payload import NULL, Text
from tests.support.hub_helpers import (
    UMQ,
    hub_with_peers,
    join,
    only_message,
    pattern,
    refusal,
    register_method,
    subscribe,
    topic,
)

GONE = "the sender is gone"


def count_in_transit(hub: Hub) -> int:
    return sum(len(session.announced_attachments) for session in hub._sessions.values())


def test_forwarded_call_gets_new_attachment_names() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    forwarded = Call("1", "m", attachments=("a1", "a2"), timeout=30.0)
    assert hub.handle("ann", Call("c", "m", attachments=("x", "y")), 0.0) == [Delivery("bob", forwarded, "1")]
    assert hub.handle("ann", Attachment("y", b"Y"), 0.0) == [Delivery("bob", Attachment("a2", b"Y"), "1")]
    failed = [Delivery("bob", Attachment("a1", error="timed out"), "1")]
    assert hub.handle("ann", Attachment("x", error="timed out"), 0.0) == failed
    assert hub.handle("ann", Attachment("x", b"again"), 0.0) == []
    forwarded = Call("2", "m", attachments=("a3",), timeout=30.0)
    assert hub.handle("eve", Call("c", "m", attachments=("x",)), 0.0) == [Delivery("bob", forwarded, "2")]


def test_result_attachments_may_follow_later() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("c", "m"), 0.0)
    answer = [Delivery("ann", Result("c", NULL, ("a1",)), "1")]
    assert hub.handle("bob", Result("1", NULL, ("r",)), 0.0) == answer
    assert hub.open_calls() == 0
    assert hub.handle("bob", Attachment("r", b"R"), 9.0) == [Delivery("ann", Attachment("a1", b"R"), "1")]


def test_streamed_result_may_have_attachments() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind="server")
    hub.handle("ann", Call("c", "m", stream=True), 0.0)
    expected = Result("c", NULL, ("a1",), stream=True, last=False)
    assert hub.handle("cleo", Result("1", NULL, ("r",), stream=True, last=False), 0.0) == [
        Delivery("ann", expected, "1")
    ]
    assert hub.handle("cleo", Attachment("r", b"R"), 0.0) == [Delivery("ann", Attachment("a1", b"R"), "1")]


def test_result_converted_to_array_keeps_attachments() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", kind="server")
    hub.handle("ann", Call("c", "m"), 0.0)
    assert only_message(hub.handle("bob", Result("1", NULL, ("r",)), 0.0), Result).attachments == ("a1",)


def test_publication_has_one_attachment_name_for_all_subscribers() -> None:
    hub = hub_with_peers()
    for peer in ("bob", "cleo"):
        subscribe(hub, peer, pattern("t"), "s")
    fanout = Fanout(
        Event("", topic("t"), NULL, ("a1",), 256), (Subscriber("bob", "s"), Subscriber("cleo", "s")), "ann", "p256"
    )
    assert hub.handle("ann", Publish(None, topic("t"), NULL, ("x",)), 0.0) == [fanout]
    forwarded = Attachment("a1", b"X")
    assert hub.handle("ann", Attachment("x", b"X"), 0.0) == [
        Delivery("bob", forwarded, "p256"),
        Delivery("cleo", forwarded, "p256"),
    ]


def test_peer_with_two_subscriptions_gets_two_attachment_names() -> None:
    hub = hub_with_peers()
    for peer, name in (("bob", "1"), ("bob", "2"), ("cleo", "3"), ("bob", "4")):
        subscribe(hub, peer, pattern("t"), name)
    *fanouts, answer = hub.handle("ann", Publish("p", topic("t"), NULL, ("x",)), 0.0)
    assert answer == Delivery("ann", Result("p", only_message([answer], Result).body), "p256")
    rounds = []
    for fanout in fanouts:
        assert isinstance(fanout, Fanout)
        rounds.append((fanout.event.attachments, [delivery.subscription for delivery in fanout.subscribers]))
    assert rounds == [(("a1",), ["1", "3"]), (("a2",), ["2"]), (("a3",), ["4"])]
    deliveries = hub.handle("ann", Attachment("x", b"X"), 0.0)
    assert [(delivery.peer, delivery.message) for delivery in deliveries if isinstance(delivery, Delivery)] == [
        ("bob", Attachment("a1", b"X")),
        ("cleo", Attachment("a1", b"X")),
        ("bob", Attachment("a2", b"X")),
        ("bob", Attachment("a3", b"X")),
    ]


def test_attachments_of_publication_without_subscribers_are_dropped() -> None:
    hub = hub_with_peers()
    assert hub.handle("ann", Publish(None, topic("t"), NULL, ("x",)), 0.0) == []
    assert hub.handle("ann", Attachment("x", b"X"), 0.0) == []
    assert count_in_transit(hub) == 0


def test_attachments_of_refused_call_are_dropped() -> None:
    hub = hub_with_peers()
    assert refusal(hub.handle("ann", Call("c", "m", attachments=("x",)), 0.0))[2] is Reason.NO_SUCH_METHOD
    assert hub.handle("ann", Attachment("x", b"X"), 0.0) == []


def test_built_in_methods_refuse_attachments() -> None:
    hub = hub_with_peers()
    for message in (Call("c", "hub.ping", attachments=("x",)), SetVariable("c", "v", NULL, ("y",))):
        assert refusal(hub.handle("ann", message, 0.0))[2] is Reason.BAD_ARGUMENTS
    assert count_in_transit(hub) == 0


def test_receivers_learn_that_attachment_sender_is_gone() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    subscribe(hub, "cleo", pattern("t"), "s")
    hub.handle("ann", Call("c", "m", attachments=("x", "y")), 0.0)
    hub.handle("ann", Publish(None, topic("t"), NULL, ("z",)), 0.0)
    hub.handle("ann", Attachment("x", b"X"), 0.0)
    hub.handle("bob", Result("1"), 0.0)
    assert hub.leave("ann", 0.0) == [
        Delivery("bob", Attachment("a2", error=GONE), "1"),
        Delivery("cleo", Attachment("a3", error=GONE), "p256"),
    ]


def test_attachments_for_departed_receiver_are_dropped() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("c", "m", attachments=("x", "y")), 0.0)
    assert refusal(hub.leave("bob", 0.0))[2] is Reason.LOST
    join(hub, "bob")
    assert hub.handle("ann", Attachment("x", b"X"), 0.0) == []
    assert hub.leave("ann", 0.0) == []


def test_call_to_itself_with_attachments_ends_with_the_session() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("bob", Call("c", "m", attachments=("x",)), 0.0)
    assert hub.leave("bob", 0.0) == []


def test_attachments_in_transit_are_limited() -> None:
    hub = hub_with_peers({"max_expected_attachments": 2})
    register_method(hub, "bob", "m")
    subscribe(hub, "bob", pattern("t"), "s")
    hub.handle("ann", Call("1", "m", attachments=("x", "y")), 0.0)
    text = "more than 2 attachments are in transit"
    refused = refusal(hub.handle("ann", Call("2", "m", attachments=("z",)), 0.0))
    assert refused == ("ann", "2", Reason.TOO_LARGE, text)
    refused = refusal(hub.handle("ann", Publish("3", topic("t"), NULL, ("z",)), 0.0))
    assert refused == ("ann", "3", Reason.TOO_LARGE, text)
    hub.handle("ann", Attachment("x", b"X"), 0.0)
    assert only_message(hub.handle("ann", Call("2", "m", attachments=("z",)), 0.0), Call).attachments == ("a3",)


def hub_with_umq_callers() -> Hub:
    """Return a hub with a callee and callers in UMQ."""
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    for peer in ("slow", "stalled"):
        join(hub, peer, UMQ)
    return hub


def test_senders_that_delay_a_complete_attachment_are_hurried_once() -> None:
    hub = hub_with_umq_callers()
    for peer in ("stalled", "slow", "eve"):
        hub.handle(peer, Call("c", "m", attachments=("x", "y")), 0.0)
    hub.handle("slow", Call("d", "m", attachments=("z",)), 0.0)
    assert hub.handle("eve", Attachment("x", b"X"), 5.0) == [
        Delivery("bob", Attachment("a5", b"X"), "3"),
        *(Delivery(peer, Hurry(name, 5.0)) for peer in ("stalled", "slow") for name in ("x", "y")),
    ]
    assert hub.handle("eve", Attachment("y", b"Y"), 6.0) == [Delivery("bob", Attachment("a6", b"Y"), "3")]


def test_attachment_in_order_hurries_no_sender() -> None:
    hub = hub_with_umq_callers()
    for peer in ("stalled", "eve"):
        hub.handle(peer, Call("c", "m", attachments=("x",)), 0.0)
    hub.handle("stalled", Attachment("x", error="timed out"), 0.0)
    assert hub.handle("eve", Attachment("x", b"X"), 5.0) == [Delivery("bob", Attachment("a2", b"X"), "2")]
    assert not hub._sessions["bob"].expected_attachments


def test_receivers_of_complete_messages_hurry_no_sender() -> None:
    hub = hub_with_peers()
    join(hub, "slow", UMQ)
    register_method(hub, "dan", "m")
    for peer in ("slow", "eve"):
        hub.handle(peer, Call("c", "m", attachments=("x",)), 0.0)
    assert hub.handle("eve", Attachment("x", b"X"), 5.0) == [Delivery("dan", Attachment("a2", b"X"), "2")]


def test_receiver_can_hurry_a_sender_while_it_waits() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    hub.handle("eve", Call("c", "m", attachments=("x",)), 0.0)
    assert hub.handle("dan", Hurry("a1"), 5.0) == [Delivery("eve", Hurry("x", 5.0))]
    hub.handle("eve", Attachment("x", b"X"), 6.0)
    assert hub.handle("dan", Hurry("a1"), 7.0) == []


def test_incomplete_message_counts_until_its_attachments_have_come() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    register_method(hub, "bob", "n")
    hub.handle("eve", Call("c", "n", Text("x" * 1000), attachments=("v",)), 0.0)
    assert hub.stats()["incomplete_bytes"] == 0
    hub.handle("eve", Call("d", "m", Text("x" * 1000), attachments=("x", "y")), 0.0)
    assert hub.stats()["incomplete_bytes"] == 1000
    hub.handle("eve", Attachment("x", b"X" * 500), 0.0)
    assert hub.stats()["incomplete_bytes"] == 1500
    hub.leave("eve", 0.0)
    assert hub.stats()["incomplete_bytes"] == 0


def test_incomplete_publication_counts_once_for_each_holder() -> None:
    hub = hub_with_peers()
    for peer in ("ann", "bob", "cleo"):
        subscribe(hub, peer, pattern("t"), "s")
    hub.handle("eve", Publish(None, topic("t"), Text("x" * 1000), ("x",)), 0.0)
    assert hub.stats()["incomplete_bytes"] == 2000
    hub.handle("eve", Attachment("x", error="timed out"), 30.0)
    assert hub.stats()["incomplete_bytes"] == 0


def test_sender_with_too_many_incomplete_bytes_is_refused_and_others_are_not() -> None:
    hub = hub_with_peers(max_incomplete_bytes=2000)
    register_method(hub, "dan", "m")
    hub.handle("eve", Call("c", "m", Text("x" * 1000), attachments=("x",)), 0.0)
    assert refusal(hub.handle("eve", Call("d", "m", attachments=("y",)), 0.0))[2] is Reason.OVERLOADED
    assert len(hub.handle("eve", Call("e", "m"), 0.0)) == 1
    hub.handle("eve", Attachment("x", b"X"), 0.0)
    assert only_message(hub.handle("eve", Call("d", "m", attachments=("y",)), 0.0), Call).attachments == ("a2",)
