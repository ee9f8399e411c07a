"""Durable requests: each one is answered exactly once while callees and callers come and go."""

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
from tests.support.hub_helpers import LRPM, NQ, UMQ, count_objects, join, make_hub, refusal, register_method, success

DURABLE_NQ = replace(NQ, is_durable=True)
PEERS = {"nina": DURABLE_NQ, "bob": UMQ, "ann": LRPM, "eve": UMQ, "ned": DURABLE_NQ}
BODY = Json(b'{"user":"alice"}')
TTL = 100.0
ANSWER_TTL = 50.0
EPOCH = 1_000_000.0


def hub_with_peers(limits: dict[str, int] | None = None, **settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub with sessions; those of nina and ned have durable requests."""
    hub = make_hub(
        limits, is_durable=True, **({"request_ttl": TTL, "answer_ttl": ANSWER_TTL, "duplicate_window": 10.0} | settings)
    )
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    return without_ops(hub)


def without_ops(hub: Hub) -> Hub:
    """Return the hub with deliveries stripped of operation names, which have tests of their own at the end."""
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


def _without_ops(method: Callable[..., Deliveries], *arguments: Any) -> Deliveries:  # noqa: ANN401  arguments of any method of a hub
    return [_without_op(output) for output in method(*arguments)]


def _without_op(output: Any) -> Any:  # noqa: ANN401  any output of a hub
    if isinstance(output, Persist):
        return Persist(output.record, [Delivery(then.peer, then.message) for then in output.then], output.call_id)
    return Delivery(output.peer, output.message) if isinstance(output, Delivery) else output


def handle_with_store(hub: Hub, peer: str, message: Any, now: float = 0.0) -> Deliveries:  # noqa: ANN401  any message
    """Return the output of a hub with a store that writes requests at once, without the records of peers."""
    deliveries: Deliveries = []
    for delivery in hub.handle(peer, message, now):
        if isinstance(delivery, Persist) and isinstance(delivery.record, PutPeer):
            continue
        deliveries.append(delivery)
        if isinstance(delivery, Persist) and isinstance(delivery.record, PutRequest):
            then = hub.handle_persisted(delivery, now)
            assert then[: len(delivery.then)] == delivery.then
            deliveries += then[len(delivery.then) :]
    return deliveries


def request(number: int = 1, method: str = "m") -> Call:
    return Call(f"{method}#{number}", method, BODY, method)


def send_request(hub: Hub, number: int = 1, now: float = 0.0, method: str = "m") -> Deliveries:
    return handle_with_store(hub, "nina", request(number, method), now)


def acceptance(number: int = 1, now: float = 0.0, method: str = "m") -> Persist:
    """Return the record of a request with its acceptance."""
    message = request(number, method)
    return Persist(
        PutRequest("nina", message.id, encode_call(message), now + TTL),
        [Delivery("nina", Accepted(message.id))],
        message.id,
    )


def forwarded_request(
    callee: str, op: str, *, is_redelivery: bool = False, method: str = "m", spelling: str = ""
) -> Delivery:
    """Return the delivery of a request to a callee."""
    return Delivery(callee, Call(op, method, BODY, spelling, progress=True, redelivered=is_redelivery))


def stored_answer(answer: Result | Failure, now: float = 0.0) -> Deliveries:
    """Return the record of an answer with its delivery."""
    encoded = encode_result(answer) if isinstance(answer, Result) else encode_failure(answer)
    return [Persist(PutAnswer("nina", answer.id, encoded, now + ANSWER_TTL), [Delivery("nina", answer)], answer.id)]


def stored_timeout(number: int = 1, now: float = TTL) -> Deliveries:
    return stored_answer(Failure(f"m#{number}", Reason.TIMEOUT), now)


def hub_with_waiting_request() -> Hub:
    """Return a hub with a waiting request without a callee."""
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("bob", Unregister("u", "m"), 0.0)
    assert send_request(hub) == [acceptance()]
    return hub


# From request to acknowledgement.


def test_request_is_stored_before_acceptance_and_result_before_delivery() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    assert send_request(hub, now=5.0) == [acceptance(now=5.0), forwarded_request("bob", "1")]
    answer = Result("1", Json(b"12"), extras={"x": NULL})
    expected = stored_answer(Result("m#1", Json(b"12"), extras={"x": NULL}), 6.0)
    assert hub.handle("bob", answer, 6.0) == expected
    assert hub.handle("nina", Acknowledged("m#1"), 7.0) == [Persist(PutTombstone("nina", "m#1", 17.0), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_finished_request_leaves_no_state() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    before = count_objects(hub)
    for number in range(1, 1001):
        send_request(hub, number)
        hub.handle("bob", Result(str(number)), 0.0)
        hub.handle("nina", Acknowledged(f"m#{number}"), 0.0)
    assert count_objects(hub) < before + 300


def test_record_has_whole_request_and_unix_time() -> None:
    hub = Hub(Random(7), Limits(), HubSettings(request_ttl=TTL, answer_ttl=ANSWER_TTL), EPOCH, is_durable=True)
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    register_method(hub, "bob", "m")
    message = Call("m#1", "m", BODY, "M", traceparent="00-1", extras={"k": Json(b"[1]")})
    persist, delivery = handle_with_store(hub, "nina", message, 5.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutRequest)
    assert decode_call("m#1", persist.record.payload) == message
    assert persist.record.expires_at == EPOCH + 5.0 + TTL
    passed_on = Call("1", "m", BODY, progress=True, traceparent="00-1", extras={"k": Json(b"[1]")})
    assert delivery == Delivery("bob", passed_on, "n1")
    (persist,) = hub.handle("bob", Result("1"), 6.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutAnswer)
    assert persist.record.expires_at == EPOCH + 6.0 + ANSWER_TTL


def test_calls_of_other_protocols_are_not_durable() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    assert hub.handle("ann", Call("c", "m", BODY), 0.0) == [Delivery("bob", Call("1", "m", BODY, timeout=30.0))]
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("ann", Result("c"))]
    assert hub.handle("ann", Acknowledged("c"), 0.0) == []


def test_durable_peer_may_be_callee_of_itself_and_others() -> None:
    hub = hub_with_peers()
    register_method(hub, "nina", "m")
    assert send_request(hub) == [acceptance(), forwarded_request("nina", "1")]
    assert hub.handle("nina", Result("1", BODY), 0.0) == stored_answer(Result("m#1", BODY))
    assert hub.handle("ann", Call("c", "m", BODY), 0.0) == [Delivery("nina", Call("2", "m", BODY, timeout=30.0))]
    assert hub.handle("nina", Result("2"), 0.0) == [Delivery("ann", Result("c"))]


def test_progress_is_forwarded_and_not_stored() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    expected = Progress("m#1", Json(b"50"), "note", "half", "half of it", ("1",))
    assert hub.handle("bob", with_id(expected, "1"), 1.0) == [Delivery("nina", expected)]


def with_id(message: Progress, message_id: str) -> Progress:
    return Progress(message_id, message.body, message.kind, message.code, message.text, message.args)


# Changes of callees.


def test_request_of_lost_callee_is_redelivered() -> None:
    hub = hub_with_peers()
    for callee in ("bob", "eve", "ann"):
        register_method(hub, callee, "m", share="first")
    assert send_request(hub) == [acceptance(), forwarded_request("bob", "1")]
    assert hub.leave("bob", 1.0) == [forwarded_request("eve", "2", is_redelivery=True)]
    assert hub.handle("bob", Result("1"), 1.0) == []
    assert hub.handle("eve", Result("1"), 1.0) == []
    assert hub.leave("eve", 2.0) == [forwarded_request("ann", "3", is_redelivery=True)]
    assert hub.handle("ann", Result("3", BODY), 3.0) == stored_answer(Result("m#1", BODY), 3.0)
    assert hub.open_calls() == 0


@pytest.mark.parametrize("callee", ["bob", "ned"])
def test_waiting_request_goes_to_first_callee_that_registers(callee: str) -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "m")
    send_request(hub)
    assert hub.leave("ann", 1.0) == []
    assert send_request(hub, 2, 1.0) == [acceptance(2, 1.0)]
    assert hub.open_calls() == 0
    assert hub.handle(callee, Register("r", "other"), 2.0) == success(callee, "r")
    assert hub.handle(callee, Register("r", "m.n"), 2.0) == success(callee, "r")
    assert hub.handle(callee, Register("r", "m"), 2.0) == [
        *success(callee, "r"),
        forwarded_request(callee, "2", is_redelivery=True),
        forwarded_request(callee, "3"),
    ]
    assert hub.handle(callee, Register("r", "m"), 2.0) == success(callee, "r")


def test_waiting_request_goes_to_new_route() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "shop", "Shop:", route=True)
    assert send_request(hub, method="shop.buy_now") == [
        acceptance(method="shop.buy_now"),
        forwarded_request("bob", "1", method="buy_now", spelling="buy_now"),
    ]
    assert hub.leave("bob", 1.0) == []
    assert hub.handle("eve", Register("r", "sho", "Sho:", route=True), 2.0) == success("eve", "r")
    assert hub.handle("eve", Register("r", "shop", "Shop:", route=True), 2.0) == [
        *success("eve", "r"),
        forwarded_request("eve", "2", is_redelivery=True, method="buy_now", spelling="buy_now"),
    ]
    assert hub.handle("eve", Result("2"), 3.0) == stored_answer(Result("shop.buy_now#1"), 3.0)


def test_request_that_waits_for_route_goes_to_callee_of_exact_name() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "shop", route=True)
    send_request(hub, method="shop.buy")
    hub.leave("bob", 1.0)
    assert hub.handle("ann", Register("r", "shop.buy", "shop.buy"), 2.0) == [
        *success("ann", "r"),
        forwarded_request("ann", "2", is_redelivery=True, method="shop.buy", spelling="shop.buy"),
    ]


def test_callee_may_answer_after_unregistering() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    assert hub.handle("bob", Unregister("u", "m"), 0.0) == success("bob", "u")
    assert hub.handle("bob", Result("1"), 1.0) == stored_answer(Result("m#1"), 1.0)


@pytest.mark.parametrize("reason", [Reason.OVERLOADED, Reason.UNAVAILABLE, Reason.LOST])
def test_refused_request_is_retried_after_growing_delay(reason: Reason) -> None:
    hub = hub_with_peers(request_ttl=1000.0)
    register_method(hub, "bob", "m")
    send_request(hub)
    now, tries_at = 0.0, [0.0]
    for number in range(1, 12):
        assert hub.handle("bob", Failure(str(number), reason, "not now"), now) == []
        at = hub.deadline()
        assert at is not None
        assert hub.expire(at - 0.01) == []
        assert hub.expire(at) == [forwarded_request("bob", str(number + 1), is_redelivery=True)]
        tries_at.append(now := at)
    waits = [second - first for first, second in pairwise(tries_at)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert hub.handle("bob", Result("12"), now) == stored_answer(Result("m#1"), now)
    assert hub.deadline() is None


def test_new_callee_gets_refused_request_at_once() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    hub.handle("bob", Failure("1", Reason.OVERLOADED), 0.0)
    hub.leave("bob", 0.1)
    assert hub.handle("eve", Register("r", "m"), 0.2) == [
        *success("eve", "r"),
        forwarded_request("eve", "2", is_redelivery=True),
    ]
    assert hub.expire(0.5) == []


def test_request_waits_for_callees_at_their_limit() -> None:
    hub = hub_with_peers(max_given=2)
    register_method(hub, "bob", "m")
    assert [len(send_request(hub, number)) for number in (1, 2, 3)] == [2, 2, 1]
    deliveries = [*hub.handle("bob", Result("1"), 0.1), *hub.expire(0.5)]
    assert deliveries == [*stored_answer(Result("m#1"), 0.1), forwarded_request("bob", "3")]
    assert hub.handle("bob", Result("3"), 0.6) == stored_answer(Result("m#3"), 0.6)


def test_new_callee_gets_requests_that_wait_for_busy_ones() -> None:
    hub = hub_with_peers(max_given=1)
    register_method(hub, "bob", "m")
    assert [len(send_request(hub, number)) for number in (1, 2, 3)] == [2, 1, 1]
    assert hub.handle("eve", Register("r", "m"), 0.1) == [*success("eve", "r"), forwarded_request("eve", "2")]
    assert hub.handle("bob", Result("1"), 0.2) == [*stored_answer(Result("m#1"), 0.2), forwarded_request("bob", "3")]


@pytest.mark.parametrize("route", [False, True])
def test_callee_with_room_again_is_found_by_retry(route: bool) -> None:
    hub = hub_with_peers(max_given=1)
    register_method(hub, "bob", "m", route=route)
    method = "m.n" if route else "m"
    hub.handle("ann", Call("c", method, BODY), 0.0)
    assert [len(send_request(hub, number, method=method)) for number in (1, 2, 3)] == [1, 1, 1]
    assert hub.expire(0.5) == []
    assert hub.handle("bob", Result("1"), 0.6) == [Delivery("ann", Result("c"))]
    deliveries = hub.expire(1.0)
    results = [(delivery.peer, delivery.message) for delivery in deliveries if isinstance(delivery, Delivery)]
    assert [(to, message.id) for to, message in results if isinstance(message, Call)] == [("bob", "2")]
    assert len(hub.handle("bob", Result("2"), 1.1)) == 2
    assert hub.handle("nina", Cancel(f"{method}#3"), 1.2)


# Ends without a result.


def test_expired_request_fails_and_its_failure_is_stored() -> None:
    hub = hub_with_waiting_request()
    assert hub.deadline() == TTL
    assert hub.expire(TTL - 0.1) == []
    assert hub.expire(TTL) == stored_timeout()
    assert hub.handle("bob", Register("r", "m"), TTL) == success("bob", "r")
    assert (hub.deadline(), hub.stats()["failures"]) == (None, {"timeout": 1})


def test_silent_callee_gets_cancellation_at_expiry() -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "m")
    send_request(hub)
    assert hub.expire(TTL - 0.1) == []
    assert hub.expire(TTL) == [Delivery("ann", Cancel("1")), *stored_timeout()]
    assert hub.handle("ann", Result("1"), TTL) == []


def test_redelivery_does_not_extend_expiry() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    hub.leave("bob", 60.0)
    hub.handle("eve", Register("r", "m"), 70.0)
    assert hub.deadline() == TTL
    assert hub.expire(TTL) == [Delivery("eve", Cancel("2")), *stored_timeout()]


def test_request_refused_until_expiry_times_out() -> None:
    hub = hub_with_peers(request_ttl=1.2)
    register_method(hub, "bob", "m")
    assert send_request(hub)
    hub.handle("bob", Failure("1", Reason.OVERLOADED, "busy"), 0.0)
    hub.expire(0.5)
    hub.handle("bob", Failure("2", Reason.OVERLOADED, "busy"), 0.5)
    assert hub.expire(1.2) == stored_timeout(now=1.2)
    assert hub.deadline() is None


def test_call_timeout_does_not_apply_to_durable_request() -> None:
    hub = hub_with_peers(call_timeout=1.0, max_timeout=2.0)
    register_method(hub, "bob", "m")
    handle_with_store(hub, "nina", Call("m#1", "m", BODY, "m", timeout=0.5))
    assert hub.expire(50.0) == []
    assert hub.handle("bob", Result("1"), 60.0) == stored_answer(Result("m#1"), 60.0)


def test_cancelled_waiting_request_is_not_dispatched() -> None:
    hub = hub_with_waiting_request()
    assert hub.handle("ned", Cancel("m#1"), 1.0) == []
    assert hub.handle("nina", Cancel("m#1"), 1.0) == stored_answer(Failure("m#1", Reason.CANCELLED), 1.0)
    assert hub.handle("nina", Cancel("m#1"), 1.0) == []
    assert hub.handle("bob", Register("r", "m"), 2.0) == success("bob", "r")
    assert hub.deadline() is None


def test_cancellation_of_running_request_reaches_callee() -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "m")
    register_method(hub, "bob", "m")
    send_request(hub)
    expected = stored_answer(Failure("m#1", Reason.CANCELLED), 1.0)
    assert hub.handle("nina", Cancel("m#1"), 1.0) == [Delivery("ann", Cancel("1")), *expected]
    assert hub.handle("ann", Failure("1", Reason.CANCELLED), 1.0) == []
    assert hub.leave("ann", 2.0) == []
    assert (hub.open_calls(), hub.deadline()) == (0, None)


@pytest.mark.parametrize(
    "reason", [Reason.RAISED, Reason.BAD_ARGUMENTS, Reason.DENIED, Reason.TOO_LARGE, Reason.CANCELLED]
)
def test_failure_of_method_is_final_and_stored_with_all_fields(reason: Reason) -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    register_method(hub, "eve", "m")
    send_request(hub)
    failure = Failure("1", reason, "no", Json(b'{"why":1}'), 2.5, "app.err.no", 17)
    expected = Failure("m#1", reason, "no", Json(b'{"why":1}'), 2.5, "app.err.no", 17)
    assert hub.handle("bob", failure, 1.0) == stored_answer(expected, 1.0)
    assert hub.leave("bob", 2.0) == []
    assert hub.stats()["failures"] == {reason.value: 1}


def test_request_unrepresentable_for_callee_fails() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    _, delivery = send_request(hub)
    assert isinstance(delivery, Delivery)
    expected = stored_answer(Failure("m#1", Reason.TOO_LARGE, "it is too large"))
    assert hub.handle_undelivered(delivery, TooLarge("it is too large"), 0.0) == expected


def test_unstorable_result_is_failure_of_run_method() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    (persist,) = hub.handle("bob", Result("1", Cbor(b"\xa2\x01\x02\x01\x03")), 1.0)
    assert isinstance(persist, Persist)
    (delivery,) = persist.then
    assert isinstance(delivery.message, Failure)
    assert (delivery.message.id, delivery.message.reason) == ("m#1", Reason.RAISED)


# Refusals before acceptance.


def test_request_for_unknown_method_is_refused() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "shop", route=True)
    for name in ("m", "shop", "shopping.list"):
        expected = ("nina", f"{name}#1", Reason.NO_SUCH_METHOD, f"there is no method {name}")
        assert refusal(send_request(hub, method=name)) == expected
    assert hub.deadline() is None


def test_request_without_permission_is_refused() -> None:
    hub = hub_with_peers(anonymous_permissions=Permissions(call=("shop.*",)))
    register_method(hub, "bob", "m")
    assert refusal(send_request(hub))[1:3] == ("m#1", Reason.DENIED)
    assert (hub.deadline(), hub.open_calls()) == (None, 0)


def test_durable_requests_are_limited() -> None:
    hub = hub_with_peers(max_owed=3, share=1.0)
    register_method(hub, "bob", "m")
    hub.handle("bob", Unregister("u", "m"), 0.0)
    assert [send_request(hub, number) for number in (1, 2)] == [[acceptance(1)], [acceptance(2)]]
    text = "m has no available callee, and too many requests wait: the limit of 2 for the whole hub is reached"
    expected = ("nina", "m#3", Reason.OVERLOADED, text)
    assert refusal(send_request(hub, 3)) == expected
    hub.handle("nina", Cancel("m#1"), 0.0)
    assert send_request(hub, 3) == [acceptance(3)]


def test_draining_hub_refuses_new_requests_and_finishes_others() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    assert hub.drain(1.0) == []
    assert refusal(send_request(hub, 2, 1.0)) == ("nina", "m#2", Reason.UNAVAILABLE, "the hub is closing")
    assert handle_with_store(hub, "nina", Call("e#1", "hub.echo", BODY), 1.0) == success("nina", "e#1", BODY)
    assert hub.handle("bob", Result("1"), 2.0) == stored_answer(Result("m#1"), 2.0)
    assert hub.handle("nina", Acknowledged("m#1"), 3.0) == [Persist(PutTombstone("nina", "m#1", 13.0), [])]


# Requests that are not durable.


def test_built_in_methods_are_answered_at_once() -> None:
    hub = hub_with_peers()
    assert hub.handle("nina", Call("e#1", "hub.echo", BODY), 0.0) == success("nina", "e#1", BODY)


def test_request_with_attachments_is_not_durable() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    (delivery,) = hub.handle("nina", Call("m#1", "m", BODY, attachments=("a",)), 0.0)
    assert isinstance(delivery, Delivery)
    assert delivery.peer == "bob"
    assert hub.handle("bob", Result("1"), 0.0) == [Delivery("nina", Result("m#1"))]


def test_streamed_request_is_not_durable() -> None:
    hub = hub_with_peers()
    register_method(hub, "ned", "m")
    call = Call("1", "m", BODY, timeout=30.0, more=True)
    assert hub.handle("nina", Call("m#1", "m", BODY, more=True), 0.0) == [Delivery("ned", call)]
    assert hub.handle("nina", Part("m#1", NULL, last=True), 0.0) == [Delivery("ned", Part("1", NULL, last=True))]
    assert hub.handle("nina", Cancel("m#1"), 0.0) == [
        Delivery("ned", Cancel("1")),
        Delivery("nina", Failure("m#1", Reason.CANCELLED)),
    ]


def test_callback_call_is_not_durable() -> None:
    hub = hub_with_peers()
    (delivery,) = hub.handle("bob", Call("k", "hub.callback", Json(b'{"id":"c0"}')), 0.0)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Result)
    assert delivery.message.body is not None
    token = str(delivery.message.body.value())
    (delivery,) = hub.handle("nina", Call("c#1", token, BODY, callback=True), 0.0)
    assert isinstance(delivery, Delivery)
    assert delivery.peer == "bob"


def test_parts_of_result_are_forwarded_as_they_come() -> None:
    hub = hub_with_peers()
    register_method(hub, "ned", "m", kind="server")
    stream = Call("1", "m", BODY, stream=True, progress=True)
    assert send_request(hub) == [acceptance(), Delivery("ned", stream)]
    for part in (Result("1", BODY, stream=True, last=False), Result("1", None, stream=True)):
        expected = Result("m#1", part.body, stream=True, last=part.last)
        assert hub.handle("ned", part, 1.0) == [Delivery("nina", expected)]
    assert hub.handle("ned", Result("1", BODY, stream=True), 1.0) == []
    assert hub.handle("nina", Acknowledged("m#1"), 2.0) == [Persist(PutTombstone("nina", "m#1", 12.0), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


# Departed callers.


def test_departed_caller_leaves_no_state() -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "m")
    register_method(hub, "bob", "n")
    hub.handle("bob", Unregister("u", "n"), 0.0)
    send_request(hub, 1)
    send_request(hub, 2, method="n")
    handle_with_store(hub, "ned", Call("m#1", "m", BODY))
    assert hub.leave("nina", 1.0) == [Persist(DropPeer("nina"), []), Delivery("ann", Cancel("1"))]
    assert hub.handle("ann", Result("1"), 1.0) == []
    assert hub.handle("bob", Register("r", "n"), 1.0) == success("bob", "r")
    assert hub.handle("bob", Unregister("u", "n"), 1.0) == success("bob", "u")
    (persist,) = hub.handle("ann", Result("2"), 1.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutAnswer)
    assert (persist.record.peer, persist.record.key) == ("ned", "m#1")
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_departed_peer_that_called_itself_leaves_no_state() -> None:
    hub = hub_with_peers()
    register_method(hub, "nina", "m")
    send_request(hub)
    assert hub.leave("nina", 1.0) == [Persist(DropPeer("nina"), [])]
    assert (hub.open_calls(), hub.deadline()) == (0, None)


def test_peers_may_use_the_same_request_ids() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    handle_with_store(hub, "ned", request())
    (persist,) = hub.handle("bob", Result("2", Json(b"2")), 0.0)
    assert isinstance(persist, Persist)
    assert persist.then == [Delivery("ned", Result("m#1", Json(b"2")))]
    assert hub.handle("nina", Cancel("m#1"), 0.0)[-1:] == stored_answer(Failure("m#1", Reason.CANCELLED))


def test_all_deliveries_of_a_request_have_one_operation() -> None:
    hub = make_hub(is_durable=False)
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    register_method(hub, "bob", "m")
    accepted, forwarded = hub.handle("nina", Call("m#1", "m", BODY), 0.0)
    assert [accepted, forwarded.message] == [Delivery("nina", Accepted("m#1"), "n1"), forwarded.message]  # type: ignore[union-attr]
    nina, ann = hub.find_session("nina"), hub.find_session("ann")
    assert nina is not None
    assert ann is not None
    assert nina.op == "n1"
    assert forwarded.op == "n1"  # type: ignore[union-attr]
    hub.leave("bob", 1.0)
    hub.handle("ann", Register("r", "m"), 2.0)
    deliveries = hub.handle("ann", Result("2"), 3.0)
    assert deliveries == [Delivery("nina", Result("m#1"), "n1")]
    assert ann.op == "n1"
