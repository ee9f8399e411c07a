"""NQ conversations across connections and processes, and their limits."""

import json
from random import Random

import pytest

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import MAX_SYSTEM_ERRORS, NqConversation
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Value
from tests.support.conversation_driver import create_conversation, receive, sent_messages, setup


def busy() -> NqConversation:
    """Return a conversation with open requests, answers and streams."""
    conversation = create_conversation()
    receive(conversation, *({"t": "a", "r": str(number)} for number in range(1, 6)))
    conversation.send(hub.Accepted("a#2"), 0.0)
    conversation.send(hub.Result("a#3", Json(b"3")), 0.0)
    conversation.send(hub.Result("a#4", Json(b"4"), stream=True, last=False), 0.0)
    conversation.send(hub.Result("a#5", Json(b"5")), 0.0)
    sent_messages(conversation)
    receive(conversation, {"i": "h-5"}, {"t": "sum", "r": "6", "d": 1, "n": 1})
    conversation.send(hub.Call("x", "one"), 0.0)
    conversation.send(hub.Call("y", "two", Json(b"1"), more=True), 0.0)
    conversation.send(hub.Call("z", "three"), 0.0)
    conversation.send(hub.Call("c", "four"), 0.0)
    receive(conversation, {"a": "p1", "i": "h-9"})
    conversation.send(hub.Cancel("c"), 0.0)
    sent_messages(conversation)
    return conversation


AGAIN = [
    {"a": "h-3", "i": "3", "d": 3},
    {"a": "h-4", "i": "4", "d": 4, "n": 1},
    {"a": "h-6", "i": "6", "o": 2},
    {"t": "one", "r": "h-7"},
    {"t": "two", "r": "h-8", "d": 1, "n": 1},
    {"t": "three", "p": "h-9"},
    {"t": "four", "i": "h-a", "e": {"type": "local", "fatal": True, "err": "cancelled"}},
]


def test_new_connection_retransmits_everything_unacknowledged() -> None:
    conversation = busy()
    assert sent_messages(conversation) == []
    conversation.reconnect(0.1)
    assert sent_messages(conversation) == AGAIN
    assert conversation.deadline() == 1.1  # the delays start again with the shortest


def test_restored_conversation_continues() -> None:
    saved = json.loads(json.dumps(busy().export(unaccepted=True)))
    conversation = NqConversation.restore(setup(), saved, 1000.0)
    assert sent_messages(conversation) == AGAIN
    assert receive(conversation, {"t": "a", "r": "1"}, {"t": "a", "r": "2"}, {"t": "a", "r": "5"}, now=1000.0) == []
    restored, original = sent_messages(conversation)
    assert restored == {"a": "h-2", "i": "2"}
    assert (original["i"], original["e"]["err"]) == ("5", "expired")
    assert receive(conversation, {"i": "h-3"}, {"a": "p1", "i": "h-9", "d": 9}, now=1000.0) == [
        hub.Acknowledged("a#3"),
        hub.Result("z", Json(b"9")),
    ]
    conversation.send(hub.Part("y", last=True), 1000.0)
    assert {"t": "two", "r": "h-8", "n": 2, "f": 0} in sent_messages(conversation)
    assert receive(conversation, {"t": "sum", "r": "6", "d": 2, "n": 2, "f": 0}, now=1000.0) == [
        hub.Part("sum#6", Json(b"2"), last=True)
    ]


def test_restored_requests_keep_their_expiry() -> None:
    saved = busy().export(unaccepted=True)
    conversation = NqConversation.restore(setup(), saved, 1000.0)
    assert conversation.export()["tombs"] == saved["tombs"]
    assert [item["ttl"] for item in conversation.export()["asking"]] == [item["ttl"] for item in saved["asking"]]  # type: ignore[attr-defined]


def test_saved_conversation_of_another_version_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="version 2"):
        NqConversation.restore(setup(), {"version": 2}, 0.0)


def test_subscriptions_survive_a_restart() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "mine"}})
    conversation.send(hub.Result("hub-subscribe#1"), 0.0)
    receive(conversation, {"e": {"type": "sys", "fatal": False, "note": "peer", "args": ["me"]}})
    conversation = NqConversation.restore(setup(), json.loads(json.dumps(conversation.export())), 5.0)
    assert conversation.assigned_peer_id == "me"
    conversation.send(hub.Event("mine", ("a",), Json(b"1")), 5.0)
    assert {**sent_messages(conversation)[-1], "r": ""} == {"t": "mine", "r": "", "d": 1, "topic": "a"}


def test_closed_connection_is_silent_until_reconnect() -> None:
    conversation = create_conversation(announce=True)
    receive(conversation, {"t": "a", "r": "1"}, {"e": {"type": "sys", "fatal": True}})
    assert conversation.closed
    assert conversation.deadline() is None
    assert list(conversation.wake(100.0)) == []
    conversation.reconnect(100.0)
    conversation.send(hub.Result("a#1", Json(b"1")), 100.0)
    note = {"e": {"type": "sys", "fatal": False, "note": "peer", "args": ["p1"]}}
    assert sent_messages(conversation) == [note, {"a": "h-1", "i": "1", "d": 1}]


def test_idle_conversation_has_no_deadline() -> None:
    conversation = create_conversation()
    assert conversation.deadline() is None
    receive(conversation, {"t": "a", "r": "1"})
    conversation.send(hub.Result("a#1"), 0.0)
    sent_messages(conversation)
    assert conversation.deadline() == 1.0
    receive(conversation, {"i": "h-1"})
    assert conversation.deadline() is None


def test_hub_messages_created_by_send_are_returned_at_once() -> None:
    conversation = create_conversation(Limits(max_text=50))
    conversation.send(hub.Call("x", "a", attachments=("one",)), 3.0)
    conversation.send(hub.Attachment("one", bytes(60)), 3.0)
    assert conversation.deadline() == 3.0
    assert [type(message) for message in conversation.wake(3.0)] == [hub.Failure]
    assert conversation.deadline() is None


def test_peer_that_does_not_read_gets_no_further_deadline() -> None:
    conversation = create_conversation(simplex=True)
    receive(conversation, {"t": "a", "r": "1"})
    conversation.send(hub.Result("a#1"), 0.0)
    assert len(sent_messages(conversation)) == 1
    conversation.wake(1.0)
    assert conversation.deadline() == 24 * 3600.0  # only the expiry of the answer
    conversation.wake(50.0)
    assert sent_messages(conversation) == [{"a": "h-1", "i": "1", "d": None}]


def test_unread_progress_is_dropped() -> None:
    conversation = create_conversation(Limits(max_pending=4))
    receive(conversation, {"t": "a", "r": "1"})
    for number in range(100):
        conversation.send(hub.Progress("a#1", text=str(number)), 0.0)
    assert [item["e"]["text"] for item in sent_messages(conversation)] == ["0", "1", "2", "3"]


def test_many_invalid_elements_get_few_errors() -> None:
    conversation = create_conversation()
    receive(conversation, *range(1000))
    assert len(sent_messages(conversation)) == MAX_SYSTEM_ERRORS
    receive(conversation, {"i": "1", "o": list(range(1, 2000))})
    assert sent_messages(conversation)[0]["e"]["text"].endswith("[NQ-a05]")


def test_tombstones_are_limited() -> None:
    conversation = create_conversation(max_tombs=16)
    for number in range(100):
        receive(conversation, {"t": "a", "r": str(number)})
        conversation.send(hub.Result(f"a#{number}"), 0.0)
        sent_messages(conversation)
        receive(conversation, {"i": f"h-{number + 1:x}"})
    assert len(conversation._incoming.tombstones) == 16
    assert receive(conversation, {"t": "a", "r": "99"}) == []
    assert receive(conversation, {"t": "a", "r": "0"}) != []


def test_small_packet_limit_is_handled() -> None:
    conversation = create_conversation(Limits(max_text=60))
    receive(conversation, {"t": "sum", "r": "1", "d": 2, "n": 2})
    receive(conversation, {"t": "sum", "i": "1", "e": {"fatal": True}})
    assert sent_messages(conversation)[-1]["e"]["err"] == "cancelled"


def test_unpaired_surrogates_are_refused_without_side_effects() -> None:
    conversation = create_conversation()
    receive(conversation, {"t": "a", "r": "1"})
    old_state = conversation.export()
    for message in (
        hub.Failure("a#1", Reason.RAISED, "\ud800"),
        hub.Result("a#1", Value("\ud800")),
        hub.Progress("a#1", text="\ud800"),
        hub.Call("x", "a", spelling="\ud800"),
        hub.Goodbye("\ud800"),
    ):
        with pytest.raises(Unrepresentable):
            conversation.send(message, 0.0)
    assert sent_messages(conversation) == []
    assert conversation.export()["serving"] == old_state["serving"]
    assert conversation.export()["asking"] == []


@pytest.mark.parametrize("option", [{"first_weight": 1.0}, {"first_wait": 0.0}, {"window": 0}, {"verbose": None}])
def test_invalid_options_are_refused(option: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError, match=next(iter(option))):
        NqConversation(ConversationSetup("p1", Role.SERVER, Random(7), options=option))


def test_identifiers_differ_with_the_seed() -> None:
    conversations = [NqConversation(ConversationSetup("p", Role.CLIENT, Random(seed))) for seed in (1, 2)]
    for conversation in conversations:
        conversation.send(hub.Call("x", "a"), 0.0)
    first, second = (sent_messages(conversation)[0]["r"] for conversation in conversations)
    assert first != second
    assert len(first) == len("0123456789ab-1")
