"""Failures of durable requests at critical moments."""

from random import Random

from fiveways.errors import LocalProtocolError, Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Persist
from fiveways.model.messages import Call, Failure, Register, Result
from fiveways.model.store_changes import PutRequest
from fiveways.wire.payload import Cbor
from tests.support.hub_helpers import join, register_method
from tests.unit.hub.test_durable_requests import (
    BODY,
    DURABLE_NQ,
    acceptance,
    forwarded_request,
    handle_with_store,
    hub_with_peers,
    request,
    send_request,
)


def test_undeliverable_request_is_not_redelivered_at_once() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    _, delivery = send_request(hub)
    assert isinstance(delivery, Delivery)
    assert hub.handle_undelivered(delivery, LocalProtocolError("too many requests are open"), 0.0) == []


def test_callee_lost_in_mid_stream_ends_the_stream() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", share="first")
    register_method(hub, "eve", "m", share="first")
    send_request(hub)
    hub.handle("bob", Result("1", BODY, stream=True, last=False), 0.0)
    assert not any(
        isinstance(delivery, Delivery) and isinstance(delivery.message, Call) for delivery in hub.leave("bob", 1.0)
    )


def test_finished_request_is_not_dispatched() -> None:
    hub = hub_with_peers()
    register_method(hub, "ann", "m")
    send_request(hub)
    hub.drain(0.0)
    assert not any(
        isinstance(delivery, Delivery) and isinstance(delivery.message, Call) for delivery in hub.end_calls(1.0)
    )
    assert hub.open_calls() == 0


def test_failure_with_unencodable_data_is_stored_without_it() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    (persist,) = hub.handle("bob", Failure("1", Reason.RAISED, "no", Cbor(b"\xa2\x01\x02\x01\x03")), 0.0)
    assert isinstance(persist, Persist)


def test_failure_text_with_lone_surrogate_is_stored() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    (persist,) = hub.handle("bob", Failure("1", Reason.RAISED, "\udc80"), 0.0)
    assert isinstance(persist, Persist)


def test_request_at_its_expiry_is_not_redelivered_by_rounding() -> None:
    random = Random(1)
    for _ in range(2000):
        hub = hub_with_peers(request_ttl=604800.0)
        register_method(hub, "bob", "m")
        now = random.random() * 1e5
        send_request(hub, now=now)
        hub.handle("bob", Failure("1", Reason.OVERLOADED), now + random.random() * 100)
        hub.expire(hub.deadline() or 0.0)
        deliveries = hub.expire(hub.deadline() or 0.0)
        assert not any(isinstance(delivery, Delivery) and isinstance(delivery.message, Call) for delivery in deliveries)


def test_id_of_pending_request_is_refused() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    send_request(hub)
    assert not any(
        isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
        for delivery in handle_with_store(hub, "nina", request())
    )


def test_accepted_requests_are_limited_in_bytes() -> None:
    hub = hub_with_peers(max_owed_bytes=2 * len(BODY.raw), share=0.5)
    register_method(hub, "bob", "m")
    send_request(hub)
    refused = handle_with_store(hub, "nina", request(2))
    assert [
        delivery.message.reason
        for delivery in refused
        if isinstance(delivery, Delivery) and isinstance(delivery.message, Failure)
    ] == [Reason.OVERLOADED]


def test_durable_request_has_no_call_timeout() -> None:
    hub = hub_with_peers(call_timeout=30.0, max_timeout=60.0, request_ttl=7 * 24 * 3600.0)
    register_method(hub, "bob", "m")
    send_request(hub)
    for minute in range(61):
        assert hub.expire(minute * 60.0) == []
    (persist,) = hub.handle("bob", Result("1", BODY), 3600.0)
    assert isinstance(persist, Persist)
    assert [delivery.peer for delivery in persist.then] == ["nina"]


# A request repeated under the same key, while the hub waits for callees of its previous process.


def hub_with_repeated_request() -> Hub:
    """Return a hub that waits for callees; its peer sent a request, left, and sent it again."""
    hub = hub_with_peers()
    hub.await_registrations(5.0)
    for _ in range(2):
        assert send_request(hub) == []
        hub.leave("nina", 0.0)
        join(hub, "nina", DURABLE_NQ)
    assert send_request(hub) == []
    return hub


def test_request_repeated_before_its_callee_returns_is_delivered_once() -> None:
    hub = hub_with_repeated_request()
    deliveriess = [
        delivery
        for delivery in handle_with_store(hub, "bob", Register("r", "m"))
        if isinstance(delivery, Persist | Delivery)
    ]
    assert [delivery for delivery in deliveriess if isinstance(delivery, Persist)] == [acceptance()]
    assert [
        delivery for delivery in deliveriess if isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
    ] == [forwarded_request("bob", "1")]


def test_repeated_request_for_unknown_method_fails_once() -> None:
    hub = hub_with_repeated_request()
    assert [delivery.message.id for delivery in hub.expire(5.0) if isinstance(delivery, Delivery)] == ["m#1"]  # type: ignore[attr-defined]
    hub.leave("nina", 5.0)
    assert len(hub._durable_requests) == 0
    assert (hub._durable_requests._pool.number, hub._durable_requests._waiting.pool.number) == (0, 0)


# A request repeated under the same key, while the first record waits for the store.


def hub_with_two_records() -> tuple[Hub, Persist, Persist]:
    """Return a hub with a repeated request, and the records of both requests."""
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    records: list[Persist] = []
    for now in (0.0, 1.0):
        deliveries = hub.handle("nina", request(), now)
        records += [
            delivery
            for delivery in deliveries
            if isinstance(delivery, Persist) and isinstance(delivery.record, PutRequest)
        ]
        if now == 0.0:
            hub.leave("nina", 0.5)
            join(hub, "nina", DURABLE_NQ, 0.5)
    first, second = records
    return hub, first, second


def test_written_record_of_ended_session_is_ignored() -> None:
    hub, first, second = hub_with_two_records()
    assert hub.handle_persisted(first, 1.0) == []
    assert hub.handle_persisted(second, 1.0) == [*second.then, forwarded_request("bob", "1")]


def test_failed_record_of_ended_session_is_ignored() -> None:
    hub, first, second = hub_with_two_records()
    assert hub.handle_not_persisted(first, "no room", 1.0) == []
    assert hub.handle_persisted(second, 1.0) == [*second.then, forwarded_request("bob", "1")]
