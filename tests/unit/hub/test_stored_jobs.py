"""Stored jobs and retained values, and jobs without tries left."""

from dataclasses import replace
from random import Random

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Persist
from fiveways.hub.settings import HubSettings
from fiveways.model.messages import Call, CloseTopic, Failure, Publish, Result
from fiveways.model.store_changes import DropJob, DropRetained, PutAnswer, PutDeadLetter, PutJob, PutRetained
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Binary, Cbor, Json, Payload, Value
from tests.support.hub_helpers import (
    NQ,
    hub_with_peers,
    join,
    pattern,
    refusal,
    register_method,
    subscribe,
    success,
    topic,
)


def hub_with_store(**settings: int) -> Hub:
    hub = Hub(Random(7), Limits(), HubSettings(**settings), 1000.0, is_durable=True)  # type: ignore[arg-type]
    for peer in ("ann", "bob"):
        join(hub, peer)
    return hub


OWNER = "address unknown"
"""The owner of the peers of these tests, which have no address."""


def push(hub: Hub, data: object = 1) -> list[object]:
    return [*hub.handle("ann", Call("p", "hub.push", Value({"queue": "q", "data": data})), 0.0)]


def pull(hub: Hub) -> str:
    """Pull a job, and return the operation of its call."""
    deliveries = hub.handle("bob", Call("g", "hub.pull", Value({"queue": "q", "callback": "cb"})), 0.0)
    (delivery,) = [
        delivery.message
        for delivery in deliveries
        if isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
    ]
    return delivery.id


def call_hub(hub: Hub, method: str, body: object = None) -> object:
    (answer, *_) = hub.handle("ann", Call("c", method, Value(body)), 0.0)
    assert isinstance(answer, Delivery)
    assert isinstance(answer.message, Result)
    assert answer.message.body is not None
    return answer.message.body.value()


def test_push_is_answered_after_the_write_and_finished_job_is_deleted() -> None:
    hub = hub_with_store()
    answer = Delivery("ann", Result("p", Value({"waiting": 1})))
    assert push(hub, {"n": 1}) == [Persist(PutJob("q", 1, b'{"n":1}', 0, OWNER), [answer])]
    assert hub.handle("bob", Result(pull(hub)), 0.0) == [Persist(DropJob("q", 1), [])]
    assert call_hub(hub, "hub.queues") == {}


def test_unfinished_job_becomes_dead_and_can_be_redriven() -> None:
    hub = hub_with_store(max_tries=2, retry_delay=0)
    push(hub)
    failed = hub.handle("bob", Failure(pull(hub), Reason.RAISED, "no"), 1.0)
    assert failed == [Persist(PutJob("q", 1, b"1", 1, OWNER), [])]
    failed = hub.handle("bob", Failure(pull(hub), Reason.RAISED, "no"), 2.0)
    assert failed == [Persist(PutDeadLetter("q", 1, "raised: no", 1002.0), [])]
    assert call_hub(hub, "hub.queues") == {"q": {"waiting": 0, "given": 0, "dead": 1}}
    deliveries = hub.handle("ann", Call("r", "hub.redrive", Value({"queue": "q"})), 3.0)
    assert deliveries == [*success("ann", "r", Value({"redriven": 1})), Persist(PutJob("q", 1, b"1", 0, OWNER), [])]
    assert call_hub(hub, "hub.redrive", {"queue": "q"}) == {"redriven": 0}
    assert hub.handle("bob", Result(pull(hub)), 4.0) == [Persist(DropJob("q", 1), [])]


def test_without_store_no_record_is_written() -> None:
    hub = hub_with_peers(max_tries=1)
    assert hub.handle("ann", Call("p", "hub.push", Value({"queue": "q", "data": 1})), 0.0) == success(
        "ann", "p", Value({"waiting": 1})
    )
    assert hub.handle("ann", Publish("v", topic("t"), Value(1), retain=True), 0.0) == success(
        "ann", "v", Value(256), "p256"
    )


def test_new_hub_restores_jobs() -> None:
    hub = hub_with_store()
    dead = (PutJob("q", 3, b"[3]", 5), PutDeadLetter("q", 3, "raised: no", 9.0))
    hub.restore_stored([PutJob("q", 7, b"[1]", 1), PutJob("q", 5, b"[2]", 0)], [dead], [])
    assert call_hub(hub, "hub.queues") == {"q": {"waiting": 2, "given": 0, "dead": 1}}
    row = {"job": 3, "tries": 5, "error": "raised: no", "at": 9.0, "size": 3}
    assert call_hub(hub, "hub.dead", {"queue": "q"}) == {"jobs": [row], "more": 0}
    deliveries = hub.handle("bob", Call("g", "hub.pull", Value({"queue": "q", "callback": "cb"})), 0.0)
    (call,) = [
        delivery.message
        for delivery in deliveries
        if isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
    ]
    assert (call.body, call.redelivered) == (Json(b"[2]"), False)
    (persist, *_) = push(hub)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutJob)
    assert persist.record.number > 7


def test_retained_values_are_stored_and_deleted() -> None:
    hub = hub_with_store()
    finished = [Delivery("ann", Result("v", Value(256)), "p256")]
    published = hub.handle("ann", Publish("v", topic("a.b"), Value(1), retain=True), 0.0)
    assert published == [Persist(PutRetained('["a","b"]', b"1", 256, OWNER), finished)]
    (dropped, _) = hub.handle("ann", CloseTopic("c", topic("a.b")), 0.0)
    assert dropped == Persist(DropRetained('["a","b"]'), [])
    hub.restore_stored([], [], [PutRetained('["a","b"]', b"2", 300)])
    assert hub.stats()["retained"] == 1
    (last,) = hub.handle("ann", Publish("v", topic("x"), Value(1)), 0.0)
    assert last == Delivery("ann", Result("v", Value(301)), "p301")


NO_JSON_FORM = [
    pytest.param(Cbor(b"\xa2\x01\x01\x611\x02"), id="two keys that are equal in JSON"),
    pytest.param(Cbor(b"\xf0"), id="unassigned simple value"),
    pytest.param(Cbor(b"\xc1\x61x"), id="time that is no number"),
    pytest.param(Json(b'{"$base64":1}'), id="marker without a string"),
    pytest.param(Value({1: 2}), id="key that is no text"),
]


@pytest.mark.parametrize("body", NO_JSON_FORM[:3])
def test_value_without_a_json_form_is_refused_and_not_retained(body: Payload) -> None:
    hub = hub_with_store()
    subscribe(hub, "bob", pattern("t"))
    refused = refusal(hub.handle("ann", Publish("v", topic("t"), body, retain=True), 0.0))
    assert refused[:3] == ("ann", "v", Reason.BAD_ARGUMENTS)
    assert (hub.stats()["retained"], hub.last_publication_number()) == (0, 255)
    # Without `retain` nothing is stored, and a subscriber with the same encoding can read it.
    hub.handle("ann", Publish("w", topic("t"), body), 0.0)
    assert hub.last_publication_number() == 256


def test_refused_value_keeps_the_previous_one() -> None:
    hub = hub_with_store()
    hub.handle("ann", Publish("v", topic("t"), Value(1), retain=True), 0.0)
    hub.handle("ann", Publish("w", topic("t"), Cbor(b"\xf0"), retain=True), 0.0)
    assert hub.retained_value(topic("t")) == (Value(1), 256)


@pytest.mark.parametrize("body", NO_JSON_FORM)
def test_job_without_a_json_form_is_refused(body: Payload) -> None:
    hub = hub_with_store()
    (answer, *_) = hub.handle("ann", Call("p", "hub.push", body), 0.0)
    assert isinstance(answer, Delivery)
    assert isinstance(answer.message, Failure)
    assert answer.message.reason is Reason.BAD_ARGUMENTS
    refused = refusal(hub.handle("ann", Call("p", "hub.push", Value({"queue": "q", "data": {1: 2}})), 0.0))
    assert refused[2] is Reason.BAD_ARGUMENTS
    assert hub.stats()["queues"] == {}


def test_retained_bytes_are_stored_in_their_json_form() -> None:
    (persist,) = hub_with_store().handle("ann", Publish("v", topic("t"), Binary(b"Hello"), retain=True), 0.0)
    assert isinstance(persist, Persist)
    assert persist.record == PutRetained('["t"]', b'{"$base91":"q0R+Cq!"}', 256, OWNER)


@pytest.mark.parametrize("body", NO_JSON_FORM[:3])
def test_result_without_json_form_fails_durable_request(body: Payload) -> None:
    hub = hub_with_store()
    join(hub, "cleo", replace(NQ, is_durable=True))
    register_method(hub, "bob", "m")
    deliveries = hub.handle("cleo", Call("c", "m", Json(b"1")), 0.0)
    (delivery,) = [
        delivery for keep in deliveries if isinstance(keep, Persist) for delivery in hub.handle_persisted(keep, 0.0)
    ][-1:]
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Call)
    (persist,) = hub.handle("bob", Result(delivery.message.id, body), 1.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutAnswer)
    (result,) = persist.then
    assert isinstance(result.message, Failure)
    assert result.message.reason is Reason.RAISED
    assert hub.stats()["owed"] == 0


def test_retained_values_beyond_limits_are_restored() -> None:
    hub = hub_with_store(max_retained=1, max_retained_bytes=10)
    hub.restore_stored([], [], [PutRetained('["a"]', b'"0123456789"', 300), PutRetained('["b"]', b"1", 301)])
    assert hub.stats()["retained"] == 2
    refused = refusal(hub.handle("ann", Publish("v", topic("c"), Value(1), retain=True), 0.0))
    assert refused[2] is Reason.OVERLOADED


def test_drop_of_dead_job_is_answered_after_the_write() -> None:
    hub = hub_with_store()
    hub.restore_stored([], [(PutJob("q", 3, b"[3]", 5), PutDeadLetter("q", 3, "no", 9.0))], [])
    (persist,) = hub.handle("ann", Call("c", "hub.drop", Value({"queue": "q", "job": 3})), 0.0)
    assert persist == Persist(DropJob("q", 3), [Delivery("ann", Result("c"), "", "hub.drop")])
