"""A store in trouble: durable promises are refused, everything else goes on."""

from dataclasses import replace

import pytest

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Fanout, Keep
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, CloseTopic, Failure, Publish, Result, Word
from fiveways.model.records import BuryItem, DropItem, DropRetained, PutItem, PutRetained
from fiveways.wire.payload import NULL, Json, Value
from tests.unit.hub.hubtalk import NQ, join, make, offer, pattern, refusal, subscribe, topic

WHY = "it cannot be kept now: no room is left on its disk"


def hub_in_trouble() -> Hub:
    hub = make(keeps=True, retry_delay=0)
    for peer in ("ann", "bob"):
        join(hub, peer)
    join(hub, "cleo", replace(NQ, reliable=True))
    offer(hub, "bob", "work")
    hub.restore([], [(PutItem("q", 3, b"1", 5), BuryItem("q", 3, "raised", 1.0))], [PutRetained('["t"]', b"1", 300)])
    hub.storage.trouble = WHY
    return hub


REFUSED = [
    ("ann", Call("c", "hub.push", Value({"queue": "q", "data": 1}))),
    ("ann", Call("c", "hub.drop", Value({"queue": "q", "job": 3}))),
    ("ann", Call("c", "hub.purge", Value({"kind": "values", "name": "*"}))),
    ("ann", Publish("c", topic("t"), Value(2), retain=True)),
    ("ann", Publish("c", topic("t"), NULL, retain=True)),
    ("cleo", Call("c", "work", Value(1))),
]


@pytest.mark.parametrize(("peer", "word"), REFUSED)
def test_durable_promise_is_refused_as_overloaded_and_changes_nothing(peer: str, word: Word) -> None:
    hub = hub_in_trouble()
    session = hub.session("ann")
    assert session is not None
    session.credentials = replace(session.credentials, is_trusted=True)
    assert refusal(hub.handle(peer, word, 0.0)) == (peer, "c", Reason.BUSY, WHY)
    assert hub.queues() == {"q": {"waiting": 0, "given": 0, "dead": 1}}
    assert hub.retained(topic("t")) == (Json(b"1"), 300)
    assert hub.stats()["owed"] == 0
    hub.storage.trouble = ""
    assert any(isinstance(each, Keep) for each in hub.handle(peer, word, 0.0))


def test_plain_publication_is_delivered() -> None:
    hub = hub_in_trouble()
    subscribe(hub, "bob", pattern("u"))
    fanout, answer = hub.handle("ann", Publish("c", topic("u"), Value(1)), 0.0)
    assert isinstance(fanout, Fanout)
    assert isinstance(answer, Delivery)
    assert isinstance(answer.word, Result)


def test_publication_without_an_answer_is_delivered_and_its_value_waits_for_the_store() -> None:
    hub = hub_in_trouble()
    subscribe(hub, "bob", pattern("u"))
    fanout, keep = hub.handle("ann", Publish(None, topic("u"), Value(2), retain=True), 0.0)
    assert isinstance(fanout, Fanout)
    assert keep == Keep(PutRetained('["u"]', b"2", 301, "address unknown"), [])


def test_closing_a_topic_writes_only_where_there_was_a_value() -> None:
    hub = hub_in_trouble()
    (kept, _) = hub.handle("ann", CloseTopic("c", topic("t")), 0.0)
    assert kept == Keep(DropRetained('["t"]'), [])
    (answer,) = hub.handle("ann", CloseTopic("d", topic("t")), 0.0)
    assert isinstance(answer, Delivery)


def pushed(hub: Hub) -> Keep:
    (keep, *_) = hub.handle("ann", Call("p", "hub.push", Value({"queue": "jobs", "data": 1})), 0.0)
    assert isinstance(keep, Keep)
    return keep


def test_job_that_is_not_written_is_deleted_unless_a_worker_has_it() -> None:
    hub = hub_in_trouble()
    hub.storage.trouble = ""
    hub.handle("bob", Call("g", "hub.pull", Value({"queue": "jobs", "callback": "cb"})), 0.0)
    keeps = [pushed(hub) for _ in range(3)]
    assert hub.queues()["jobs"] == {"waiting": 2, "given": 1, "dead": 0}
    *answers, first, second = hub.storage.refuse(keeps, WHY)
    assert answers == [
        Delivery("ann", Failure("p", Reason.LOST, WHY)),
        *[Delivery("ann", Failure("p", Reason.BUSY, WHY, retry_after=1.0))] * 2,
    ]
    assert [first, second] == [Keep(DropItem("jobs", each.record.number), []) for each in keeps[1:]]  # type: ignore[attr-defined]
    assert hub.queues()["jobs"] == {"waiting": 0, "given": 1, "dead": 0}


def test_job_that_a_worker_gave_back_is_not_deleted() -> None:
    hub = hub_in_trouble()
    hub.storage.trouble = ""
    hub.handle("bob", Call("g", "hub.pull", Value({"queue": "jobs", "callback": "cb"})), 0.0)
    keep = pushed(hub)
    session = hub.session("bob")
    assert session is not None
    hub.handle("bob", Failure(next(iter(session.serving)), Reason.RAISED, "no"), 0.0)
    (answer,) = hub.storage.refuse([keep], WHY)
    assert answer == Delivery("ann", Failure("p", Reason.LOST, WHY))
    assert hub.queues()["jobs"] == {"waiting": 1, "given": 0, "dead": 0}
