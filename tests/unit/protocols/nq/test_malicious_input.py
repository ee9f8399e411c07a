"""Hostile and broken NQ peers."""

import json
import math
from collections.abc import Callable

import pytest

from fiveways.errors import MAX_FILLED_LENGTH, LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.model.topics import UMQ, parse_pattern
from fiveways.protocols.nq import frames
from fiveways.protocols.nq.bridge import error_from_failure, request_key
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Value
from tests.support.conversation_driver import create_conversation, receive, sent_messages, setup

LONG = Json(b'"%b"' % (b"x" * 5000))
NOTARGET = {"type": "local", "fatal": True, "err": "notarget"}


def restored_copy(conversation: NqConversation, *, unaccepted: bool = False, now: float = 0.0) -> NqConversation:
    """Return a conversation restored from an export."""
    return NqConversation.restore(setup(), json.loads(json.dumps(conversation.export(unaccepted=unaccepted))), now)


# Memory and time.


def test_repeated_placeholder_does_not_expand_to_gigabytes() -> None:
    bomb = ErrorObject("app", True, text="{1}" * 30_000 + "!", args=("x" * 90_000,))
    assert len(bomb.format()) == 180_001
    assert len(ErrorObject("app", True, text="{1}" * 300, args=("x" * 3000,)).format()) == MAX_FILLED_LENGTH
    template = ErrorObject("app", True, text="<{1}>", args=("x" * 100_000,))
    assert template.format() == f"<{'x' * 100_000}>"


@pytest.mark.parametrize("key", ["traceparent", "attachments", "q"])
def test_deeply_nested_input_is_refused(key: str) -> None:
    for depth in (100, 127, 128, 129, 500, 900, 1000, 1100, 5000):
        conversation = create_conversation(Limits(max_depth=4000))
        conversation.receive(Packet(b'{"t":"a","r":"1","%b":%b}' % (key.encode(), b"[" * depth + b"]" * depth)), 0.0)
        conversation.receive(Packet(b'{"a":' * depth + b"1" + b"}" * depth), 0.0)
        assert not conversation.closed


def test_request_for_many_missing_parts_is_cheap() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"})
    for number in range(3):
        conversation.send(hub.Result("a#1", Value(number), stream=True, last=False), 0.0)
    sent_messages(conversation)
    receive(conversation, {"i": ["h-1"] * 1000, "o": [2] * 1000 + [10**9]})
    assert [part["n"] for part in sent_messages(conversation)] == [2]


def test_attachments_of_an_answer_to_several_requests_are_refused() -> None:
    conversation = create_conversation()
    conversation.send(hub.Call("x", "a"), 0.0)
    conversation.send(hub.Call("y", "a"), 0.0)
    messages = receive(conversation, {"a": "p", "i": ["h-1", "h-2"], "d": 1, "attachments": [{"$base91": ""}]})
    assert [type(message) for message in messages] == [hub.Failure] * 2


def test_long_names_are_not_cached() -> None:
    frames._is_cached_name.cache_clear()
    conversation = create_conversation()
    for method in ("hub-subscribe", "hub-unsubscribe"):
        assert receive(conversation, {"t": method, "r": "1", "d": {"topic": "a", "id": "z" * 300}}) == []
        assert sent_messages(conversation)[0]["e"]["err"] in ("toolarge", "badargs")
    assert frames._is_cached_name.cache_info().currsize <= 2
    assert conversation._shared.peer_subscriptions.grants == {}


def test_answer_to_many_unknown_requests_is_reported_once() -> None:
    messages = receive(create_conversation(), {"a": "p", "i": [str(number) for number in range(1000)], "d": 1})
    assert [type(message) for message in messages] == [hub.Stray]


def test_stored_answers_are_limited_but_an_end_always_fits() -> None:
    conversation = create_conversation(max_kept_bytes=6000)
    receive(conversation, *({"t": "a", "r": str(number)} for number in range(3)))
    conversation.send(hub.Result("a#0", LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Result("a#1", LONG), 0.0)
    conversation.send(hub.Failure("a#1", Reason.RAISED, "why", LONG, name="oops"), 0.0)
    assert sent_messages(conversation)[1]["e"] == {"type": "app", "fatal": True, "err": "oops"}
    assert conversation._shared.answer_budget.used < 6000 + 1024
    receive(conversation, {"i": ["h-1", "h-2"]})
    assert conversation._shared.answer_budget.used == 0
    conversation.send(hub.Result("a#2", LONG), 0.0)


def test_own_requests_are_limited_and_events_to_half_of_it() -> None:
    conversation = create_conversation(max_kept_bytes=16_000)
    receive(conversation, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}})
    conversation.send(hub.Result("hub-subscribe#1"), 0.0)
    conversation.send(hub.Event("x", ("a",), LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Event("x", ("a",), LONG), 0.0)
    conversation.send(hub.Call("x", "a", LONG), 0.0)
    conversation.send(hub.Call("y", "a", LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Call("z", "a", LONG), 0.0)
    conversation = restored_copy(conversation)
    assert conversation._shared.request_budget.used > 15_000
    receive(conversation, {"a": "p", "i": ["h-2", "h-4", "h-5"], "d": 1})
    assert conversation._shared.request_budget.used == 0


def test_waiting_item_is_queued_once() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "h", "n": 1, "d": 1})
    for number in range(2, 300):
        receive(conversation, {"t": "a", "r": "h", "n": number, "d": 1}, now=0.1)
    sent_messages(conversation)
    assert len(conversation._retransmission) == 1
    requests = create_conversation()
    for number in range(50):
        receive(requests, {"t": "a", "r": str(number)})
        requests.send(hub.Result(f"a#{number}", LONG), 0.0)
        receive(requests, {"i": sent_messages(requests)[0]["a"]})
    assert len(requests._retransmission) == 0


def test_progress_is_limited_in_bytes_but_a_farewell_is_sent() -> None:
    conversation = create_conversation(Limits(max_text=6000))
    receive(conversation, {"t": "a", "r": "1"})
    for _ in range(100):
        conversation.send(hub.Progress("a#1", LONG), 0.0)
    conversation.send(hub.Goodbye("{x}\n" * 5000), 0.0)
    messages = sent_messages(conversation)
    assert len(messages) == 5
    assert messages[-1]["e"]["note"] == "goodbye"
    assert messages[-1]["e"]["args"][0].startswith("{x}\n" * 100)


# No losses and no duplicates.


def test_identifiers_minted_after_export_are_not_reused() -> None:
    conversation = create_conversation()
    saved = conversation.export()
    conversation.send(hub.Call("x", "a"), 0.0)
    assert sent_messages(conversation)[0]["r"] == "h-1"
    conversation = NqConversation.restore(setup(), saved, 1.0)
    conversation.send(hub.Call("y", "a"), 1.0)
    assert sent_messages(conversation)[0]["r"] != "h-1"
    assert receive(conversation, {"a": "p", "i": "h-1", "d": 1}) == []  # late, but not stray
    for _ in range(40):
        conversation = restored_copy(conversation)
    assert len(conversation.export()["prefixes"]) == 17  # type: ignore[arg-type]


def test_unaccepted_request_is_exported_only_on_demand() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"})
    assert receive(restored_copy(conversation, unaccepted=True), {"t": "a", "r": "1"}) == []
    assert [type(message) for message in receive(restored_copy(conversation), {"t": "a", "r": "1"})] == [hub.Call]


def test_unsent_answer_cannot_be_acknowledged() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"})
    conversation.send(hub.Accepted("a#1"), 0.0)
    sent_messages(conversation)
    conversation.send(hub.Result("a#1", Value(5)), 0.0)
    assert receive(conversation, {"i": "h-1"}) == []
    assert sent_messages(conversation) == [{"a": "h-1", "i": "1", "d": 5}]
    assert receive(restored_copy(conversation), {"i": "h-1"}) == [hub.Acknowledged("a#1")]


def test_stream_without_first_part_is_refused_without_the_hub() -> None:
    conversation = create_conversation()
    assert receive(conversation, {"t": "a", "r": "1", "n": 0, "f": 0}) == []
    assert sent_messages(conversation)[0]["e"]["err"] == "badargs"
    receive(conversation, {"t": "a", "r": "2", "d": 1, "n": 100})
    sent_messages(conversation)
    assert receive(conversation, {"t": "a", "r": "2", "n": 0, "f": 0}) == []
    assert sent_messages(conversation)[-1]["e"]["err"] == "malformed"
    assert receive(conversation, {"i": "h-2"}) == []


def test_inconsistent_streamed_request_is_aborted() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1", "d": 1, "n": 1, "f": 1})
    assert receive(conversation, {"t": "a", "r": "1", "d": 1, "n": 2, "f": 7}) == [hub.Cancel("a#1")]
    conversation.send(hub.Failure("a#1", Reason.CANCELLED), 0.0)
    assert sent_messages(conversation)[-1]["e"]["err"] == "malformed"


@pytest.mark.parametrize(
    "bad", [{"e": {"type": "info", "fatal": False}}, {"d": 1, "e": {"type": "info"}}, {"o": [0]}, {"e": 7}]
)
def test_invalid_progress_does_not_end_the_request(bad: dict[str, object]) -> None:
    conversation = create_conversation()
    conversation.send(hub.Call("x", "a"), 0.0)
    sent_messages(conversation)
    assert receive(conversation, {"a": "p", "i": "h-1", **bad}) == []
    assert [list(item) for item in sent_messages(conversation)] == [["e"]]
    assert receive(conversation, {"a": "p", "i": "h-1", "d": 7}) == [hub.Result("x", Json(b"7"))]


@pytest.mark.parametrize(
    "close",
    [
        lambda conversation: receive(conversation, {"e": {"type": "sys", "fatal": True}}),
        lambda conversation: conversation.send(hub.Goodbye(), 0.0),
    ],
    ids=["theirs", "ours"],
)
def test_answers_wait_for_the_next_connection(close: Callable[[NqConversation], object]) -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"}, {"t": "a", "r": "2"}, {"t": "hub-discover", "r": "3"})
    close(conversation)
    sent_messages(conversation)
    conversation.send(hub.Accepted("a#1"), 1.0)
    conversation.send(hub.Progress("a#1", text="soon"), 1.0)
    conversation.send(hub.Result("a#1", Value(1)), 1.0)
    conversation.send(hub.Failure("a#2", Reason.RAISED), 1.0)
    conversation.send(hub.Description("hub-discover#3"), 1.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Call("x", "a"), 1.0)
    assert conversation.take_packets() == []
    conversation.reconnect(2.0)
    assert [item["i"] for item in sent_messages(conversation)] == ["1", "1", "1", "2", "3"]


def test_refused_request_is_not_run_on_retransmission() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "hub-subscribe", "r": "1"})
    first = sent_messages(conversation)
    assert first[0]["e"]["err"] == "badargs"
    assert receive(conversation, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}}) == []
    assert sent_messages(conversation) == first
    receive(conversation, {"t": "hub-subscribe", "p": "1"})
    assert sent_messages(conversation)[1:] == first
    assert len(receive(conversation, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}}, now=61.0)) == 1


# Subscriptions.


def subscribed(number: int, conversation: NqConversation) -> NqConversation:
    receive(conversation, {"t": "hub-subscribe", "r": str(number), "d": {"topic": "a", "id": "x"}})
    conversation.send(hub.Result(f"hub-subscribe#{number}"), 0.0)
    return conversation


def test_event_of_old_subscription_cannot_end_new_one() -> None:
    conversation = subscribed(1, create_conversation())
    conversation.send(hub.Event("x", ("a",)), 0.0)
    receive(conversation, {"t": "hub-unsubscribe", "r": "2", "d": {"id": "x"}})
    conversation.send(hub.Result("hub-unsubscribe#2"), 0.0)
    conversation = restored_copy(subscribed(3, conversation))
    assert receive(conversation, {"a": "q", "i": "h-2", "e": NOTARGET}) == []
    conversation.send(hub.Event("x", ("a",)), 0.0)
    conversation.send(hub.Event("x", ("a",)), 0.0)
    first, second = (item["r"] for item in sent_messages(conversation)[-2:])
    assert receive(conversation, {"a": "q", "i": first, "e": {**NOTARGET, "type": "app"}}) == []
    assert receive(conversation, {"a": "q", "i": second, "e": NOTARGET}) == [hub.Unsubscribe(None, "x")]


def test_own_subscription_does_not_hide_a_method() -> None:
    conversation = create_conversation()
    conversation.send(hub.Subscribe("s", parse_pattern("t", UMQ), "echo"), 0.0)
    assert [type(message) for message in receive(conversation, {"t": "echo", "r": "9"})] == [hub.Call]


def test_requested_subscriptions_are_unique_and_limited() -> None:
    conversation = create_conversation(Limits(max_subscriptions=2))
    requests = [{"t": "hub-subscribe", "r": str(n), "d": {"topic": "a", "id": name}} for n, name in enumerate("xxyz")]
    assert [message.subscription for message in receive(conversation, *requests)] == ["x", "y"]  # type: ignore[attr-defined]
    assert [item["e"]["err"] for item in sent_messages(conversation)] == ["badargs", "busy"]
    conversation.send(hub.Failure("hub-subscribe#0", Reason.DENIED), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Event("y", ("a",)), 0.0)
    assert len(receive(conversation, {"t": "hub-subscribe", "r": "9", "d": {"topic": "a", "id": "x"}})) == 1


def test_subscription_ends_only_with_the_hub_response() -> None:
    conversation = subscribed(1, create_conversation())
    receive(conversation, {"t": "hub-unsubscribe", "r": "2", "d": {"id": "x"}})
    conversation.send(hub.Failure("hub-unsubscribe#2", Reason.DENIED), 0.0)
    sent_messages(conversation)
    conversation.send(hub.Event("x", ("a",)), 0.0)
    assert [item["t"] for item in sent_messages(conversation)] == ["x"]


# Miscellaneous.


def test_retry_after_that_is_nan_is_ignored() -> None:
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=math.nan)).args == ()
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=math.inf)).args == ("604800000",)
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=-1.0)).args == ("0",)


def test_cancelled_request_does_not_delay_expiry_of_others() -> None:
    conversation = create_conversation(request_ttl=10.0)
    conversation.send(hub.Call("x", "a"), 0.0)
    conversation.send(hub.Call("y", "a"), 0.0)
    conversation.send(hub.Cancel("x"), 9.0)
    assert [type(message) for message in conversation.wake(10.0)] == [hub.Failure]


def test_restored_answers_expire_in_order() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"}, {"t": "a", "r": "2"})
    conversation.send(hub.Result("a#2"), 0.0)
    conversation.send(hub.Result("a#1"), 90.0)
    conversation = restored_copy(conversation, now=90.0)
    assert [message.id for message in conversation.wake(24 * 3600.0)] == ["a#2"]  # type: ignore[attr-defined]


def test_id_of_deferred_call_is_in_use() -> None:
    conversation = create_conversation()
    conversation.send(hub.Call("1", "a", attachments=("x",)), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Discover("1"), 0.0)
    conversation.send(hub.Attachment("x"), 0.0)
    assert len(sent_messages(conversation)) == 1


def test_request_keys_are_unique() -> None:
    pairs = [("a", "b#c"), ("a#b", "c"), ("", "a#b#c"), ("a", "b c"), ("a#", "b#c"), ("a", "#b#c"), ("#a", "b")]
    assert len({request_key(*pair) for pair in pairs}) == len(pairs)


def test_peer_id_is_sent_once() -> None:
    conversation = create_conversation(announce=True)
    conversation = NqConversation.restore(setup(announce=True), conversation.export(), 0.0)
    conversation.reconnect(1.0)
    assert len(sent_messages(conversation)) == 1


# Free keys of users.


def test_free_keys_of_users_are_forwarded() -> None:
    conversation = create_conversation()
    (call,) = receive(
        conversation, {"t": "a", "r": "1", "q": [1], "mine": {"x": None}, "": 2, "topic": "t", "redelivered": True}
    )
    assert isinstance(call, hub.Call)
    assert call.redelivered
    assert call.extras == {"q": Json(b"[1]"), "mine": Json(b'{"x": null}'), "": Json(b"2")}
    conversation.send(hub.Result("a#1", Value(1), extras={"q": Value(b"\0"), "t": Value(1), "topic": Value(2)}), 0.0)
    conversation.send(hub.Call("x", "b", redelivered=True, extras={"own": Value([1])}), 0.0)
    assert sent_messages(conversation) == [
        {"a": "h-1", "i": "1", "d": 1, "q": {"$base91": "!!"}},
        {"t": "b", "r": "h-2", "own": [1], "redelivered": True},
    ]
    messages = receive(
        conversation, {"a": "p", "i": "h-2", "d": 1, "n": 1, "z": 1}, {"a": "p", "i": "h-2", "d": 2, "n": 2, "f": 0}
    )
    assert [message.extras for message in messages] == [{"z": Json(b"1")}, None]  # type: ignore[attr-defined]
