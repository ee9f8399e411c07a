"""Calls that wait for their answer: one owner for all indexes of them, for their deadlines, and for their numbers."""

from typing import Final

import msgspec

from fiveways.hub.collected import Collected
from fiveways.hub.errands import Held, Listing, Owed, Query, Work
from fiveways.hub.session import Session
from fiveways.hub.spans import Recorded, Span, Spans
from fiveways.hub.timers import Alarm, Timers
from fiveways.hub.traffic import Cell, Failed, Traffic
from fiveways.model.failures import Reason

_FOLDED_EVERY: Final = 0x3FF
"""The bits that are 0 in the number of a call after which it is counted how long those before took."""


class Pending(msgspec.Struct, gc=False):
    """One call that was passed on, or is about to be."""

    op: str
    """The hub's own id, by which the callee knows it."""
    caller: Session
    id: str
    """The caller's id."""
    callee: Session
    deadline: float
    method: str
    """Under which it is known to people: a name, or what sort of call it is."""
    began_at: float
    cell: Cell
    """Where it is counted."""
    span: Span | None = None
    """As what it is recorded, if it is."""
    plain: bool = True
    """Whatever the callee answers is passed on as it is, unless it is a stream."""
    stream: bool = False
    """The caller takes the answer in parts."""
    progress: bool = False
    """The caller wants to hear of progress."""
    more: bool = False
    """Parts of the request are still to come."""
    errand: Held | Listing | Owed | Query | Work | None = None
    """What it is beside a plain call."""
    answer: Collected | None = None
    """The streamed answer as far as it has come, where the caller takes it only whole."""


class Calls:
    """All pending calls: by caller and its id, by callee and ours, and in the order of their deadlines.

    Calls with the usual timeout run out in the order they were made, so that a dictionary is queue enough for them.
    """

    def __init__(self, call_timeout: float, max_timeout: float, alarm: Alarm, traffic: Traffic) -> None:
        self.alarm = alarm
        self._traffic = traffic
        self.spans: Spans | None = None
        """Where calls are recorded as spans of traces, if they are."""
        self.default = min(call_timeout, max_timeout)
        """The timeout of calls that name none."""
        self._longest = max_timeout
        self._usual: dict[str, Pending] = {}
        self._usual_first = 0.0
        """No usual deadline is earlier; known again exactly whenever that time has come."""
        self._far: dict[str, Pending] = {}
        self._far_first, self._far_last = 0.0, 0.0
        """The same for those that came in the order of their deadlines though they have a timeout of their own."""
        self._timed: dict[str, Pending] = {}
        self._timers = Timers(alarm)
        self.made = 0
        """How many there have been: the last of the hub's ids."""

    def __len__(self) -> int:
        return len(self._usual) + len(self._far) + len(self._timed)

    def set_timeouts(self, call_timeout: float, max_timeout: float) -> None:
        """Let these hold for new calls; open ones keep their deadlines."""
        default = min(call_timeout, max_timeout)
        if default != self.default:
            for op, pending in self._usual.items():
                self._timed[op] = pending
                self._timers.set(op, pending.deadline)
            self._usual.clear()
        self.default, self._longest = default, max_timeout

    def timeout(self, wanted: float) -> float:
        """Return how many seconds a call gets whose caller would wait so long."""
        return max(0.0, wanted) if wanted < self._longest else self._longest

    def open(self, caller: Session, call_id: str, callee: Session, method: str, timeout: float, now: float) -> Pending:
        """Take up a call. The caller has no other open one with this id."""
        self.made = made = self.made + 1
        op = str(made)
        deadline = now + timeout
        table = caller.cells.get(callee.traits.protocol)
        cell = None if table is None else table.get(method)
        if cell is None:
            cell = self._traffic.cell(method, caller.traits.protocol, callee.traits.protocol)
        cell.calls += 1
        if not made & _FOLDED_EVERY:
            self._traffic.fold()
        pending = Pending(op, caller, call_id, callee, deadline, method, now, cell)
        caller.asked[call_id] = callee.serving[op] = pending
        if timeout == self.default:
            if not self._usual:
                self._usual_first = deadline
                self.alarm.set(deadline)
            self._usual[op] = pending
        elif not self._far or deadline >= self._far_last:
            if not self._far:
                self._far_first = deadline
                self.alarm.set(deadline)
            self._far_last = deadline
            self._far[op] = pending
        else:
            self._timed[op] = pending
            self._timers.set(op, deadline)
        return pending

    def close(self, pending: Pending, now: float, reason: Reason | None = None, text: str = "") -> None:
        """Be done with a call that is open, and has an answer unless there is a reason."""
        op = pending.op
        pending.cell.waits.append(now - pending.began_at)
        if reason is not None:
            self._count_failure(pending, reason, text, now)
        if pending.span is not None and self.spans is not None:
            self.spans.end(_recorded(pending, pending.span, reason, now))
        del pending.caller.asked[pending.id], pending.callee.serving[op]
        if self._usual.pop(op, None) is None and self._far.pop(op, None) is None:
            del self._timed[op]
            self._timers.drop(op)
        if not pending.plain:
            _free(pending)

    def fail(self, pending: Pending, reason: Reason, text: str, now: float) -> None:
        """Know that a call has failed that was closed with an answer: nobody could be given that."""
        self._count_failure(pending, reason, text, now)
        if pending.span is not None and self.spans is not None:
            self.spans.fail(pending.span, reason)

    def traced(self, pending: Pending, traceparent: str) -> str:
        """Let a call that came with this trace context be recorded, if it is to be; return what its callee is told."""
        if self.spans is not None:
            pending.span, traceparent = self.spans.begin(traceparent)
        return traceparent

    def _count_failure(self, pending: Pending, reason: Reason, text: str, now: float) -> None:
        caller, callee, span = pending.caller, pending.callee, pending.span
        failed = Failed(now, pending.method, caller.traits.protocol, callee.traits.protocol, reason, text)
        self._traffic.failed(
            pending.cell,
            failed._replace(
                caller_peer=caller.name,
                callee_peer=callee.name,
                op=operation_of(pending),
                seconds=now - pending.began_at,
                trace="" if span is None else f"{span.own.trace:032x}",
            ),
        )

    def get(self, op: str) -> Pending | None:
        """Return the open call of this id."""
        return self._usual.get(op) or self._far.get(op) or self._timed.get(op)

    def all(self) -> list[Pending]:
        """Return every open call."""
        return [*self._usual.values(), *self._far.values(), *self._timed.values()]

    def deadline(self) -> float | None:
        """Return when to look for late calls: never too late, and at times too early."""
        first = self._timers.first()
        if self._usual and (first is None or self._usual_first < first):
            first = self._usual_first
        if self._far and (first is None or self._far_first < first):
            first = self._far_first
        return first

    def late(self, now: float) -> list[Pending]:
        """Return the calls whose time is over, and be done with them."""
        found = [self._timed[op] for op in self._timers.due(now)]
        if self._usual_first <= now:
            late, self._usual_first = _late(self._usual, now)
            found += late
        if self._far_first <= now:
            late, self._far_first = _late(self._far, now)
            found += late
        for pending in found:
            self.close(pending, now, Reason.TIMEOUT)
        return found


def operation_of(pending: Pending) -> str:
    """Return the id of what a call belongs to: a request that is owed may be given to several, one after the other."""
    return pending.errand.op if isinstance(pending.errand, Owed) else pending.op


def _late(calls: dict[str, Pending], now: float) -> tuple[list[Pending], float]:
    """Return those, of calls in the order of their deadlines, whose time is over; and the first deadline after it."""
    late: list[Pending] = []
    for pending in calls.values():
        if pending.deadline > now:
            return late, pending.deadline
        late.append(pending)
    return late, now


def _recorded(pending: Pending, span: Span, reason: Reason | None, now: float) -> Recorded:
    """Return what is known of a call that is over."""
    caller, callee = pending.caller, pending.callee
    protocols, times = (caller.traits.protocol, callee.traits.protocol), (pending.began_at, now)
    return Recorded(span, pending.method, pending.op, caller.name, callee.name, *protocols, *times, reason)


def _free(pending: Pending) -> None:
    """Let go of what was being put together."""
    if pending.answer is not None:
        pending.answer.free()
    if isinstance(pending.errand, Held):
        pending.errand.elements.free()
