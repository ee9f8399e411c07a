"""Calls as spans: which are recorded, what their callees are told, and what is known of them in the end."""

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
from tests.support.hub_helpers import join, offer, only, opened

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
RELIABLE = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True, is_durable=True)


def traced(sample: float, most: int = 100) -> tuple[Hub, SpanRecorder]:
    hub, spans = opened(), SpanRecorder(Random(1), sample, most)
    hub.set_span_recorder(spans)
    offer(hub, "bob", "a.b")
    return hub, spans


def passed_on(hub: Hub, traceparent: str = "", now: float = 1.0) -> str:
    call = only(hub.handle("ann", Call("c", "a.b", traceparent=traceparent), now), Call)
    return str(call.traceparent)


def test_sampled_trace_is_continued() -> None:
    hub, spans = traced(0.0)
    told = parse_traceparent(passed_on(hub, SAMPLED))
    hub.handle("bob", Result("1"), 3.0)
    (recorded,) = spans.take(10)
    cause = parse_traceparent(SAMPLED)
    assert told is not None
    assert cause is not None
    assert told.trace_id == cause.trace_id
    assert told.parent_span_id != cause.parent_span_id
    assert recorded == FinishedSpan(
        Span(told, cause.parent_span_id),
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
    hub, spans = traced(1.0)
    assert passed_on(hub, UNSAMPLED) == UNSAMPLED
    hub.handle("bob", Result("1"), 3.0)
    assert spans.take(10) == []


@pytest.mark.parametrize("line", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 100_000])
def test_sampled_call_without_context_begins_a_trace(line: str) -> None:
    hub, spans = traced(1.0)
    told = parse_traceparent(passed_on(hub, line))
    hub.handle("bob", Result("1"), 3.0)
    (recorded,) = spans.take(10)
    assert told is not None
    assert recorded.span == (told, 0)


@pytest.mark.parametrize("line", ["", "nonsense"])
def test_unsampled_call_without_context_begins_no_trace(line: str) -> None:
    hub, spans = traced(0.0)
    assert passed_on(hub, line) == ""
    hub.handle("bob", Result("1"), 3.0)
    assert spans.take(10) == []


def test_sample_rate_decides_how_many_traces_begin() -> None:
    hub, spans = traced(0.25, most=5000)
    for number in range(1, 4001):
        passed_on(hub)
        hub.handle("bob", Result(str(number)), 3.0)
    taken = spans.take(5000)
    assert 800 < len(taken) < 1200
    assert len({recorded.span.context for recorded in taken}) == len(taken)


def test_span_of_failed_call_has_reason() -> None:
    hub, spans = traced(1.0)
    passed_on(hub)
    hub.handle("bob", Failure("1", Reason.RAISED, "no"), 2.0)
    passed_on(hub)
    hub.leave("bob", 3.0)
    assert [recorded.reason for recorded in spans.take(10)] == [Reason.RAISED, Reason.LOST]


def test_each_delivery_of_durable_request_is_a_span_of_one_trace() -> None:
    hub, spans = traced(0.0)
    join(hub, "nora", RELIABLE)
    hub.handle("nora", Call("1", "a.b", traceparent=SAMPLED), 0.0)
    offer(hub, "eve", "a.b")
    hub.leave("bob", 1.0)
    hub.handle("eve", Result("2"), 2.0)
    first, second = spans.take(10)
    assert (first.reason, second.reason) == (Reason.LOST, None)
    assert first.span.context.trace_id == second.span.context.trace_id
    assert first.span.parent == second.span.parent
    assert first.span.context.parent_span_id != second.span.context.parent_span_id


def test_spans_beyond_queue_limit_are_dropped_and_counted() -> None:
    hub, spans = traced(1.0, most=10)
    for number in range(1, 26):
        passed_on(hub)
        hub.handle("bob", Result(str(number)), 3.0)
    assert (len(spans), spans.dropped) == (10, 15)
    assert [recorded.op for recorded in spans.take(3)] == ["1", "2", "3"]


def test_without_tracing_context_is_forwarded_unchanged() -> None:
    hub = opened()
    offer(hub, "bob", "a.b")
    assert passed_on(hub, "whatever it is") == "whatever it is"
