"""Requests of peers that were promised an answer: whoever comes and goes, each is answered, and answered once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from fiveways.errors import Reason, TooLarge
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.settings import HubSettings, Permissions
from fiveways.hub.stored_messages import decode_call, encode_call, encode_failure, encode_result
from fiveways.model.messages import (
    Accepted,
    Acknowledged,
    Call,
    Cancel,
    Failure,
    Part,
    Progress,
    Register,
    Result,
    Unregister,
)
from fiveways.model.store_changes import DropPeer, PutAnswer, PutPeer, PutRequest, PutTombstone
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Cbor, Json
from tests.support.hub_helpers import LRPM, NQ, UMQ, held, join, make, offer, ok, refusal

RELIABLE = replace(NQ, is_durable=True)
PEERS = {"nina": RELIABLE, "bob": UMQ, "ann": LRPM, "eve": UMQ, "ned": RELIABLE}
BODY = Json(b'{"user":"alice"}')
TTL = 100.0
KEPT = 50.0
EPOCH = 1_000_000.0


def opened(limits: dict[str, int] | None = None, **settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """A hub at which nina and ned are promised their answers."""
    hub = make(
        limits, is_durable=True, **({"request_ttl": TTL, "answer_ttl": KEPT, "duplicate_window": 10.0} | settings)
    )
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    return without_ops(hub)


def without_ops(hub: Hub) -> Hub:
    """The same hub, but for the names of operations, which have tests of their own at the end."""
    for name in (
        "expire",
        "end_calls",
        "handle",
        "handle_persisted",
        "leave",
        "restore_request",
        "handle_undelivered",
        "handle_not_persisted",
    ):
        setattr(hub, name, partial(_without_ops, getattr(hub, name)))
    return hub


def _without_ops(tell: Callable[..., Deliveries], *about: Any) -> Deliveries:  # noqa: ANN401  whatever a hub is told
    return [_without_op(each) for each in tell(*about)]


def _without_op(each: Any) -> Any:  # noqa: ANN401  whatever a hub returns
    if isinstance(each, Persist):
        return Persist(each.record, [Delivery(then.peer, then.message) for then in each.then], each.call_id)
    return Delivery(each.peer, each.message) if isinstance(each, Delivery) else each


def handled(hub: Hub, peer: str, word: Any, now: float = 0.0) -> Deliveries:  # noqa: ANN401  any word
    """What the hub does, with a store that has requests written at once; but for telling it who is there."""
    done: Deliveries = []
    for each in hub.handle(peer, word, now):
        if isinstance(each, Persist) and isinstance(each.record, PutPeer):
            continue
        done.append(each)
        if isinstance(each, Persist) and isinstance(each.record, PutRequest):
            then = hub.handle_persisted(each, now)
            assert then[: len(each.then)] == each.then
            done += then[len(each.then) :]
    return done


def request(number: int = 1, method: str = "m") -> Call:
    return Call(f"{method}#{number}", method, BODY, method)


def asked(hub: Hub, number: int = 1, now: float = 0.0, method: str = "m") -> Deliveries:
    return handled(hub, "nina", request(number, method), now)


def accepted(number: int = 1, now: float = 0.0, method: str = "m") -> Persist:
    """A request is written down, then accepted."""
    word = request(number, method)
    return Persist(
        PutRequest("nina", word.id, encode_call(word), now + TTL), [Delivery("nina", Accepted(word.id))], word.id
    )


def passed(callee: str, op: str, *, again: bool = False, method: str = "m", spelling: str = "") -> Delivery:
    """A request is given to somebody."""
    return Delivery(callee, Call(op, method, BODY, spelling, progress=True, redelivered=again))


def settled(answer: Result | Failure, now: float = 0.0) -> Deliveries:
    """An answer is written down, then said."""
    written = encode_result(answer) if isinstance(answer, Result) else encode_failure(answer)
    return [Persist(PutAnswer("nina", answer.id, written, now + KEPT), [Delivery("nina", answer)], answer.id)]


def timeout(number: int = 1, now: float = TTL) -> Deliveries:
    return settled(Failure(f"m#{number}", Reason.TIMEOUT), now)


def waiting_hub() -> Hub:
    """A hub with a request for which nobody is there."""
    hub = opened()
    offer(hub, "bob", "m")
    hub.handle("bob", Unregister("u", "m"), 0.0)
    assert asked(hub) == [accepted()]
    return hub


# From request to acknowledgement.


def test_request_is_stored_before_acceptance_and_result_before_delivery() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    assert asked(hub, now=5.0) == [accepted(now=5.0), passed("bob", "1")]
    answer = Result("1", Json(b"12"), extras={"x": NULL})
    told = settled(Result("m#1", Json(b"12"), extras={"x": NULL}), 6.0)
    assert hub.handle("bob", answer, 6.0) == told
    assert hub.handle("nina", Acknowledged("m#1"), 7.0) == [Persist(PutTombstone("nina", "m#1", 17.0), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_finished_request_leaves_no_state() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    before = held(hub)
    for number in range(1, 1001):
        asked(hub, number)
        hub.handle("bob", Result(str(number)), 0.0)
        hub.handle("nina", Acknowledged(f"m#{number}"), 0.0)
    assert held(hub) < before + 300


def test_record_has_whole_request_and_unix_time() -> None:
    hub = Hub(Random(7), Limits(), HubSettings(request_ttl=TTL, answer_ttl=KEPT), EPOCH, is_durable=True)
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    offer(hub, "bob", "m")
    word = Call("m#1", "m", BODY, "M", traceparent="00-1", extras={"k": Json(b"[1]")})
    kept, delivery = handled(hub, "nina", word, 5.0)
    assert isinstance(kept, Persist)
    assert isinstance(kept.record, PutRequest)
    assert decode_call("m#1", kept.record.payload) == word
    assert kept.record.expires_at == EPOCH + 5.0 + TTL
    passed_on = Call("1", "m", BODY, progress=True, traceparent="00-1", extras={"k": Json(b"[1]")})
    assert delivery == Delivery("bob", passed_on, "n1")
    (kept,) = hub.handle("bob", Result("1"), 6.0)
    assert isinstance(kept, Persist)
    assert isinstance(kept.record, PutAnswer)
    assert kept.record.expires_at == EPOCH + 6.0 + KEPT


def test_calls_of_other_protocols_are_not_durable() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    assert hub.handle("ann", Call("c", "m", BODY), 0.0) == [Delivery("bob", Call("1", "m", BODY, timeout=30.0))]
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("ann", Result("c"))]
    assert hub.handle("ann", Acknowledged("c"), 0.0) == []


def test_durable_peer_may_be_callee_of_itself_and_others() -> None:
    hub = opened()
    offer(hub, "nina", "m")
    assert asked(hub) == [accepted(), passed("nina", "1")]
    assert hub.handle("nina", Result("1", BODY), 0.0) == settled(Result("m#1", BODY))
    assert hub.handle("ann", Call("c", "m", BODY), 0.0) == [Delivery("nina", Call("2", "m", BODY, timeout=30.0))]
    assert hub.handle("nina", Result("2"), 0.0) == [Delivery("ann", Result("c"))]


def test_progress_is_forwarded_and_not_stored() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    told = Progress("m#1", Json(b"50"), "note", "half", "half of it", ("1",))
    assert hub.handle("bob", replace_id(told, "1"), 1.0) == [Delivery("nina", told)]


def replace_id(word: Progress, word_id: str) -> Progress:
    return Progress(word_id, word.body, word.kind, word.code, word.text, word.args)


# Whose callee comes and goes.


def test_request_of_lost_callee_is_redelivered() -> None:
    hub = opened()
    for callee in ("bob", "eve", "ann"):
        offer(hub, callee, "m", share="first")
    assert asked(hub) == [accepted(), passed("bob", "1")]
    assert hub.leave("bob", 1.0) == [passed("eve", "2", again=True)]
    assert hub.handle("bob", Result("1"), 1.0) == []
    assert hub.handle("eve", Result("1"), 1.0) == []
    assert hub.leave("eve", 2.0) == [passed("ann", "3", again=True)]
    assert hub.handle("ann", Result("3", BODY), 3.0) == settled(Result("m#1", BODY), 3.0)
    assert hub.open_calls() == 0


@pytest.mark.parametrize("callee", ["bob", "ned"])
def test_waiting_request_goes_to_first_callee_that_registers(callee: str) -> None:
    hub = opened()
    offer(hub, "ann", "m")
    asked(hub)
    assert hub.leave("ann", 1.0) == []
    assert asked(hub, 2, 1.0) == [accepted(2, 1.0)]
    assert hub.open_calls() == 0
    assert hub.handle(callee, Register("r", "other"), 2.0) == ok(callee, "r")
    assert hub.handle(callee, Register("r", "m.n"), 2.0) == ok(callee, "r")
    assert hub.handle(callee, Register("r", "m"), 2.0) == [
        *ok(callee, "r"),
        passed(callee, "2", again=True),
        passed(callee, "3"),
    ]
    assert hub.handle(callee, Register("r", "m"), 2.0) == ok(callee, "r")


def test_waiting_request_goes_to_new_route() -> None:
    hub = opened()
    offer(hub, "bob", "shop", "Shop:", route=True)
    assert asked(hub, method="shop.buy_now") == [
        accepted(method="shop.buy_now"),
        passed("bob", "1", method="buy_now", spelling="buy_now"),
    ]
    assert hub.leave("bob", 1.0) == []
    assert hub.handle("eve", Register("r", "sho", "Sho:", route=True), 2.0) == ok("eve", "r")
    assert hub.handle("eve", Register("r", "shop", "Shop:", route=True), 2.0) == [
        *ok("eve", "r"),
        passed("eve", "2", again=True, method="buy_now", spelling="buy_now"),
    ]
    assert hub.handle("eve", Result("2"), 3.0) == settled(Result("shop.buy_now#1"), 3.0)


def test_request_that_waits_for_route_goes_to_callee_of_exact_name() -> None:
    hub = opened()
    offer(hub, "bob", "shop", route=True)
    asked(hub, method="shop.buy")
    hub.leave("bob", 1.0)
    assert hub.handle("ann", Register("r", "shop.buy", "shop.buy"), 2.0) == [
        *ok("ann", "r"),
        passed("ann", "2", again=True, method="shop.buy", spelling="shop.buy"),
    ]


def test_callee_may_answer_after_unregistering() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    assert hub.handle("bob", Unregister("u", "m"), 0.0) == ok("bob", "u")
    assert hub.handle("bob", Result("1"), 1.0) == settled(Result("m#1"), 1.0)


@pytest.mark.parametrize("reason", [Reason.OVERLOADED, Reason.UNAVAILABLE, Reason.LOST])
def test_refused_request_is_retried_after_growing_delay(reason: Reason) -> None:
    hub = opened(request_ttl=1000.0)
    offer(hub, "bob", "m")
    asked(hub)
    now, tried = 0.0, [0.0]
    for number in range(1, 12):
        assert hub.handle("bob", Failure(str(number), reason, "not now"), now) == []
        at = hub.deadline()
        assert at is not None
        assert hub.expire(at - 0.01) == []
        assert hub.expire(at) == [passed("bob", str(number + 1), again=True)]
        tried.append(now := at)
    waits = [later - sooner for sooner, later in pairwise(tried)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert hub.handle("bob", Result("12"), now) == settled(Result("m#1"), now)
    assert hub.deadline() is None


def test_new_callee_gets_refused_request_at_once() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    hub.handle("bob", Failure("1", Reason.OVERLOADED), 0.0)
    hub.leave("bob", 0.1)
    assert hub.handle("eve", Register("r", "m"), 0.2) == [*ok("eve", "r"), passed("eve", "2", again=True)]
    assert hub.expire(0.5) == []


def test_request_waits_for_callees_at_their_limit() -> None:
    hub = opened(max_given=2)
    offer(hub, "bob", "m")
    assert [len(asked(hub, number)) for number in (1, 2, 3)] == [2, 2, 1]
    given = [*hub.handle("bob", Result("1"), 0.1), *hub.expire(0.5)]
    assert given == [*settled(Result("m#1"), 0.1), passed("bob", "3")]
    assert hub.handle("bob", Result("3"), 0.6) == settled(Result("m#3"), 0.6)


def test_new_callee_gets_requests_that_wait_for_busy_ones() -> None:
    hub = opened(max_given=1)
    offer(hub, "bob", "m")
    assert [len(asked(hub, number)) for number in (1, 2, 3)] == [2, 1, 1]
    assert hub.handle("eve", Register("r", "m"), 0.1) == [*ok("eve", "r"), passed("eve", "2")]
    assert hub.handle("bob", Result("1"), 0.2) == [*settled(Result("m#1"), 0.2), passed("bob", "3")]


@pytest.mark.parametrize("route", [False, True])
def test_callee_with_room_again_is_found_by_retry(route: bool) -> None:
    hub = opened(max_given=1)
    offer(hub, "bob", "m", route=route)
    method = "m.n" if route else "m"
    hub.handle("ann", Call("c", method, BODY), 0.0)
    assert [len(asked(hub, number, method=method)) for number in (1, 2, 3)] == [1, 1, 1]
    assert hub.expire(0.5) == []
    assert hub.handle("bob", Result("1"), 0.6) == [Delivery("ann", Result("c"))]
    given = hub.expire(1.0)
    told = [(each.peer, each.message) for each in given if isinstance(each, Delivery)]
    assert [(to, word.id) for to, word in told if isinstance(word, Call)] == [("bob", "2")]
    assert len(hub.handle("bob", Result("2"), 1.1)) == 2
    assert hub.handle("nina", Cancel(f"{method}#3"), 1.2)


# Ends without an answer.


def test_expired_request_fails_and_its_failure_is_stored() -> None:
    hub = waiting_hub()
    assert hub.deadline() == TTL
    assert hub.expire(TTL - 0.1) == []
    assert hub.expire(TTL) == timeout()
    assert hub.handle("bob", Register("r", "m"), TTL) == ok("bob", "r")
    assert (hub.deadline(), hub.stats()["failures"]) == (None, {"timeout": 1})


def test_silent_callee_gets_cancellation_at_expiry() -> None:
    hub = opened()
    offer(hub, "ann", "m")
    asked(hub)
    assert hub.expire(TTL - 0.1) == []
    assert hub.expire(TTL) == [Delivery("ann", Cancel("1")), *timeout()]
    assert hub.handle("ann", Result("1"), TTL) == []


def test_redelivery_does_not_extend_expiry() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    hub.leave("bob", 60.0)
    hub.handle("eve", Register("r", "m"), 70.0)
    assert hub.deadline() == TTL
    assert hub.expire(TTL) == [Delivery("eve", Cancel("2")), *timeout()]


def test_request_refused_until_expiry_times_out() -> None:
    hub = opened(request_ttl=1.2)
    offer(hub, "bob", "m")
    assert asked(hub)
    hub.handle("bob", Failure("1", Reason.OVERLOADED, "busy"), 0.0)
    hub.expire(0.5)
    hub.handle("bob", Failure("2", Reason.OVERLOADED, "busy"), 0.5)
    assert hub.expire(1.2) == timeout(now=1.2)
    assert hub.deadline() is None


def test_call_timeout_does_not_apply_to_durable_request() -> None:
    hub = opened(call_timeout=1.0, max_timeout=2.0)
    offer(hub, "bob", "m")
    handled(hub, "nina", Call("m#1", "m", BODY, "m", timeout=0.5))
    assert hub.expire(50.0) == []
    assert hub.handle("bob", Result("1"), 60.0) == settled(Result("m#1"), 60.0)


def test_cancelled_waiting_request_is_not_dispatched() -> None:
    hub = waiting_hub()
    assert hub.handle("ned", Cancel("m#1"), 1.0) == []
    assert hub.handle("nina", Cancel("m#1"), 1.0) == settled(Failure("m#1", Reason.CANCELLED), 1.0)
    assert hub.handle("nina", Cancel("m#1"), 1.0) == []
    assert hub.handle("bob", Register("r", "m"), 2.0) == ok("bob", "r")
    assert hub.deadline() is None


def test_cancellation_of_running_request_reaches_callee() -> None:
    hub = opened()
    offer(hub, "ann", "m")
    offer(hub, "bob", "m")
    asked(hub)
    told = settled(Failure("m#1", Reason.CANCELLED), 1.0)
    assert hub.handle("nina", Cancel("m#1"), 1.0) == [Delivery("ann", Cancel("1")), *told]
    assert hub.handle("ann", Failure("1", Reason.CANCELLED), 1.0) == []
    assert hub.leave("ann", 2.0) == []
    assert (hub.open_calls(), hub.deadline()) == (0, None)


@pytest.mark.parametrize(
    "reason", [Reason.RAISED, Reason.BAD_ARGUMENTS, Reason.DENIED, Reason.TOO_LARGE, Reason.CANCELLED]
)
def test_failure_of_method_is_final_and_stored_with_all_fields(reason: Reason) -> None:
    hub = opened()
    offer(hub, "bob", "m")
    offer(hub, "eve", "m")
    asked(hub)
    failure = Failure("1", reason, "no", Json(b'{"why":1}'), 2.5, "app.err.no", 17)
    told = Failure("m#1", reason, "no", Json(b'{"why":1}'), 2.5, "app.err.no", 17)
    assert hub.handle("bob", failure, 1.0) == settled(told, 1.0)
    assert hub.leave("bob", 2.0) == []
    assert hub.stats()["failures"] == {reason.value: 1}


def test_request_unrepresentable_for_callee_fails() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    _, delivery = asked(hub)
    assert isinstance(delivery, Delivery)
    told = settled(Failure("m#1", Reason.TOO_LARGE, "it is too large"))
    assert hub.handle_undelivered(delivery, TooLarge("it is too large"), 0.0) == told


def test_unstorable_result_is_failure_of_run_method() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    (kept,) = hub.handle("bob", Result("1", Cbor(b"\xa2\x01\x02\x01\x03")), 1.0)
    assert isinstance(kept, Persist)
    (delivery,) = kept.then
    assert isinstance(delivery.message, Failure)
    assert (delivery.message.id, delivery.message.reason) == ("m#1", Reason.RAISED)


# What is refused before it is accepted.


def test_request_for_unknown_method_is_refused() -> None:
    hub = opened()
    offer(hub, "bob", "shop", route=True)
    for name in ("m", "shop", "shopping.list"):
        told = ("nina", f"{name}#1", Reason.NO_SUCH_METHOD, f"there is no method {name}")
        assert refusal(asked(hub, method=name)) == told
    assert hub.deadline() is None


def test_request_without_permission_is_refused() -> None:
    hub = opened(anonymous_permissions=Permissions(call=("shop.*",)))
    offer(hub, "bob", "m")
    assert refusal(asked(hub))[1:3] == ("m#1", Reason.DENIED)
    assert (hub.deadline(), hub.open_calls()) == (None, 0)


def test_durable_requests_are_limited() -> None:
    hub = opened(max_owed=3, share=1.0)
    offer(hub, "bob", "m")
    hub.handle("bob", Unregister("u", "m"), 0.0)
    assert [asked(hub, number) for number in (1, 2)] == [[accepted(1)], [accepted(2)]]
    text = "m has no available callee, and too many requests wait: the limit of 2 for the whole hub is reached"
    told = ("nina", "m#3", Reason.OVERLOADED, text)
    assert refusal(asked(hub, 3)) == told
    hub.handle("nina", Cancel("m#1"), 0.0)
    assert asked(hub, 3) == [accepted(3)]


def test_draining_hub_refuses_new_requests_and_finishes_others() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    assert hub.drain(1.0) == []
    assert refusal(asked(hub, 2, 1.0)) == ("nina", "m#2", Reason.UNAVAILABLE, "the hub is closing")
    assert handled(hub, "nina", Call("e#1", "hub.echo", BODY), 1.0) == ok("nina", "e#1", BODY)
    assert hub.handle("bob", Result("1"), 2.0) == settled(Result("m#1"), 2.0)
    assert hub.handle("nina", Acknowledged("m#1"), 3.0) == [Persist(PutTombstone("nina", "m#1", 13.0), [])]


# The plain way.


def test_built_in_methods_are_answered_at_once() -> None:
    hub = opened()
    assert hub.handle("nina", Call("e#1", "hub.echo", BODY), 0.0) == ok("nina", "e#1", BODY)


def test_request_with_attachments_is_not_durable() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    (delivery,) = hub.handle("nina", Call("m#1", "m", BODY, attachments=("a",)), 0.0)
    assert isinstance(delivery, Delivery)
    assert delivery.peer == "bob"
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("nina", Result("m#1"))]


def test_streamed_request_is_not_durable() -> None:
    hub = opened()
    offer(hub, "ned", "m")
    call = Call("1", "m", BODY, timeout=30.0, more=True)
    assert hub.handle("nina", Call("m#1", "m", BODY, more=True), 0.0) == [Delivery("ned", call)]
    assert hub.handle("nina", Part("m#1", NULL, last=True), 0.0) == [Delivery("ned", Part("1", NULL, last=True))]
    assert hub.handle("nina", Cancel("m#1"), 0.0) == [
        Delivery("ned", Cancel("1")),
        Delivery("nina", Failure("m#1", Reason.CANCELLED)),
    ]


def test_callback_call_is_not_durable() -> None:
    hub = opened()
    (delivery,) = hub.handle("bob", Call("k", "hub.callback", Json(b'{"id":"c0"}')), 0.0)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Result)
    assert delivery.message.body is not None
    token = str(delivery.message.body.value())
    (delivery,) = hub.handle("nina", Call("c#1", token, BODY, callback=True), 0.0)
    assert isinstance(delivery, Delivery)
    assert delivery.peer == "bob"


def test_parts_of_result_are_forwarded_as_they_come() -> None:
    hub = opened()
    offer(hub, "ned", "m", kind="server")
    stream = Call("1", "m", BODY, stream=True, progress=True)
    assert asked(hub) == [accepted(), Delivery("ned", stream)]
    for part in (Result("1", BODY, stream=True, last=False), Result("1", None, stream=True)):
        told = Result("m#1", part.body, stream=True, last=part.last)
        assert hub.handle("ned", part, 1.0) == [Delivery("nina", told)]
    assert hub.handle("ned", Result("1", BODY, stream=True), 1.0) == []
    assert hub.handle("nina", Acknowledged("m#1"), 2.0) == [Persist(PutTombstone("nina", "m#1", 12.0), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


# Callers that go.


def test_departed_caller_leaves_no_state() -> None:
    hub = opened()
    offer(hub, "ann", "m")
    offer(hub, "bob", "n")
    hub.handle("bob", Unregister("u", "n"), 0.0)
    asked(hub, 1)
    asked(hub, 2, method="n")
    handled(hub, "ned", Call("m#1", "m", BODY))
    assert hub.leave("nina", 1.0) == [Persist(DropPeer("nina"), []), Delivery("ann", Cancel("1"))]
    assert hub.handle("ann", Result("1"), 1.0) == []
    assert hub.handle("bob", Register("r", "n"), 1.0) == ok("bob", "r")
    assert hub.handle("bob", Unregister("u", "n"), 1.0) == ok("bob", "u")
    (kept,) = hub.handle("ann", Result("2"), 1.0)
    assert isinstance(kept, Persist)
    assert isinstance(kept.record, PutAnswer)
    assert (kept.record.peer, kept.record.key) == ("ned", "m#1")
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_departed_peer_that_called_itself_leaves_no_state() -> None:
    hub = opened()
    offer(hub, "nina", "m")
    asked(hub)
    assert hub.leave("nina", 1.0) == [Persist(DropPeer("nina"), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_peers_may_use_the_same_request_ids() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    asked(hub)
    handled(hub, "ned", request())
    (kept,) = hub.handle("bob", Result("2", Json(b"2")), 0.0)
    assert isinstance(kept, Persist)
    assert kept.then == [Delivery("ned", Result("m#1", Json(b"2")))]
    assert hub.handle("nina", Cancel("m#1"), 0.0)[-1:] == settled(Failure("m#1", Reason.CANCELLED))


def test_all_deliveries_of_a_request_have_one_operation() -> None:
    hub = make(is_durable=False)
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    offer(hub, "bob", "m")
    accepted_, given_ = hub.handle("nina", Call("m#1", "m", BODY), 0.0)
    assert [accepted_, given_.message] == [Delivery("nina", Accepted("m#1"), "n1"), given_.message]  # type: ignore[union-attr]
    nina, ann = hub.find_session("nina"), hub.find_session("ann")
    assert nina is not None
    assert ann is not None
    assert nina.op == "n1"
    assert given_.op == "n1"  # type: ignore[union-attr]
    hub.leave("bob", 1.0)
    hub.handle("ann", Register("r", "m"), 2.0)
    told = hub.handle("ann", Result("2"), 3.0)
    assert told == [Delivery("nina", Result("m#1"), "n1")]
    assert ann.op == "n1"
