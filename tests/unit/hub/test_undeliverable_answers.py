"""Responses that the caller's protocol cannot represent count as failures everywhere."""

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
from tests.support.hub_helpers import hub_with_peers, join, make_hub, only_message, register_method

DURABLE_NQ = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True, is_durable=True)
NO_VALUE = Cbor(b"\xa2\x01\x02\x01\x03")
"""A map with a duplicate key."""


def method_counts(hub: Hub, method: str) -> tuple[int, int, int]:
    """Return the numbers of calls, results and failures of a method."""
    report: Any = hub.traffic_report(100.0)
    (row,) = [candidate for candidate in report["methods"] if candidate["method"] == method]
    return row["calls"], row["results"], row["failures"]


def protocol_pair_counts(hub: Hub) -> dict[tuple[str, str], tuple[int, int]]:
    report: Any = hub.traffic_report(100.0)
    return {(bridge["caller"], bridge["callee"]): (bridge["calls"], bridge["failures"]) for bridge in report["bridges"]}


def outcome_counts(hub: Hub) -> tuple[object, object]:
    stats = hub.stats()
    return stats["results"], stats["failures"]


def fail_delivery(hub: Hub, deliveries: Deliveries, kind: type[HubMessage] = Result) -> None:
    """Fail the only delivery as unrepresentable, and check the failure for its caller."""
    (delivery,) = deliveries
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, kind)
    failure = only_message(hub.handle_undelivered(delivery, Unrepresentable("no"), 5.0), Failure)
    assert failure.reason is Reason.RAISED


def test_undeliverable_result_is_failure_of_method_and_protocol_pair() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    hub.handle("ann", Call("1", "a.b"), 1.0)
    hub.handle("bob", Result("1"), 2.0)
    hub.handle("ann", Call("2", "a.b"), 3.0)
    fail_delivery(hub, hub.handle("bob", Result("2", NO_VALUE), 4.0))
    assert method_counts(hub, "a.b") == (2, 1, 1)
    assert protocol_pair_counts(hub) == {("lrpm-json", "umq"): (2, 1)}
    assert outcome_counts(hub) == (1, {"raised": 1})
    report: Any = hub.traffic_report(100.0)
    assert report["failures"] == [
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
    assert sum(report["latency"]["counts"]) == 2


def test_undeliverable_result_of_evicted_method_is_failure() -> None:
    hub = hub_with_peers(max_methods=1)
    for name in ("a.b", "b.c"):
        register_method(hub, "bob", name)
    hub.handle("ann", Call("1", "a.b"), 1.0)
    delivered = hub.handle("bob", Result("1", NO_VALUE), 2.0)
    hub.handle("ann", Call("2", "b.c"), 3.0)
    assert ("a.b", "lrpm-json", "umq") not in hub.traffic.by_key
    fail_delivery(hub, delivered)
    report: Any = hub.traffic_report(100.0)
    assert report["forgotten"] == {"calls": 1, "results": 0, "failures": 1}


@pytest.mark.parametrize("takes_stream", [True, False])
def test_undeliverable_last_part_is_failure(takes_stream: bool) -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "a.b")
    hub.handle("ann", Call("c", "a.b", stream=takes_stream), 0.0)
    hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 0.0)
    fail_delivery(hub, hub.handle("cleo", Result("1", None, stream=True), 1.0))
    assert method_counts(hub, "a.b") == (1, 0, 1)
    assert outcome_counts(hub) == (0, {"raised": 1})


def test_undeliverable_description_is_failure() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "account", route=True)
    question = only_message(hub.handle("ann", Discover("d", "account."), 0.0), Discover)
    fail_delivery(hub, hub.handle("cleo", Description(question.id, ("x",)), 1.0), Description)
    assert protocol_pair_counts(hub)["lrpm-json", "nq"] == (1, 1)
    assert outcome_counts(hub) == (0, {"raised": 1})


def test_undeliverable_response_of_built_in_is_failure() -> None:
    hub = hub_with_peers()
    hub.handle("ann", Call("1", "hub.echo"), 0.0)
    fail_delivery(hub, hub.handle("ann", Call("2", "hub.echo", NO_VALUE), 0.0))
    fail_delivery(hub, hub.handle("ann", Call("3", "hub.push", Value(["q", 1])), 0.0))
    assert method_counts(hub, "hub.echo") == (2, 1, 1)
    assert method_counts(hub, "hub.push") == (1, 0, 1)
    assert protocol_pair_counts(hub) == {("lrpm-json", "hub"): (3, 2)}
    assert outcome_counts(hub) == (0, {"raised": 2})


def test_undeliverable_response_to_other_requests_is_not_a_call() -> None:
    hub = hub_with_peers()
    fail_delivery(hub, hub.handle("ann", Discover("d"), 0.0), Description)
    assert protocol_pair_counts(hub) == {}
    assert outcome_counts(hub) == (0, {"raised": 1})


# Durable requests.


def hub_with_durable_request(*, is_durable: bool) -> Hub:
    hub = make_hub(is_durable=is_durable)
    join(hub, "nora", DURABLE_NQ)
    join(hub, "cleo", DURABLE_NQ)
    register_method(hub, "cleo", "a.b")
    for persist in hub.handle("nora", Call("c", "a.b"), 0.0):
        if isinstance(persist, Persist) and isinstance(persist.record, PutRequest):
            hub.handle_persisted(persist, 0.0)
    assert hub.open_calls() == 1
    return hub


def test_undeliverable_result_of_durable_request_is_failure() -> None:
    hub = hub_with_durable_request(is_durable=False)
    fail_delivery(hub, hub.handle("cleo", Result("1"), 1.0))
    assert method_counts(hub, "a.b") == (1, 0, 1)
    assert outcome_counts(hub) == (0, {"raised": 1})


def test_stored_result_is_counted_after_the_write() -> None:
    hub = hub_with_durable_request(is_durable=True)
    (persist,) = hub.handle("cleo", Result("1"), 1.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutAnswer)
    assert outcome_counts(hub) == (0, {})
    deliveries = hub.handle_persisted(persist, 2.0)
    assert outcome_counts(hub) == (1, {})
    fail_delivery(hub, deliveries)
    assert method_counts(hub, "a.b") == (1, 0, 1)
    assert outcome_counts(hub) == (0, {"raised": 1})


def test_unstorable_result_is_failure() -> None:
    hub = hub_with_durable_request(is_durable=True)
    (persist,) = hub.handle("cleo", Result("1", NO_VALUE), 1.0)
    assert isinstance(persist, Persist)
    only_message(hub.handle_persisted(persist, 2.0), Failure)
    assert method_counts(hub, "a.b") == (1, 0, 1)
    assert outcome_counts(hub) == (0, {"raised": 1})


def test_undeliverable_part_ends_durable_request() -> None:
    hub = hub_with_durable_request(is_durable=False)
    (delivery,) = hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 1.0)
    assert isinstance(delivery, Delivery)
    hub.handle_undelivered(delivery, Unrepresentable("no"), 2.0)
    assert method_counts(hub, "a.b") == (1, 0, 1)
    assert hub.stats()["owed"] == 0


# Traces.


def traced_hub() -> tuple[Hub, SpanRecorder]:
    hub, spans = hub_with_peers(), SpanRecorder(Random(1), 1.0, 10)
    hub.set_span_recorder(spans)
    register_method(hub, "bob", "a.b")
    for number in (1, 2, 3):
        hub.handle("ann", Call(str(number), "a.b"), 0.0)
    return hub, spans


def test_span_of_undeliverable_result_is_marked_failed() -> None:
    hub, spans = traced_hub()
    for number in (1, 2, 3):
        delivered = hub.handle("bob", Result(str(number)), float(number))
        if number == 2:
            before = delivered
    fail_delivery(hub, before)
    assert [(span.op, span.reason) for span in spans.take(9)] == [("1", None), ("2", Reason.RAISED), ("3", None)]


def test_exported_span_is_not_changed() -> None:
    hub, spans = traced_hub()
    delivered = hub.handle("bob", Result("1"), 1.0)
    assert [span.reason for span in spans.take(9)] == [None]
    hub.handle("bob", Result("2"), 2.0)
    fail_delivery(hub, delivered)
    assert [(span.op, span.reason) for span in spans.take(9)] == [("2", None)]
