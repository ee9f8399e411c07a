"""What a hostile, broken or merely unlucky peer cannot do."""

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
from tests.support.conversation_driver import hear, make, said, setup

LONG = Json(b'"%b"' % (b"x" * 5000))
NOTARGET = {"type": "local", "fatal": True, "err": "notarget"}


def again(talk: NqConversation, *, unaccepted: bool = False, now: float = 0.0) -> NqConversation:
    """Another conversation in its place."""
    return NqConversation.restore(setup(), json.loads(json.dumps(talk.export(unaccepted=unaccepted))), now)


# Memory and time.


def test_a_text_cannot_stand_for_gigabytes() -> None:
    bomb = ErrorObject("app", True, text="{1}" * 30_000 + "!", args=("x" * 90_000,))
    assert len(bomb.format()) == 180_001
    assert len(ErrorObject("app", True, text="{1}" * 300, args=("x" * 3000,)).format()) == MAX_FILLED_LENGTH
    whole = ErrorObject("app", True, text="<{1}>", args=("x" * 100_000,))
    assert whole.format() == f"<{'x' * 100_000}>"


@pytest.mark.parametrize("key", ["traceparent", "attachments", "q"])
def test_no_depth_is_too_deep(key: str) -> None:
    for depth in (100, 127, 128, 129, 500, 900, 1000, 1100, 5000):
        talk = make(Limits(max_depth=4000))
        talk.receive(Packet(b'{"t":"a","r":"1","%b":%b}' % (key.encode(), b"[" * depth + b"]" * depth)), 0.0)
        talk.receive(Packet(b'{"a":' * depth + b"1" + b"}" * depth), 0.0)
        assert not talk.closed


def test_missing_parts_are_looked_for_among_those_there_are() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"})
    for number in range(3):
        talk.send(hub.Result("a#1", Value(number), stream=True, last=False), 0.0)
    said(talk)
    hear(talk, {"i": ["h-1"] * 1000, "o": [2] * 1000 + [10**9]})
    assert [part["n"] for part in said(talk)] == [2]


def test_attachments_of_one_answer_belong_to_one_request() -> None:
    talk = make()
    talk.send(hub.Call("x", "a"), 0.0)
    talk.send(hub.Call("y", "a"), 0.0)
    messages = hear(talk, {"a": "p", "i": ["h-1", "h-2"], "d": 1, "attachments": [{"$base91": ""}]})
    assert [type(message) for message in messages] == [hub.Failure] * 2


def test_long_names_are_not_remembered() -> None:
    frames._is_cached_name.cache_clear()
    talk = make()
    for method in ("hub-subscribe", "hub-unsubscribe"):
        assert hear(talk, {"t": method, "r": "1", "d": {"topic": "a", "id": "z" * 300}}) == []
        assert said(talk)[0]["e"]["err"] in ("toolarge", "badargs")
    assert frames._is_cached_name.cache_info().currsize <= 2
    assert talk._shared.peer_subscriptions.grants == {}


def test_an_answer_to_many_unknown_requests_is_one_stray() -> None:
    messages = hear(make(), {"a": "p", "i": [str(number) for number in range(1000)], "d": 1})
    assert [type(message) for message in messages] == [hub.Stray]


def test_answers_are_kept_within_their_bound_and_an_end_always_finds_room() -> None:
    talk = make(max_kept_bytes=6000)
    hear(talk, *({"t": "a", "r": str(number)} for number in range(3)))
    talk.send(hub.Result("a#0", LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Result("a#1", LONG), 0.0)
    talk.send(hub.Failure("a#1", Reason.RAISED, "why", LONG, name="oops"), 0.0)
    assert said(talk)[1]["e"] == {"type": "app", "fatal": True, "err": "oops"}
    assert talk._shared.answer_budget.used < 6000 + 1024
    hear(talk, {"i": ["h-1", "h-2"]})
    assert talk._shared.answer_budget.used == 0
    talk.send(hub.Result("a#2", LONG), 0.0)


def test_requests_of_ours_are_kept_within_their_bound_and_events_within_half_of_it() -> None:
    talk = make(max_kept_bytes=16_000)
    hear(talk, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}})
    talk.send(hub.Result("hub-subscribe#1"), 0.0)
    talk.send(hub.Event("x", ("a",), LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Event("x", ("a",), LONG), 0.0)
    talk.send(hub.Call("x", "a", LONG), 0.0)
    talk.send(hub.Call("y", "a", LONG), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Call("z", "a", LONG), 0.0)
    talk = again(talk)
    assert talk._shared.request_budget.used > 15_000
    hear(talk, {"a": "p", "i": ["h-2", "h-4", "h-5"], "d": 1})
    assert talk._shared.request_budget.used == 0


def test_what_waits_stands_in_line_once() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "h", "n": 1, "d": 1})
    for number in range(2, 300):
        hear(talk, {"t": "a", "r": "h", "n": number, "d": 1}, now=0.1)
    said(talk)
    assert len(talk._retransmission) == 1
    served = make()
    for number in range(50):
        hear(served, {"t": "a", "r": str(number)})
        served.send(hub.Result(f"a#{number}", LONG), 0.0)
        hear(served, {"i": said(served)[0]["a"]})
    assert len(served._retransmission) == 0


def test_side_messages_are_bounded_in_bytes_and_a_farewell_is_always_said() -> None:
    talk = make(Limits(max_text=6000))
    hear(talk, {"t": "a", "r": "1"})
    for _ in range(100):
        talk.send(hub.Progress("a#1", LONG), 0.0)
    talk.send(hub.Goodbye("{x}\n" * 5000), 0.0)
    found = said(talk)
    assert len(found) == 5
    assert found[-1]["e"]["note"] == "goodbye"
    assert found[-1]["e"]["args"][0].startswith("{x}\n" * 100)


# Nothing is lost or doubled.


def test_what_was_minted_after_the_saving_is_not_minted_again() -> None:
    talk = make()
    saved = talk.export()
    talk.send(hub.Call("x", "a"), 0.0)
    assert said(talk)[0]["r"] == "h-1"
    talk = NqConversation.restore(setup(), saved, 1.0)
    talk.send(hub.Call("y", "a"), 1.0)
    assert said(talk)[0]["r"] != "h-1"
    assert hear(talk, {"a": "p", "i": "h-1", "d": 1}) == []  # late, but no stray
    for _ in range(40):
        talk = again(talk)
    assert len(talk.export()["prefixes"]) == 17  # type: ignore[arg-type]


def test_an_unaccepted_request_is_known_only_to_a_hub_that_has_survived() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"})
    assert hear(again(talk, unaccepted=True), {"t": "a", "r": "1"}) == []
    assert [type(message) for message in hear(again(talk), {"t": "a", "r": "1"})] == [hub.Call]


def test_only_what_was_said_can_be_acknowledged() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"})
    talk.send(hub.Accepted("a#1"), 0.0)
    said(talk)
    talk.send(hub.Result("a#1", Value(5)), 0.0)
    assert hear(talk, {"i": "h-1"}) == []
    assert said(talk) == [{"a": "h-1", "i": "1", "d": 5}]
    assert hear(again(talk), {"i": "h-1"}) == [hub.Acknowledged("a#1")]


def test_a_stream_without_a_beginning_is_refused_and_the_hub_never_hears_of_it() -> None:
    talk = make()
    assert hear(talk, {"t": "a", "r": "1", "n": 0, "f": 0}) == []
    assert said(talk)[0]["e"]["err"] == "badargs"
    hear(talk, {"t": "a", "r": "2", "d": 1, "n": 100})
    said(talk)
    assert hear(talk, {"t": "a", "r": "2", "n": 0, "f": 0}) == []
    assert said(talk)[-1]["e"]["err"] == "malformed"
    assert hear(talk, {"i": "h-2"}) == []


def test_a_request_that_contradicts_itself_is_given_up() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1", "d": 1, "n": 1, "f": 1})
    assert hear(talk, {"t": "a", "r": "1", "d": 1, "n": 2, "f": 7}) == [hub.Cancel("a#1")]
    talk.send(hub.Failure("a#1", Reason.CANCELLED), 0.0)
    assert said(talk)[-1]["e"]["err"] == "malformed"


@pytest.mark.parametrize(
    "bad", [{"e": {"type": "info", "fatal": False}}, {"d": 1, "e": {"type": "info"}}, {"o": [0]}, {"e": 7}]
)
def test_a_side_message_that_cannot_be_read_ends_nothing(bad: dict[str, object]) -> None:
    talk = make()
    talk.send(hub.Call("x", "a"), 0.0)
    said(talk)
    assert hear(talk, {"a": "p", "i": "h-1", **bad}) == []
    assert [list(each) for each in said(talk)] == [["e"]]
    assert hear(talk, {"a": "p", "i": "h-1", "d": 7}) == [hub.Result("x", Json(b"7"))]


@pytest.mark.parametrize(
    "close",
    [lambda talk: hear(talk, {"e": {"type": "sys", "fatal": True}}), lambda talk: talk.send(hub.Goodbye(), 0.0)],
    ids=["theirs", "ours"],
)
def test_answers_wait_for_the_next_link(close: Callable[[NqConversation], object]) -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"}, {"t": "a", "r": "2"}, {"t": "hub-discover", "r": "3"})
    close(talk)
    said(talk)
    talk.send(hub.Accepted("a#1"), 1.0)
    talk.send(hub.Progress("a#1", text="soon"), 1.0)
    talk.send(hub.Result("a#1", Value(1)), 1.0)
    talk.send(hub.Failure("a#2", Reason.RAISED), 1.0)
    talk.send(hub.Description("hub-discover#3"), 1.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Call("x", "a"), 1.0)
    assert talk.take_packets() == []
    talk.reconnect(2.0)
    assert [each["i"] for each in said(talk)] == ["1", "1", "1", "2", "3"]


def test_a_request_that_was_refused_is_not_run_after_all() -> None:
    talk = make()
    hear(talk, {"t": "hub-subscribe", "r": "1"})
    first = said(talk)
    assert first[0]["e"]["err"] == "badargs"
    assert hear(talk, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}}) == []
    assert said(talk) == first
    hear(talk, {"t": "hub-subscribe", "p": "1"})
    assert said(talk)[1:] == first
    assert len(hear(talk, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}}, now=61.0)) == 1


# Subscriptions.


def subscribed(number: int, talk: NqConversation) -> NqConversation:
    hear(talk, {"t": "hub-subscribe", "r": str(number), "d": {"topic": "a", "id": "x"}})
    talk.send(hub.Result(f"hub-subscribe#{number}"), 0.0)
    return talk


def test_an_event_of_an_old_subscription_cannot_end_a_new_one() -> None:
    talk = subscribed(1, make())
    talk.send(hub.Event("x", ("a",)), 0.0)
    hear(talk, {"t": "hub-unsubscribe", "r": "2", "d": {"id": "x"}})
    talk.send(hub.Result("hub-unsubscribe#2"), 0.0)
    talk = again(subscribed(3, talk))
    assert hear(talk, {"a": "q", "i": "h-2", "e": NOTARGET}) == []
    talk.send(hub.Event("x", ("a",)), 0.0)
    talk.send(hub.Event("x", ("a",)), 0.0)
    first, second = (each["r"] for each in said(talk)[-2:])
    assert hear(talk, {"a": "q", "i": first, "e": {**NOTARGET, "type": "app"}}) == []
    assert hear(talk, {"a": "q", "i": second, "e": NOTARGET}) == [hub.Unsubscribe(None, "x")]


def test_a_subscription_of_ours_hides_no_method() -> None:
    talk = make()
    talk.send(hub.Subscribe("s", parse_pattern("t", UMQ), "echo"), 0.0)
    assert [type(message) for message in hear(talk, {"t": "echo", "r": "9"})] == [hub.Call]


def test_a_name_is_claimed_once_and_claims_count() -> None:
    talk = make(Limits(max_subscriptions=2))
    asked = [{"t": "hub-subscribe", "r": str(n), "d": {"topic": "a", "id": name}} for n, name in enumerate("xxyz")]
    assert [message.subscription for message in hear(talk, *asked)] == ["x", "y"]  # type: ignore[attr-defined]
    assert [each["e"]["err"] for each in said(talk)] == ["badargs", "busy"]
    talk.send(hub.Failure("hub-subscribe#0", Reason.DENIED), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Event("y", ("a",)), 0.0)
    assert len(hear(talk, {"t": "hub-subscribe", "r": "9", "d": {"topic": "a", "id": "x"}})) == 1


def test_a_subscription_ends_only_if_the_hub_says_so() -> None:
    talk = subscribed(1, make())
    hear(talk, {"t": "hub-unsubscribe", "r": "2", "d": {"id": "x"}})
    talk.send(hub.Failure("hub-unsubscribe#2", Reason.DENIED), 0.0)
    said(talk)
    talk.send(hub.Event("x", ("a",)), 0.0)
    assert [each["t"] for each in said(talk)] == ["x"]


# Odds and ends.


def test_waits_that_are_no_numbers() -> None:
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=math.nan)).args == ()
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=math.inf)).args == ("604800000",)
    assert error_from_failure(hub.Failure("x", Reason.OVERLOADED, retry_after=-1.0)).args == ("0",)


def test_a_cancelled_request_does_not_keep_others_from_expiring() -> None:
    talk = make(request_ttl=10.0)
    talk.send(hub.Call("x", "a"), 0.0)
    talk.send(hub.Call("y", "a"), 0.0)
    talk.send(hub.Cancel("x"), 9.0)
    assert [type(message) for message in talk.wake(10.0)] == [hub.Failure]


def test_restored_answers_expire_in_their_order() -> None:
    talk = make()
    hear(talk, {"t": "a", "r": "1"}, {"t": "a", "r": "2"})
    talk.send(hub.Result("a#2"), 0.0)
    talk.send(hub.Result("a#1"), 90.0)
    talk = again(talk, now=90.0)
    assert [message.id for message in talk.wake(24 * 3600.0)] == ["a#2"]  # type: ignore[attr-defined]


def test_a_call_that_waits_for_its_attachments_has_its_id_for_itself() -> None:
    talk = make()
    talk.send(hub.Call("1", "a", attachments=("x",)), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.send(hub.Discover("1"), 0.0)
    talk.send(hub.Attachment("x"), 0.0)
    assert len(said(talk)) == 1


def test_keys_of_different_requests_differ() -> None:
    pairs = [("a", "b#c"), ("a#b", "c"), ("", "a#b#c"), ("a", "b c"), ("a#", "b#c"), ("a", "#b#c"), ("#a", "b")]
    assert len({request_key(*pair) for pair in pairs}) == len(pairs)


def test_the_peer_is_told_its_id_once() -> None:
    talk = make(announce=True)
    talk = NqConversation.restore(setup(announce=True), talk.export(), 0.0)
    talk.reconnect(1.0)
    assert len(said(talk)) == 1


# Keys of the users' own.


def test_the_users_own_keys_come_through() -> None:
    talk = make()
    (call,) = hear(talk, {"t": "a", "r": "1", "q": [1], "mine": {"x": None}, "": 2, "topic": "t", "redelivered": True})
    assert isinstance(call, hub.Call)
    assert call.redelivered
    assert call.extras == {"q": Json(b"[1]"), "mine": Json(b'{"x": null}'), "": Json(b"2")}
    talk.send(hub.Result("a#1", Value(1), extras={"q": Value(b"\0"), "t": Value(1), "topic": Value(2)}), 0.0)
    talk.send(hub.Call("x", "b", redelivered=True, extras={"own": Value([1])}), 0.0)
    assert said(talk) == [
        {"a": "h-1", "i": "1", "d": 1, "q": {"$base91": "!!"}},
        {"t": "b", "r": "h-2", "own": [1], "redelivered": True},
    ]
    messages = hear(
        talk, {"a": "p", "i": "h-2", "d": 1, "n": 1, "z": 1}, {"a": "p", "i": "h-2", "d": 2, "n": 2, "f": 0}
    )
    assert [message.extras for message in messages] == [{"z": Json(b"1")}, None]  # type: ignore[attr-defined]
