"""Pending calls: the owner of all their indexes, of their deadlines and of their ids."""

from typing import Final, TypeAlias

import msgspec

from fiveways.errors import Reason
from fiveways.hub.pending_kinds import BufferedRequest, DurableRequest, HubRouteQuery, JobAssignment, RouteQuery
from fiveways.hub.session import Session
from fiveways.hub.spans import FinishedSpan, Span, SpanRecorder
from fiveways.hub.stream_collector import StreamCollector
from fiveways.hub.timers import Timers, WakeTime
from fiveways.hub.traffic_totals import CallStats, FailureRecord, TrafficTotals

_AGGREGATE_MASK: Final = 0x3FF
"""Call durations are aggregated after each call that has zeros in these bits of its number."""

SpecialKind: TypeAlias = BufferedRequest | HubRouteQuery | DurableRequest | RouteQuery | JobAssignment


class PendingCall(msgspec.Struct, gc=False):
    """One call that was forwarded or is about to be."""

    op: str
    """The hub's id, by which the callee knows the call."""
    caller: Session
    id: str
    """The caller's id."""
    callee: Session
    deadline: float
    method: str
    """The method name, or another label, for reports."""
    started_at: float
    stats: CallStats
    """Counters of this method for the protocols of caller and callee."""
    span: Span | None = None
    """The trace span, if the call is recorded."""
    is_fast_path: bool = True
    """A result without stream is forwarded unchanged."""
    wants_stream: bool = False
    """The caller takes a streamed result."""
    wants_progress: bool = False
    """The caller wants progress."""
    has_more_parts: bool = False
    """The request is streamed and its last part has not come."""
    kind: SpecialKind | None = None
    """None for an ordinary call."""
    collector: StreamCollector | None = None
    """The streamed result so far, for a caller without streams."""

    def mark_special(self, kind: SpecialKind, *, wants_stream: bool = False, wants_progress: bool = False) -> None:
        """Set the kind of a call other than an ordinary one, and take it off the fast path."""
        self.kind, self.is_fast_path = kind, False
        self.wants_stream = self.wants_stream or wants_stream
        self.wants_progress = self.wants_progress or wants_progress


class PendingCalls:
    """All pending calls by caller and the caller's id, by callee and the hub's id, and by deadline.

    Calls with the default timeout expire in the order of their creation, so a dictionary is a sufficient queue.
    """

    def __init__(self, call_timeout: float, max_timeout: float, alarm: WakeTime, traffic: TrafficTotals) -> None:
        self.alarm = alarm
        self._traffic = traffic
        self.span_recorder: SpanRecorder | None = None
        """Records calls as trace spans, if tracing is on."""
        self.default_timeout = min(call_timeout, max_timeout)
        """Timeout of calls without one of their own."""
        self._max_timeout = max_timeout
        self._with_default_timeout: dict[str, PendingCall] = {}
        self._first_default_deadline = 0.0
        """A lower bound of the deadlines with the default timeout; exact again after each `expire` at that time."""
        self._in_deadline_order: dict[str, PendingCall] = {}
        self._first_ordered_deadline, self._last_ordered_deadline = 0.0, 0.0
        """The same for calls with other timeouts that came in the order of their deadlines."""
        self._with_timer: dict[str, PendingCall] = {}
        self._timers = Timers(alarm)
        self.count = 0
        """Number of calls so far, and the last of the hub's ids."""

    def __len__(self) -> int:
        return len(self._with_default_timeout) + len(self._in_deadline_order) + len(self._with_timer)

    def set_timeouts(self, call_timeout: float, max_timeout: float) -> None:
        """Set the timeouts of new calls; pending calls keep their deadlines."""
        default = min(call_timeout, max_timeout)
        if default != self.default_timeout:
            for op, pending in self._with_default_timeout.items():
                self._with_timer[op] = pending
                self._timers.set(op, pending.deadline)
            self._with_default_timeout.clear()
        self.default_timeout, self._max_timeout = default, max_timeout

    def bounded_timeout(self, requested: float) -> float:
        """Return a caller's timeout within the allowed range."""
        return max(0.0, requested) if requested < self._max_timeout else self._max_timeout

    def open(
        self, caller: Session, call_id: str, callee: Session, method: str, timeout: float, now: float
    ) -> PendingCall:
        """Create a pending call; the caller has no other one with this id."""
        self.count = number = self.count + 1
        op = str(number)
        deadline = now + timeout
        methods = caller.call_stats.get(callee.traits.protocol)
        stats = None if methods is None else methods.get(method)
        if stats is None:
            stats = self._traffic.call_stats(method, caller.traits.protocol, callee.traits.protocol)
        stats.calls += 1
        if not number & _AGGREGATE_MASK:
            self._traffic.aggregate_calls()
        pending = PendingCall(op, caller, call_id, callee, deadline, method, now, stats)
        caller.calls_made[call_id] = callee.calls_served[op] = pending
        if timeout == self.default_timeout:
            if not self._with_default_timeout:
                self._first_default_deadline = deadline
                self.alarm.set_latest(deadline)
            self._with_default_timeout[op] = pending
        elif not self._in_deadline_order or deadline >= self._last_ordered_deadline:
            if not self._in_deadline_order:
                self._first_ordered_deadline = deadline
                self.alarm.set_latest(deadline)
            self._last_ordered_deadline = deadline
            self._in_deadline_order[op] = pending
        else:
            self._with_timer[op] = pending
            self._timers.set(op, deadline)
        return pending

    def close(self, pending: PendingCall, now: float, reason: Reason | None = None, text: str = "") -> None:
        """End a pending call: with a result, or for a reason with a failure."""
        op = pending.op
        pending.stats.durations.append(now - pending.started_at)
        if reason is not None:
            self._count_failure(pending, reason, text, now)
        if pending.span is not None and self.span_recorder is not None:
            self.span_recorder.end(_finished_span(pending, pending.span, reason, now))
        del pending.caller.calls_made[pending.id], pending.callee.calls_served[op]
        if self._with_default_timeout.pop(op, None) is None and self._in_deadline_order.pop(op, None) is None:
            del self._with_timer[op]
            self._timers.cancel(op)
        if not pending.is_fast_path:
            _free_collectors(pending)

    def fail_closed(self, pending: PendingCall, reason: Reason, text: str, now: float) -> None:
        """Count a closed call as a failure, because its result could not be delivered."""
        self._count_failure(pending, reason, text, now)
        if pending.span is not None and self.span_recorder is not None:
            self.span_recorder.mark_failed(pending.span, reason)

    def start_span(self, pending: PendingCall, traceparent: str) -> str:
        """Start a trace span for a call, if it is sampled; return the trace context for its callee."""
        if self.span_recorder is not None:
            pending.span, traceparent = self.span_recorder.begin(traceparent)
        return traceparent

    def _count_failure(self, pending: PendingCall, reason: Reason, text: str, now: float) -> None:
        caller, callee, span = pending.caller, pending.callee, pending.span
        record = FailureRecord(
            now,
            pending.method,
            caller.traits.protocol,
            callee.traits.protocol,
            reason,
            text,
            caller_peer=caller.name,
            callee_peer=callee.name,
            op=operation_of(pending),
            seconds=now - pending.started_at,
            trace="" if span is None else f"{span.context.trace_id:032x}",
        )
        self._traffic.count_failure(pending.stats, record)

    def get(self, op: str) -> PendingCall | None:
        """Return the pending call of this id."""
        return self._with_default_timeout.get(op) or self._in_deadline_order.get(op) or self._with_timer.get(op)

    def all(self) -> list[PendingCall]:
        """Return all pending calls."""
        return [*self._with_default_timeout.values(), *self._in_deadline_order.values(), *self._with_timer.values()]

    def deadline(self) -> float | None:
        """Return the time of the next call of `expire`; it may be too early but never too late."""
        first = self._timers.next_due()
        if self._with_default_timeout and (first is None or self._first_default_deadline < first):
            first = self._first_default_deadline
        if self._in_deadline_order and (first is None or self._first_ordered_deadline < first):
            first = self._first_ordered_deadline
        return first

    def expire(self, now: float) -> list[PendingCall]:
        """End and return the calls after their deadlines."""
        expired = [self._with_timer[op] for op in self._timers.pop_due(now)]
        if self._first_default_deadline <= now:
            due, self._first_default_deadline = _expired(self._with_default_timeout, now)
            expired += due
        if self._first_ordered_deadline <= now:
            due, self._first_ordered_deadline = _expired(self._in_deadline_order, now)
            expired += due
        for pending in expired:
            self.close(pending, now, Reason.TIMEOUT)
        return expired


def operation_of(pending: PendingCall) -> str:
    """Return the operation of a call; all deliveries of a durable request share one."""
    return pending.kind.op if isinstance(pending.kind, DurableRequest) else pending.op


def _expired(calls: dict[str, PendingCall], now: float) -> tuple[list[PendingCall], float]:
    """Return the expired calls, from calls in the order of their deadlines, and the next deadline."""
    expired: list[PendingCall] = []
    for pending in calls.values():
        if pending.deadline > now:
            return expired, pending.deadline
        expired.append(pending)
    return expired, now


def _finished_span(pending: PendingCall, span: Span, reason: Reason | None, now: float) -> FinishedSpan:
    caller, callee = pending.caller, pending.callee
    protocols, times = (caller.traits.protocol, callee.traits.protocol), (pending.started_at, now)
    return FinishedSpan(span, pending.method, pending.op, caller.name, callee.name, *protocols, *times, reason)


def _free_collectors(pending: PendingCall) -> None:
    if pending.collector is not None:
        pending.collector.clear()
    if isinstance(pending.kind, BufferedRequest):
        pending.kind.collector.clear()
