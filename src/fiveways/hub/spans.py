"""Calls as spans of traces: which of them are recorded, and what is known of each when it is over.

Nothing is made here but tuples: to write them down is the business of somebody who has time.
"""

from collections import deque
from contextlib import suppress
from random import Random
from typing import NamedTuple

from fiveways.errors import Reason
from fiveways.model.trace_context import TraceContext, format_traceparent, parse_traceparent


class Span(NamedTuple):
    """One call that is recorded."""

    context: TraceContext
    """What its callee is told."""
    parent: int
    """The span that caused it; 0 if the trace begins here."""


class FinishedSpan(NamedTuple):
    """One call that is over. Peers are named as others may know them."""

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
    """Why it failed, if it did."""


class SpanRecorder:
    """Decides which calls are recorded, and keeps what was, until somebody takes it.

    A trace that the caller says is recorded is gone on with, and one that it says is not is left alone. Of calls that
    come without one, some begin one.
    """

    def __init__(self, random: Random, sample: float, max_waiting: int) -> None:
        """Make it; `sample` is the part of calls without a trace that begin one, `max_waiting` is what is kept."""
        self._random = random
        self.sample = sample
        self._max_waiting = max_waiting
        self._finished: deque[FinishedSpan] = deque()
        self.dropped = 0
        """Calls for which there was no room."""

    def begin(self, traceparent: str) -> tuple[Span | None, str]:
        """Begin with a call: return what it is recorded as, if it is, and what its callee is told."""
        parent = parse_traceparent(traceparent) if traceparent else None
        if parent is None:
            if self._random.random() >= self.sample:
                return None, ""  # what is no trace context is not passed on either
            parent = TraceContext(self._id(128), 0, is_sampled=True)
        elif not parent.is_sampled:
            return None, traceparent
        context = TraceContext(parent.trace_id, self._id(64), is_sampled=True)
        return Span(context, parent.parent_span_id), format_traceparent(context)

    def _id(self, bits: int) -> int:
        return self._random.getrandbits(bits) or 1

    def end(self, finished: FinishedSpan) -> None:
        """Know that a call is over."""
        if len(self._finished) >= self._max_waiting:
            self.dropped += 1
        else:
            self._finished.append(finished)

    def mark_failed(self, span: Span, reason: Reason) -> None:
        """Know that a call failed that was over already, with a result; too late if it was taken meanwhile."""
        newer: list[FinishedSpan] = []
        with suppress(IndexError):  # somebody may take from the other end
            while (last := self._finished.pop()).span is not span:
                newer.append(last)
            self._finished.append(last._replace(reason=reason))
        self._finished.extend(reversed(newer))

    def __len__(self) -> int:
        return len(self._finished)

    def take(self, limit: int) -> list[FinishedSpan]:
        """Return the next ones, and forget them. This may be called from another thread."""
        taken: list[FinishedSpan] = []
        while len(taken) < limit and self._finished:
            taken.append(self._finished.popleft())
        return taken
