"""Answers that their callers' protocols cannot say: such a call has failed, whoever counts."""

from random import Random
from typing import Any

import pytest

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.session import public_name
from fiveways.hub.spans import SpanRecorder
from fiveways.hub.traits import ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Description, Discover, Failure, HubMessage, Result
from fiveways.model.store_changes import PutAnswer, PutRequest
from fiveways.wire.payload import Cbor, Value
from tests.support.hub_helpers import join, make, offer, only, opened

RELIABLE = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True, is_durable=True)
NO_VALUE = Cbor(b"\xa2\x01\x02\x01\x03")
"""A map that has a key twice."""


def numbers(hub: Hub, method: str) -> tuple[int, int, int]:
    """How many calls of a method there were, and how many had a result, or failed."""
    told: Any = hub.traffic_report(100.0)
    (found,) = [each for each in told["methods"] if each["method"] == method]
    return found["calls"], found["results"], found["failures"]


def bridged(hub: Hub) -> dict[tuple[str, str], tuple[int, int]]:
    told: Any = hub.traffic_report(100.0)
    return {(each["caller"], each["callee"]): (each["calls"], each["failures"]) for each in told["bridges"]}


def ended(hub: Hub) -> tuple[object, object]:
    stats = hub.stats()
    return stats["results"], stats["failures"]


def unsaid(hub: Hub, deliveries: Deliveries, kind: type[HubMessage] = Result) -> None:
    """The receiver's protocol cannot say this one answer; the caller is told so."""
    (delivery,) = deliveries
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, kind)
    told = only(hub.handle_undelivered(delivery, Unrepresentable("no"), 5.0), Failure)
    assert told.reason is Reason.RAISED


def test_undeliverable_result_is_failure_of_method_and_protocol_pair() -> None:
    hub = opened()
    offer(hub, "bob", "a.b")
    hub.handle("ann", Call("1", "a.b"), 1.0)
    hub.handle("bob", Result("1"), 2.0)
    hub.handle("ann", Call("2", "a.b"), 3.0)
    unsaid(hub, hub.handle("bob", Result("2", NO_VALUE), 4.0))
    assert numbers(hub, "a.b") == (2, 1, 1)
    assert bridged(hub) == {("lrpm-json", "umq"): (2, 1)}
    assert ended(hub) == (1, {"raised": 1})
    told: Any = hub.traffic_report(100.0)
    assert told["failures"] == [
        {
            "at": 5.0,
            "method": "a.b",
            "caller": "lrpm-json",
            "callee": "umq",
            "reason": "raised",
            "text": "the answer cannot be written in lrpm-json",
            "caller_peer": public_name("ann"),
            "callee_peer": public_name("bob"),
            "op": "2",
            "seconds": 2.0,
            "trace": "",
        }
    ]
    assert sum(told["latency"]["counts"]) == 2


def test_undeliverable_result_of_evicted_method_is_failure() -> None:
    hub = opened(max_methods=1)
    for name in ("a.b", "b.c"):
        offer(hub, "bob", name)
    hub.handle("ann", Call("1", "a.b"), 1.0)
    delivered = hub.handle("bob", Result("1", NO_VALUE), 2.0)
    hub.handle("ann", Call("2", "b.c"), 3.0)
    assert ("a.b", "lrpm-json", "umq") not in hub.traffic.by_key
    unsaid(hub, delivered)
    told: Any = hub.traffic_report(100.0)
    assert told["forgotten"] == {"calls": 1, "results": 0, "failures": 1}


@pytest.mark.parametrize("takes_stream", [True, False])
def test_undeliverable_last_part_is_failure(takes_stream: bool) -> None:
    hub = opened()
    offer(hub, "cleo", "a.b")
    hub.handle("ann", Call("c", "a.b", stream=takes_stream), 0.0)
    hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 0.0)
    unsaid(hub, hub.handle("cleo", Result("1", None, stream=True), 1.0))
    assert numbers(hub, "a.b") == (1, 0, 1)
    assert ended(hub) == (0, {"raised": 1})


def test_undeliverable_description_is_failure() -> None:
    hub = opened()
    offer(hub, "cleo", "account", route=True)
    question = only(hub.handle("ann", Discover("d", "account."), 0.0), Discover)
    unsaid(hub, hub.handle("cleo", Description(question.id, ("x",)), 1.0), Description)
    assert bridged(hub)["lrpm-json", "nq"] == (1, 1)
    assert ended(hub) == (0, {"raised": 1})


def test_undeliverable_response_of_built_in_is_failure() -> None:
    hub = opened()
    hub.handle("ann", Call("1", "hub.echo"), 0.0)
    unsaid(hub, hub.handle("ann", Call("2", "hub.echo", NO_VALUE), 0.0))
    unsaid(hub, hub.handle("ann", Call("3", "hub.push", Value(["q", 1])), 0.0))
    assert numbers(hub, "hub.echo") == (2, 1, 1)
    assert numbers(hub, "hub.push") == (1, 0, 1)
    assert bridged(hub) == {("lrpm-json", "hub"): (3, 2)}
    assert ended(hub) == (0, {"raised": 2})


def test_undeliverable_response_to_other_requests_is_not_a_call() -> None:
    hub = opened()
    unsaid(hub, hub.handle("ann", Discover("d"), 0.0), Description)
    assert bridged(hub) == {}
    assert ended(hub) == (0, {"raised": 1})


# Requests that were promised an answer.


def owing(*, is_durable: bool) -> Hub:
    hub = make(is_durable=is_durable)
    join(hub, "nora", RELIABLE)
    join(hub, "cleo", RELIABLE)
    offer(hub, "cleo", "a.b")
    for keep in hub.handle("nora", Call("c", "a.b"), 0.0):
        if isinstance(keep, Persist) and isinstance(keep.record, PutRequest):
            hub.handle_persisted(keep, 0.0)
    assert hub.open_calls() == 1
    return hub


def test_undeliverable_result_of_durable_request_is_failure() -> None:
    hub = owing(is_durable=False)
    unsaid(hub, hub.handle("cleo", Result("1"), 1.0))
    assert numbers(hub, "a.b") == (1, 0, 1)
    assert ended(hub) == (0, {"raised": 1})


def test_stored_result_is_counted_after_the_write() -> None:
    hub = owing(is_durable=True)
    (keep,) = hub.handle("cleo", Result("1"), 1.0)
    assert isinstance(keep, Persist)
    assert isinstance(keep.record, PutAnswer)
    assert ended(hub) == (0, {})
    deliveries = hub.handle_persisted(keep, 2.0)
    assert ended(hub) == (1, {})
    unsaid(hub, deliveries)
    assert numbers(hub, "a.b") == (1, 0, 1)
    assert ended(hub) == (0, {"raised": 1})


def test_unstorable_result_is_failure() -> None:
    hub = owing(is_durable=True)
    (keep,) = hub.handle("cleo", Result("1", NO_VALUE), 1.0)
    assert isinstance(keep, Persist)
    only(hub.handle_persisted(keep, 2.0), Failure)
    assert numbers(hub, "a.b") == (1, 0, 1)
    assert ended(hub) == (0, {"raised": 1})


def test_undeliverable_part_ends_durable_request() -> None:
    hub = owing(is_durable=False)
    (delivery,) = hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 1.0)
    assert isinstance(delivery, Delivery)
    hub.handle_undelivered(delivery, Unrepresentable("no"), 2.0)
    assert numbers(hub, "a.b") == (1, 0, 1)
    assert hub.stats()["owed"] == 0


# Traces.


def traced() -> tuple[Hub, SpanRecorder]:
    hub, spans = opened(), SpanRecorder(Random(1), 1.0, 10)
    hub.set_span_recorder(spans)
    offer(hub, "bob", "a.b")
    for number in (1, 2, 3):
        hub.handle("ann", Call(str(number), "a.b"), 0.0)
    return hub, spans


def test_span_of_undeliverable_result_is_marked_failed() -> None:
    hub, spans = traced()
    for number in (1, 2, 3):
        delivered = hub.handle("bob", Result(str(number)), float(number))
        if number == 2:
            before = delivered
    unsaid(hub, before)
    assert [(each.op, each.reason) for each in spans.take(9)] == [("1", None), ("2", Reason.RAISED), ("3", None)]


def test_exported_span_is_not_changed() -> None:
    hub, spans = traced()
    delivered = hub.handle("bob", Result("1"), 1.0)
    assert [each.reason for each in spans.take(9)] == [None]
    hub.handle("bob", Result("2"), 2.0)
    unsaid(hub, delivered)
    assert [(each.op, each.reason) for each in spans.take(9)] == [("2", None)]
