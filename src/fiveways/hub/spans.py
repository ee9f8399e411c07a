"""Trace spans of calls: sampling, and a queue of finished spans for the exporter.

The hub only creates tuples here; export is the task of another thread.
"""

from collections import deque
from contextlib import suppress
from random import Random
from typing import NamedTuple

from fiveways.errors import Reason
from fiveways.model.trace_context import TraceContext, format_traceparent, parse_traceparent


class Span(NamedTuple):
    """The span of a recorded call."""

    context: TraceContext
    """The trace context for its callee."""
    parent: int
    """The parent span; 0 if the trace begins here."""


class FinishedSpan(NamedTuple):
    """A finished call, with the public names of its peers."""

    span: Span
    method: str
    op: str
    caller: str
    callee: str
    caller_protocol: str
    callee_protocol: str
    started_at: float
    ended_at: float
    reason: Reason | None
    """None after a result."""


class SpanRecorder:
    """Samples calls, and queues finished spans until they are taken.

    A sampled trace of the caller is continued, an unsampled one is left alone. Of calls without a trace context, a part
    begins a new trace.
    """

    def __init__(self, random: Random, sample: float, max_waiting: int) -> None:
        """Create a recorder that samples this part of new traces and queues at most `max_waiting` finished spans."""
        self._random = random
        self.sample = sample
        self._max_waiting = max_waiting
        self._finished: deque[FinishedSpan] = deque()
        self.dropped = 0
        """Spans for which the queue had no room."""

    def begin(self, traceparent: str) -> tuple[Span | None, str]:
        """Start a call: return its span, if it is recorded, and the trace context for its callee."""
        parent = parse_traceparent(traceparent) if traceparent else None
        if parent is None:
            if self._random.random() >= self.sample:
                return None, ""  # an invalid trace context is not forwarded either
            parent = TraceContext(self._id(128), 0, is_sampled=True)
        elif not parent.is_sampled:
            return None, traceparent
        context = TraceContext(parent.trace_id, self._id(64), is_sampled=True)
        return Span(context, parent.parent_span_id), format_traceparent(context)

    def _id(self, bits: int) -> int:
        return self._random.getrandbits(bits) or 1

    def end(self, finished: FinishedSpan) -> None:
        """Queue the span of a finished call."""
        if len(self._finished) >= self._max_waiting:
            self.dropped += 1
        else:
            self._finished.append(finished)

    def mark_failed(self, span: Span, reason: Reason) -> None:
        """Mark a finished call as failed after all, unless its span was taken meanwhile."""
        newer: list[FinishedSpan] = []
        with suppress(IndexError):  # the exporter takes from the other end
            while (last := self._finished.pop()).span is not span:
                newer.append(last)
            self._finished.append(last._replace(reason=reason))
        self._finished.extend(reversed(newer))

    def __len__(self) -> int:
        return len(self._finished)

    def take(self, limit: int) -> list[FinishedSpan]:
        """Remove and return the oldest spans; safe to call from another thread."""
        taken: list[FinishedSpan] = []
        while len(taken) < limit and self._finished:
            taken.append(self._finished.popleft())
        return taken
