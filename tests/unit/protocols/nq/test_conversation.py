"""What outlives a link and a process, and what a peer cannot make us hold."""

import json
from random import Random

import pytest

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import MAX_SYSTEM_ERRORS, NqConversation
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Value
from tests.support.conversation_driver import hear, make, said, setup


def busy() -> NqConversation:
    """A conversation in the middle of everything."""
    talk = make()
    hear(talk, *({"t": "a", "r": str(number)} for number in range(1, 6)))
    talk.send(hub.Accepted("a#2"), 0.0)
    talk.send(hub.Result("a#3", Json(b"3")), 0.0)
    talk.send(hub.Result("a#4", Json(b"4"), stream=True, last=False), 0.0)
    talk.send(hub.Result("a#5", Json(b"5")), 0.0)
    said(talk)
    hear(talk, {"i": "h-5"}, {"t": "sum", "r": "6", "d": 1, "n": 1})
    talk.send(hub.Call("x", "one"), 0.0)
    talk.send(hub.Call("y", "two", Json(b"1"), more=True), 0.0)
    talk.send(hub.Call("z", "three"), 0.0)
    talk.send(hub.Call("c", "four"), 0.0)
    hear(talk, {"a": "p1", "i": "h-9"})
    talk.send(hub.Cancel("c"), 0.0)
    said(talk)
    return talk


AGAIN = [
    {"a": "h-3", "i": "3", "d": 3},
    {"a": "h-4", "i": "4", "d": 4, "n": 1},
    {"a": "h-6", "i": "6", "o": 2},
    {"t": "one", "r": "h-7"},
    {"t": "two", "r": "h-8", "d": 1, "n": 1},
    {"t": "three", "p": "h-9"},
    {"t": "four", "i": "h-a", "e": {"type": "local", "fatal": True, "err": "cancelled"}},
]


def test_on_another_link_all_that_was_not_reacted_to_is_said_again_at_once() -> None:
    talk = busy()
    assert said(talk) == []
    talk.reconnect(0.1)
    assert said(talk) == AGAIN
    assert talk.deadline() == 1.1  # and the first wait is the shortest again


def test_a_restored_conversation_goes_on_in_the_place_of_the_other() -> None:
    saved = json.loads(json.dumps(busy().export(unaccepted=True)))
    talk = NqConversation.restore(setup(), saved, 1000.0)
    assert said(talk) == AGAIN
    assert hear(talk, {"t": "a", "r": "1"}, {"t": "a", "r": "2"}, {"t": "a", "r": "5"}, now=1000.0) == []
    again, gone = said(talk)
    assert again == {"a": "h-2", "i": "2"}
    assert (gone["i"], gone["e"]["err"]) == ("5", "expired")
    assert hear(talk, {"i": "h-3"}, {"a": "p1", "i": "h-9", "d": 9}, now=1000.0) == [
        hub.Acknowledged("a#3"),
        hub.Result("z", Json(b"9")),
    ]
    talk.send(hub.Part("y", last=True), 1000.0)
    assert {"t": "two", "r": "h-8", "n": 2, "f": 0} in said(talk)
    assert hear(talk, {"t": "sum", "r": "6", "d": 2, "n": 2, "f": 0}, now=1000.0) == [
        hub.Part("sum#6", Json(b"2"), last=True)
    ]


def test_restoring_loses_no_time_and_gains_none() -> None:
    saved = busy().export(unaccepted=True)
    talk = NqConversation.restore(setup(), saved, 1000.0)
    assert talk.export()["tombs"] == saved["tombs"]
    assert [each["ttl"] for each in talk.export()["asking"]] == [each["ttl"] for each in saved["asking"]]  # type: ignore[attr-defined]


def test_a_saved_conversation_of_another_version_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="version 2"):
        NqConversation.restore(setup(), {"version": 2}, 0.0)


def test_subscriptions_outlive_the_process() -> None:
    talk = make()
    hear(talk, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "mine"}})
    talk.send(hub.Result("hub-subscribe#1"), 0.0)
    hear(talk, {"e": {"type": "sys", "fatal": False, "note": "peer", "args": ["me"]}})
    talk = NqConversation.restore(setup(), json.loads(json.dumps(talk.export())), 5.0)
    assert talk.assigned_peer_id == "me"
    talk.send(hub.Event("mine", ("a",), Json(b"1")), 5.0)
    assert {**said(talk)[-1], "r": ""} == {"t": "mine", "r": "", "d": 1, "topic": "a"}


def test_a_closed_link_is_silent_until_the_peer_comes_back() -> None:
    talk = make(announce=True)
    hear(talk, {"t": "a", "r": "1"}, {"e": {"type": "sys", "fatal": True}})
    assert talk.closed
    assert talk.deadline() is None
    assert list(talk.wake(100.0)) == []
    talk.reconnect(100.0)
    talk.send(hub.Result("a#1", Json(b"1")), 100.0)
    note = {"e": {"type": "sys", "fatal": False, "note": "peer", "args": ["p1"]}}
    assert said(talk) == [note, {"a": "h-1", "i": "1", "d": 1}]


def test_a_conversation_with_nothing_to_do_wants_no_waking() -> None:
    talk = make()
    assert talk.deadline() is None
    hear(talk, {"t": "a", "r": "1"})
    talk.send(hub.Result("a#1"), 0.0)
    said(talk)
    assert talk.deadline() == 1.0
    hear(talk, {"i": "h-1"})
    assert talk.deadline() is None


def test_words_that_came_up_while_something_was_said_are_fetched_at_once() -> None:
    talk = make(Limits(max_text=50))
    talk.send(hub.Call("x", "a", attachments=("one",)), 3.0)
    talk.send(hub.Attachment("one", bytes(60)), 3.0)
    assert talk.deadline() == 3.0
    assert [type(message) for message in talk.wake(3.0)] == [hub.Failure]
    assert talk.deadline() is None


def test_a_peer_that_does_not_fetch_is_not_waited_for_again_and_again() -> None:
    talk = make(simplex=True)
    hear(talk, {"t": "a", "r": "1"})
    talk.send(hub.Result("a#1"), 0.0)
    assert len(said(talk)) == 1
    talk.wake(1.0)
    assert talk.deadline() == 24 * 3600.0  # only the end of the answer's time
    talk.wake(50.0)
    assert said(talk) == [{"a": "h-1", "i": "1", "d": None}]


def test_side_messages_that_nobody_fetches_are_dropped() -> None:
    talk = make(Limits(max_pending=4))
    hear(talk, {"t": "a", "r": "1"})
    for number in range(100):
        talk.send(hub.Progress("a#1", text=str(number)), 0.0)
    assert [each["e"]["text"] for each in said(talk)] == ["0", "1", "2", "3"]


def test_who_sends_much_nonsense_at_once_is_not_told_of_each() -> None:
    talk = make()
    hear(talk, *range(1000))
    assert len(said(talk)) == MAX_SYSTEM_ERRORS
    hear(talk, {"i": "1", "o": list(range(1, 2000))})
    assert said(talk)[0]["e"]["text"].endswith("[NQ-a05]")


def test_finished_requests_are_remembered_within_bounds() -> None:
    talk = make(max_tombs=16)
    for number in range(100):
        hear(talk, {"t": "a", "r": str(number)})
        talk.send(hub.Result(f"a#{number}"), 0.0)
        said(talk)
        hear(talk, {"i": f"h-{number + 1:x}"})
    assert len(talk._incoming.tombstones) == 16
    assert hear(talk, {"t": "a", "r": "99"}) == []
    assert hear(talk, {"t": "a", "r": "0"}) != []


def test_small_packets_do_not_make_it_fail() -> None:
    talk = make(Limits(max_text=60))
    hear(talk, {"t": "sum", "r": "1", "d": 2, "n": 2})
    hear(talk, {"t": "sum", "i": "1", "e": {"fatal": True}})
    assert said(talk)[-1]["e"]["err"] == "cancelled"


def test_texts_that_json_cannot_hold_are_refused_and_change_nothing() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"})
    before = talk.export()
    for message in (
        hub.Failure("a#1", Reason.RAISED, "\ud800"),
        hub.Result("a#1", Value("\ud800")),
        hub.Progress("a#1", text="\ud800"),
        hub.Call("x", "a", spelling="\ud800"),
        hub.Goodbye("\ud800"),
    ):
        with pytest.raises(Unrepresentable):
            talk.send(message, 0.0)
    assert said(talk) == []
    assert talk.export()["serving"] == before["serving"]
    assert talk.export()["asking"] == []


@pytest.mark.parametrize("option", [{"first_weight": 1.0}, {"first_wait": 0.0}, {"window": 0}, {"verbose": None}])
def test_options_that_make_no_sense_are_refused(option: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError, match=next(iter(option))):
        NqConversation(ConversationSetup("p1", Role.SERVER, Random(7), options=option))


def test_identifiers_differ_where_chance_does() -> None:
    talks = [NqConversation(ConversationSetup("p", Role.CLIENT, Random(seed))) for seed in (1, 2)]
    for talk in talks:
        talk.send(hub.Call("x", "a"), 0.0)
    first, second = (said(talk)[0]["r"] for talk in talks)
    assert first != second
    assert len(first) == len("0123456789ab-1")
