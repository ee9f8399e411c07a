"""Routing of calls and of responses."""

import math

import pytest

from fiveways.errors import LocalProtocolError, Reason, TooLarge, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.model.messages import (
    Call,
    Cancel,
    Failure,
    Part,
    Progress,
    Result,
    Stray,
    Unregister,
)
from fiveways.wire.payload import NULL, Json, Text, Value
from tests.support.hub_helpers import hub_with_peers, only_message, refusal, register_method, success

BODY = Json(b'{"user":"alice"}')


def send_call(hub: Hub, caller: str = "ann", call_id: str = "c", method: str = "m", now: float = 0.0) -> Deliveries:
    return hub.handle(caller, Call(call_id, method, BODY), now)


def test_call_and_result_are_forwarded() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "account.get_balance", "Account:getBalance")
    call = Call("17", "account.get_balance", BODY, "account.get_balance", traceparent="t", extras={"k": NULL})
    forwarded = Call(
        "1", "account.get_balance", BODY, "Account:getBalance", timeout=30.0, traceparent="t", extras={"k": NULL}
    )
    assert hub.handle("ann", call, 5.0) == [Delivery("bob", forwarded, "1")]
    assert hub.open_calls() == 1
    answer = Result("1", Text("12"), extras={"x": NULL})
    assert hub.handle("bob", answer, 6.0) == [Delivery("ann", Result("17", Text("12"), extras={"x": NULL}), "1")]
    assert hub.open_calls() == 0
    assert hub.deadline() is None


def test_callers_may_use_the_same_ids() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    assert send_call(hub, "ann") == [Delivery("bob", Call("1", "m", BODY, timeout=30.0), "1")]
    assert send_call(hub, "dan") == [Delivery("bob", Call("2", "m", BODY, timeout=30.0), "2")]
    assert hub.handle("bob", Result("2", Value(2)), 0.0) == [Delivery("dan", Result("c", Value(2)), "2")]
    assert hub.handle("bob", Result("1", Value(1)), 0.0) == [Delivery("ann", Result("c", Value(1)), "1")]


def test_peer_may_call_itself() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    assert send_call(hub, "bob") == [Delivery("bob", Call("1", "m", BODY, timeout=30.0), "1")]
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("bob", Result("c"), "1")]
    send_call(hub, "bob")
    assert hub.leave("bob", 1.0) == []
    assert hub.open_calls() == 0


def test_id_of_pending_call_is_refused() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    assert refusal(send_call(hub)) == ("ann", "c", Reason.BAD_ARGUMENTS, "call c is already open")


def test_stray_response_is_dropped_and_counted() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    assert hub.handle("dan", Result("1"), 0.0) == []
    assert hub.handle("bob", Result("9"), 0.0) == []
    assert hub.handle("bob", Failure("9", Reason.RAISED), 0.0) == []
    assert hub.handle("bob", Stray("9"), 0.0) == []
    assert hub.handle("ann", Part("9"), 0.0) == []
    assert hub.stats()["stray"] == 5
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("ann", Result("c"), "1")]
    assert hub.handle("bob", Result("1"), 0.0) == []


def test_failure_is_forwarded_with_all_fields() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    failure = Failure("1", Reason.RAISED, "no", Value({"why": 1}), 2.5, "app.err.no", 17)
    expected = Failure("c", Reason.RAISED, "no", Value({"why": 1}), 2.5, "app.err.no", 17)
    assert hub.handle("bob", failure, 0.0) == [Delivery("ann", expected, "1")]
    assert hub.stats()["failures"] == {"raised": 1}


def test_failure_without_execution_is_forwarded_as_such() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    expected = Failure("c", Reason.BAD_ARGUMENTS, "a is missing")
    assert hub.handle("bob", Failure("1", Reason.BAD_ARGUMENTS, "a is missing"), 0.0) == [
        Delivery("ann", expected, "1")
    ]


# Names.


def test_unknown_method_is_refused() -> None:
    hub = hub_with_peers()
    assert refusal(send_call(hub)) == ("ann", "c", Reason.NO_SUCH_METHOD, "there is no method m")
    assert refusal(send_call(hub, method="hub.nonsense"))[2] is Reason.NO_SUCH_METHOD


def test_method_without_callee_is_unavailable() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    register_method(hub, "eve", "m")
    hub.leave("bob", 0.0)
    assert send_call(hub) == [Delivery("eve", Call("1", "m", BODY, timeout=30.0), "1")]
    assert hub.handle("eve", Unregister("u", "m"), 0.0) == success("eve", "u")
    assert refusal(send_call(hub, call_id="d")) == ("ann", "d", Reason.UNAVAILABLE, "m has no callee any more")
    assert hub.handle("eve", Result("1"), 0.0) == [Delivery("ann", Result("c"), "1")]


def test_route_callee_gets_name_below_its_prefix() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "account", "Account:", route=True)
    call = Call("c", "account.get_balance", BODY, "account.get_balance")
    forwarded = Call("1", "get_balance", BODY, "get_balance", timeout=30.0)
    assert hub.handle("ann", call, 0.0) == [Delivery("bob", forwarded, "1")]
    call = Call("c", "account.get_balance", BODY, "Account:getBalance")
    forwarded = Call("2", "get_balance", BODY, "getBalance", timeout=30.0)
    assert hub.handle("eve", call, 0.0) == [Delivery("bob", forwarded, "2")]


def test_exact_name_wins_over_route_and_longer_route_over_shorter() -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "a", "a.", route=True)
    register_method(hub, "bob", "a.b", "a:b:", route=True)
    register_method(hub, "eve", "a.b.c", "a:b:c")
    results = [hub.handle("dan", Call(name, name), 0.0) for name in ("a.b.c", "a.b.d", "a.b", "a.c.d")]
    assert results == [
        [Delivery("eve", Call("1", "a.b.c", spelling="a:b:c", timeout=30.0), "1")],
        [Delivery("bob", Call("2", "d", timeout=30.0), "2")],
        [Delivery("ann", Call("3", "b", timeout=30.0), "3")],
        [Delivery("ann", Call("4", "c.d", timeout=30.0), "4")],
    ]
    assert refusal(send_call(hub, method="a"))[2] is Reason.NO_SUCH_METHOD
    hub.leave("bob", 0.0)
    assert hub.handle("dan", Call("x", "a.b.d"), 0.0) == [Delivery("ann", Call("5", "b.d", timeout=30.0), "5")]
    hub.leave("ann", 0.0)
    assert refusal(send_call(hub, "dan", method="a.b.d"))[2] is Reason.UNAVAILABLE
    assert refusal(send_call(hub, "dan", method="z.b.d"))[2] is Reason.NO_SUCH_METHOD


# Limits.


def test_pending_calls_of_caller_are_limited() -> None:
    hub = hub_with_peers({"max_pending": 2})
    register_method(hub, "bob", "m")
    register_method(hub, "eve", "n")
    send_call(hub, call_id="1")
    send_call(hub, call_id="2", method="n")
    expected = Failure("3", Reason.OVERLOADED, "too many calls are open", retry_after=1.0)
    assert send_call(hub, call_id="3") == [Delivery("ann", expected)]
    assert len(send_call(hub, "dan")) == 1
    hub.handle("bob", Result("1"), 0.0)
    assert only_message(send_call(hub, call_id="3"), Call).id == "4"


def test_pending_calls_of_callee_are_limited() -> None:
    hub = hub_with_peers({"max_pending": 1})
    register_method(hub, "bob", "m")
    send_call(hub, "ann")
    assert refusal(send_call(hub, "dan"))[2] is Reason.OVERLOADED
    hub.handle("bob", Result("1"), 0.0)
    assert only_message(send_call(hub, "dan"), Call).id == "2"


# Deadlines.


@pytest.mark.parametrize(
    ("requested", "timeout"),
    [
        (None, 30.0),
        (30.0, 30.0),
        (5.0, 5.0),
        (0.0, 0.0),
        (-1.0, 0.0),
        (1e9, 3600.0),
        (math.inf, 3600.0),
        (math.nan, 3600.0),
    ],
)
def test_call_times_out_at_its_deadline(requested: float | None, timeout: float) -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    assert hub.handle("ann", Call("c", "m", timeout=requested), 100.0) == [
        Delivery("dan", Call("1", "m", timeout=timeout), "1")
    ]
    assert hub.deadline() == 100.0 + timeout
    assert hub.expire(99.9 + timeout) == []
    expected = [Delivery("dan", Cancel("1"), "1"), Delivery("ann", Failure("c", Reason.TIMEOUT), "1")]
    assert hub.expire(100.0 + timeout) == expected
    assert (hub.deadline(), hub.open_calls()) == (None, 0)
    assert hub.handle("dan", Result("1"), 200.0) == []


def test_calls_expire_in_order_of_deadlines() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    for number, (at, timeout) in enumerate([(0.0, None), (1.0, 2.0), (2.0, None), (3.0, 50.0)]):
        hub.handle("ann", Call(str(number), "m", timeout=timeout), at)
    assert hub.deadline() == 3.0
    ended = []
    while (deadline := hub.deadline()) is not None:
        messages = [delivery.message for delivery in hub.expire(deadline) if isinstance(delivery, Delivery)]
        ended.append((deadline, [message.id for message in messages if isinstance(message, Failure)]))
    assert ended == [(3.0, ["1"]), (30.0, ["0"]), (32.0, ["2"]), (53.0, ["3"])]


def test_reported_deadline_is_never_too_late() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    send_call(hub, call_id="1", now=0.0)
    send_call(hub, call_id="2", now=10.0)
    hub.handle("dan", Result("1"), 11.0)
    # The first call is answered, so this deadline is too early; `expire` then computes the exact one.
    assert hub.deadline() == 30.0
    assert hub.expire(30.0) == []
    assert hub.deadline() == 40.0


# Cancellation and departed peers.


def test_cancellation_reaches_callee_and_ends_call() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    send_call(hub)
    expected = [Delivery("dan", Cancel("1"), "1"), Delivery("ann", Failure("c", Reason.CANCELLED), "1")]
    assert hub.handle("ann", Cancel("c"), 1.0) == expected
    assert hub.handle("ann", Cancel("c"), 1.0) == []
    assert hub.handle("dan", Failure("1", Reason.CANCELLED), 1.0) == []
    assert hub.open_calls() == 0


def test_callee_without_cancellation_gets_cancel_for_its_conversation() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    expected = [Delivery("bob", Cancel("1"), "1"), Delivery("ann", Failure("c", Reason.CANCELLED), "1")]
    assert hub.handle("ann", Cancel("c"), 1.0) == expected


def test_calls_of_departed_callee_are_lost() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub, "ann")
    send_call(hub, "dan")
    lost = [
        Delivery(peer, Failure("c", Reason.LOST, "the callee is gone"), op) for peer, op in [("ann", "1"), ("dan", "2")]
    ]
    assert hub.leave("bob", 1.0) == lost
    assert hub.leave("bob", 1.0) == []
    assert hub.handle("bob", Result("1"), 1.0) == []


def test_calls_of_departed_caller_are_cancelled() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    register_method(hub, "dan", "n")
    send_call(hub, call_id="1", method="m")
    send_call(hub, call_id="2", method="n")
    assert hub.leave("ann", 1.0) == [Delivery("bob", Cancel("1"), "1"), Delivery("dan", Cancel("2"), "2")]
    assert hub.handle("bob", Result("1"), 1.0) == []
    assert hub.open_calls() == 0


# Progress.


def test_progress_goes_to_callers_that_request_it() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("ann", Call("c", "m"), 0.0)
    hub.handle("ann", Call("d", "m", progress=True), 0.0)
    progress = Progress("", Value(5), "warn", "w", "{1}", ("x",))
    progress = Progress("1", progress.body, progress.kind, progress.code, progress.text, progress.args)
    assert hub.handle("bob", progress, 0.0) == []
    progress = Progress("2", progress.body, progress.kind, progress.code, progress.text, progress.args)
    expected = Progress("d", progress.body, progress.kind, progress.code, progress.text, progress.args)
    assert hub.handle("bob", progress, 0.0) == [Delivery("ann", expected, "2")]
    assert hub.handle("bob", Progress("9"), 0.0) == []
    assert hub.open_calls() == 2


# Unrepresentable messages.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unrepresentable("lone surrogate"), Reason.BAD_ARGUMENTS),
        (TooLarge("more than 3000 bytes"), Reason.TOO_LARGE),
        (LocalProtocolError("too many requests to this peer are open"), Reason.OVERLOADED),
        (LocalProtocolError("the conversation is over"), Reason.UNAVAILABLE),
    ],
)
def test_unrepresentable_call_fails(error: LocalProtocolError, reason: Reason) -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    (delivery,) = send_call(hub)
    assert isinstance(delivery, Delivery)
    wait = 1.0 if reason is Reason.OVERLOADED else None
    expected = Failure("c", reason, str(error), retry_after=wait)
    assert hub.handle_undelivered(delivery, error, 0.0) == [Delivery("ann", expected, "1")]
    assert hub.handle_undelivered(delivery, error, 0.0) == []
    assert (hub.open_calls(), hub.stats()["undelivered"]) == (0, 2)


def test_unrepresentable_part_fails_as_lost() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m")
    hub.handle("ann", Call("c", "m", more=True), 0.0)
    (delivery,) = hub.handle("ann", Part("c", Value(2)), 0.0)
    assert isinstance(delivery, Delivery)
    expected = [Delivery("cleo", Cancel("1"), "1"), Delivery("ann", Failure("c", Reason.LOST, "no"), "1")]
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == expected
    assert hub.handle("ann", Part("c", None, last=True), 0.0) == []


def test_unrepresentable_result_fails() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    (delivery,) = hub.handle("bob", Result("1", Value(1)), 0.0)
    assert isinstance(delivery, Delivery)
    expected = Failure("c", Reason.RAISED, "the answer cannot be written in lrpm-json")
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == [Delivery("ann", expected, "1")]
    hub.leave("ann", 0.0)
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == []


def test_unrepresentable_element_ends_its_call() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m")
    hub.handle("ann", Call("c", "m", stream=True), 0.0)
    (delivery,) = hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 0.0)
    assert isinstance(delivery, Delivery)
    failure = Failure("c", Reason.RAISED, "the answer cannot be written in lrpm-json")
    expected = [Delivery("cleo", Cancel("1"), "1"), Delivery("ann", failure, "1")]
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == expected
    assert hub.handle("cleo", Result("1", None, stream=True), 0.0) == []


def test_late_undelivered_result_does_not_end_new_call_with_same_id() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_call(hub)
    (delivery,) = hub.handle("bob", Result("1", Value(1)), 0.0)
    assert isinstance(delivery, Delivery)
    send_call(hub)
    hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0)
    assert hub.open_calls() == 1


def test_other_unrepresentable_messages_are_only_counted() -> None:
    hub = hub_with_peers()
    delivery = Delivery("ann", Failure("c", Reason.LOST))
    assert hub.handle_undelivered(delivery, LocalProtocolError("never"), 0.0) == []
    assert hub.stats()["undelivered"] == 1
