"""An unavailable store: durable operations are refused, all others continue."""

from dataclasses import replace

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Fanout, Persist
from fiveways.model.messages import Call, CloseTopic, Failure, HubMessage, Publish, Result
from fiveways.model.store_changes import DropJob, DropRetained, PutDeadLetter, PutJob, PutRetained
from fiveways.wire.payload import NULL, Json, Value
from tests.support.hub_helpers import NQ, join, make_hub, pattern, refusal, register_method, subscribe, topic

WHY = "it cannot be kept now: its disk is full"


def hub_in_trouble() -> Hub:
    hub = make_hub(is_durable=True, retry_delay=0)
    for peer in ("ann", "bob"):
        join(hub, peer)
    join(hub, "cleo", replace(NQ, is_durable=True))
    register_method(hub, "bob", "work")
    hub.restore_stored(
        [], [(PutJob("q", 3, b"1", 5), PutDeadLetter("q", 3, "raised", 1.0))], [PutRetained('["t"]', b"1", 300)]
    )
    hub.store_status.unavailable_reason = WHY
    return hub


REFUSED = [
    ("ann", Call("c", "hub.push", Value({"queue": "q", "data": 1}))),
    ("ann", Call("c", "hub.drop", Value({"queue": "q", "job": 3}))),
    ("ann", Call("c", "hub.purge", Value({"kind": "values", "name": "*"}))),
    ("ann", Publish("c", topic("t"), Value(2), retain=True)),
    ("ann", Publish("c", topic("t"), NULL, retain=True)),
    ("cleo", Call("c", "work", Value(1))),
]


@pytest.mark.parametrize(("peer", "message"), REFUSED)
def test_durable_operation_without_store_is_overloaded_and_changes_nothing(peer: str, message: HubMessage) -> None:
    hub = hub_in_trouble()
    session = hub.find_session("ann")
    assert session is not None
    session.credentials = replace(session.credentials, is_trusted=True)
    assert refusal(hub.handle(peer, message, 0.0)) == (peer, "c", Reason.OVERLOADED, WHY)
    assert hub.queue_counts() == {"q": {"waiting": 0, "given": 0, "dead": 1}}
    assert hub.retained_value(topic("t")) == (Json(b"1"), 300)
    assert hub.stats()["owed"] == 0
    hub.store_status.unavailable_reason = ""
    assert any(isinstance(delivery, Persist) for delivery in hub.handle(peer, message, 0.0))


def test_publication_without_retain_is_delivered() -> None:
    hub = hub_in_trouble()
    subscribe(hub, "bob", pattern("u"))
    fanout, answer = hub.handle("ann", Publish("c", topic("u"), Value(1)), 0.0)
    assert isinstance(fanout, Fanout)
    assert isinstance(answer, Delivery)
    assert isinstance(answer.message, Result)


def test_publication_without_an_answer_is_delivered_and_its_value_waits_for_the_store() -> None:
    hub = hub_in_trouble()
    subscribe(hub, "bob", pattern("u"))
    fanout, persist = hub.handle("ann", Publish(None, topic("u"), Value(2), retain=True), 0.0)
    assert isinstance(fanout, Fanout)
    assert persist == Persist(PutRetained('["u"]', b"2", 301, "address unknown"), [])


def test_closing_a_topic_writes_only_if_it_had_a_value() -> None:
    hub = hub_in_trouble()
    (record, _) = hub.handle("ann", CloseTopic("c", topic("t")), 0.0)
    assert record == Persist(DropRetained('["t"]'), [])
    (answer,) = hub.handle("ann", CloseTopic("d", topic("t")), 0.0)
    assert isinstance(answer, Delivery)


def push_persist(hub: Hub) -> Persist:
    (persist, *_) = hub.handle("ann", Call("p", "hub.push", Value({"queue": "jobs", "data": 1})), 0.0)
    assert isinstance(persist, Persist)
    return persist


def test_job_that_is_not_written_is_deleted_unless_a_worker_has_it() -> None:
    hub = hub_in_trouble()
    hub.store_status.unavailable_reason = ""
    hub.handle("bob", Call("g", "hub.pull", Value({"queue": "jobs", "callback": "cb"})), 0.0)
    persists = [push_persist(hub) for _ in range(3)]
    assert hub.queue_counts()["jobs"] == {"waiting": 2, "given": 1, "dead": 0}
    *answers, first, second = hub.store_status.fail_unwritten(persists, WHY)
    assert answers == [
        Delivery("ann", Failure("p", Reason.LOST, WHY)),
        *[Delivery("ann", Failure("p", Reason.OVERLOADED, WHY, retry_after=1.0))] * 2,
    ]
    assert [first, second] == [Persist(DropJob("jobs", persist.record.number), []) for persist in persists[1:]]  # type: ignore[attr-defined]
    assert hub.queue_counts()["jobs"] == {"waiting": 0, "given": 1, "dead": 0}


def test_job_returned_by_a_worker_is_not_deleted() -> None:
    hub = hub_in_trouble()
    hub.store_status.unavailable_reason = ""
    hub.handle("bob", Call("g", "hub.pull", Value({"queue": "jobs", "callback": "cb"})), 0.0)
    persist = push_persist(hub)
    session = hub.find_session("bob")
    assert session is not None
    hub.handle("bob", Failure(next(iter(session.calls_served)), Reason.RAISED, "no"), 0.0)
    (answer,) = hub.store_status.fail_unwritten([persist], WHY)
    assert answer == Delivery("ann", Failure("p", Reason.LOST, WHY))
    assert hub.queue_counts()["jobs"] == {"waiting": 1, "given": 0, "dead": 0}
