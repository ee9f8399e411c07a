"""Trace spans of calls: sampling, the context for callees, and finished spans."""

from random import Random

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.session import public_name
from fiveways.hub.spans import FinishedSpan, Span, SpanRecorder
from fiveways.hub.traits import ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Failure, Result
from fiveways.model.trace_context import parse_traceparent
from tests.support.hub_helpers import hub_with_peers, join, only_message, register_method

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
DURABLE_NQ = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True, is_durable=True)


def traced_hub(sample: float, max_waiting: int = 100) -> tuple[Hub, SpanRecorder]:
    hub, spans = hub_with_peers(), SpanRecorder(Random(1), sample, max_waiting)
    hub.set_span_recorder(spans)
    register_method(hub, "bob", "a.b")
    return hub, spans


def forwarded_traceparent(hub: Hub, traceparent: str = "", now: float = 1.0) -> str:
    call = only_message(hub.handle("ann", Call("c", "a.b", traceparent=traceparent), now), Call)
    return str(call.traceparent)


def test_sampled_trace_is_continued() -> None:
    hub, spans = traced_hub(0.0)
    context = parse_traceparent(forwarded_traceparent(hub, SAMPLED))
    hub.handle("bob", Result("1"), 3.0)
    (finished,) = spans.take(10)
    parent = parse_traceparent(SAMPLED)
    assert context is not None
    assert parent is not None
    assert context.trace_id == parent.trace_id
    assert context.parent_span_id != parent.parent_span_id
    assert finished == FinishedSpan(
        Span(context, parent.parent_span_id),
        "a.b",
        "1",
        public_name("ann"),
        public_name("bob"),
        "lrpm-json",
        "umq",
        1.0,
        3.0,
        None,
    )
    assert len(spans) == 0


def test_unsampled_trace_is_left_alone() -> None:
    hub, spans = traced_hub(1.0)
    assert forwarded_traceparent(hub, UNSAMPLED) == UNSAMPLED
    hub.handle("bob", Result("1"), 3.0)
    assert spans.take(10) == []


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 100_000])
def test_sampled_call_without_context_begins_a_trace(traceparent: str) -> None:
    hub, spans = traced_hub(1.0)
    context = parse_traceparent(forwarded_traceparent(hub, traceparent))
    hub.handle("bob", Result("1"), 3.0)
    (finished,) = spans.take(10)
    assert context is not None
    assert finished.span == (context, 0)


@pytest.mark.parametrize("traceparent", ["", "nonsense"])
def test_unsampled_call_without_context_begins_no_trace(traceparent: str) -> None:
    hub, spans = traced_hub(0.0)
    assert forwarded_traceparent(hub, traceparent) == ""
    hub.handle("bob", Result("1"), 3.0)
    assert spans.take(10) == []


def test_sample_rate_decides_how_many_traces_begin() -> None:
    hub, spans = traced_hub(0.25, max_waiting=5000)
    for number in range(1, 4001):
        forwarded_traceparent(hub)
        hub.handle("bob", Result(str(number)), 3.0)
    taken = spans.take(5000)
    assert 800 < len(taken) < 1200
    assert len({finished.span.context for finished in taken}) == len(taken)


def test_span_of_failed_call_has_reason() -> None:
    hub, spans = traced_hub(1.0)
    forwarded_traceparent(hub)
    hub.handle("bob", Failure("1", Reason.RAISED, "no"), 2.0)
    forwarded_traceparent(hub)
    hub.leave("bob", 3.0)
    assert [finished.reason for finished in spans.take(10)] == [Reason.RAISED, Reason.LOST]


def test_each_delivery_of_durable_request_is_a_span_of_one_trace() -> None:
    hub, spans = traced_hub(0.0)
    join(hub, "nora", DURABLE_NQ)
    hub.handle("nora", Call("1", "a.b", traceparent=SAMPLED), 0.0)
    register_method(hub, "eve", "a.b")
    hub.leave("bob", 1.0)
    hub.handle("eve", Result("2"), 2.0)
    first, second = spans.take(10)
    assert (first.reason, second.reason) == (Reason.LOST, None)
    assert first.span.context.trace_id == second.span.context.trace_id
    assert first.span.parent == second.span.parent
    assert first.span.context.parent_span_id != second.span.context.parent_span_id


def test_spans_beyond_queue_limit_are_dropped_and_counted() -> None:
    hub, spans = traced_hub(1.0, max_waiting=10)
    for number in range(1, 26):
        forwarded_traceparent(hub)
        hub.handle("bob", Result(str(number)), 3.0)
    assert (len(spans), spans.dropped) == (10, 15)
    assert [finished.op for finished in spans.take(3)] == ["1", "2", "3"]


def test_without_tracing_context_is_forwarded_unchanged() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    assert forwarded_traceparent(hub, "whatever it is") == "whatever it is"
