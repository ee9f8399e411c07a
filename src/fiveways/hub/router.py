"""Routing of calls to callees and of responses to callers."""

from typing import Final

import msgspec

from fiveways.errors import LocalProtocolError, Reason
from fiveways.hub.attachments import Attachments
from fiveways.hub.builtin_methods import BuiltInMethods
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.durable_requests import DurableRequests
from fiveways.hub.name_spelling import respell, strip_prefix
from fiveways.hub.pending_calls import PendingCall, PendingCalls, operation_of
from fiveways.hub.pending_kinds import BufferedRequest, DurableRequest, HubRouteQuery, JobAssignment, RouteQuery
from fiveways.hub.queues import WorkQueues
from fiveways.hub.refusal import RETRY_AFTER, Refusal, bad_arguments, overloaded
from fiveways.hub.registrations import Registrations
from fiveways.hub.session import FrameAnnotation, Session
from fiveways.hub.stream_collector import CollectError, StreamCollector, as_array
from fiveways.hub.traffic_totals import CALLBACK_LABEL, FailureRecord
from fiveways.model.messages import Call, Cancel, Failure, Part, Progress, Result, Stray
from fiveways.model.outcomes import unsendable_reason, unsendable_result_failure
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload

_NOT_A_DESCRIPTION: Final = "the response is not a description"


class Router:
    """Forwards calls and responses, and ends every call exactly once."""

    def __init__(  # noqa: PLR0913, PLR0917  each table has an owner of its own
        self,
        limits: Limits,
        pending_calls: PendingCalls,
        registrations: Registrations,
        callbacks: Callbacks,
        attachments: Attachments,
        queues: WorkQueues,
        built_ins: BuiltInMethods,
        durable_requests: DurableRequests,
        counters: Counters,
    ) -> None:
        self._limits = limits
        self._max_pending = limits.max_pending
        self._pending_calls = pending_calls
        self._registrations = registrations
        self._find_method = registrations.find
        self._callbacks = callbacks
        self._attachments = attachments
        self._queues = queues
        self._built_ins = built_ins
        self._durable_requests = durable_requests
        self._counters = counters

    # Requests.

    def call(self, caller: Session, message: Call, now: float) -> Deliveries:
        """Forward a call to a callee of its method."""
        find_method = self._find_method
        method = None if message.callback else find_method(message.method)
        if method is None:
            return self._call_unregistered(caller, message, now)
        if caller.access.call is not None:
            caller.access.call.check("call", message.method)
        registrations = method.registrations
        registration = registrations[0] if len(registrations) == 1 else self._registrations.choose_callee(method)
        return self.forward(
            caller, message, registration.session, message.method, registration.spelling, method.collects_stream, now
        )

    def _call_unregistered(self, caller: Session, message: Call, now: float) -> Deliveries:
        """Call a callback, a built-in method, or a method below a route."""
        if message.callback:
            callback = self._callbacks.get(message.method)
            deliveries = self.forward(caller, message, callback.owner, callback.id, "", False, now)
            self._callbacks.consume(message.method)
            return deliveries
        if message.method in self._built_ins:
            return self._built_ins.call(caller, message, now)
        if caller.access.call is not None:
            caller.access.call.check("call", message.method)
        route = self._registrations.longest_route(message.method)
        if route is None:
            raise self._registrations.not_found_refusal(message.method)
        registration = self._registrations.choose_callee(route)
        name = strip_prefix(route.name, message.method)
        caller_style, callee_style = caller.traits.names, registration.session.traits.names
        spelling = registration.listed_names.get(name) or respell(
            message.spelling, route.name, message.method, caller_style, callee_style
        )
        return self.forward(caller, message, registration.session, name, spelling, route.collects_stream, now)

    def forward(
        self,
        caller: Session,
        message: Call,
        callee: Session,
        name: str,
        spelling: str,
        collects_stream: bool,
        now: float,
    ) -> Deliveries:
        """Forward a call to `callee`.

        `name` is the folded name of the method at the callee, without a route, or the id of a callback. `spelling` is
        that name as the callee's protocol writes it; empty if unknown.
        """
        calls_made = caller.calls_made
        if message.id in calls_made:
            raise bad_arguments(f"call {message.id} is already open")
        if len(calls_made) >= self._max_pending or len(callee.calls_served) >= self._max_pending:
            raise overloaded("too many calls are open")
        attachments = message.attachments
        if attachments:
            self._attachments.check_room(caller, attachments)
        collector = None
        if message.more and not callee.traits.accepts_streams:
            collector = self._start_collecting(caller, message)
        timeout = (
            self._pending_calls.default_timeout
            if message.timeout is None
            else self._pending_calls.bounded_timeout(message.timeout)
        )
        label = CALLBACK_LABEL if message.callback else message.method
        pending = self._pending_calls.open(caller, message.id, callee, label, timeout, now)
        op = caller.op = pending.op
        if attachments:
            attachments = self._attachments.relay(caller, attachments, (callee,), op, message.body)
        stream = message.stream
        if stream:
            pending.wants_stream = True
        elif collects_stream:
            # Request a stream, because a single array would be ambiguous: one element, or the array of all elements.
            stream = True
            pending.is_fast_path = False
        if message.progress:
            pending.wants_progress = True
        call = Call(
            op,
            name,
            message.body,
            spelling,
            attachments,
            message.callback,
            timeout,
            message.more,
            stream,
            message.progress,
            message.traceparent
            if self._pending_calls.span_recorder is None
            else self._pending_calls.start_span(pending, message.traceparent),
            message.redelivered,
            message.extras,
        )
        if message.more:
            pending.has_more_parts = True
            if collector is not None:
                pending.mark_special(BufferedRequest(call, collector))
                return []
        return [Delivery(callee.peer, call, op)]

    def _start_collecting(self, caller: Session, message: Call) -> StreamCollector:
        """Start to collect a streamed request for a callee whose protocol cannot receive streams."""
        if message.attachments:
            raise bad_arguments("a streamed request with attachments cannot be forwarded to a callee without streams")
        collector = StreamCollector(self._limits, caller.collected_bytes)
        try:
            collector.add(message.body)
        except CollectError as exc:
            raise Refusal(Reason.TOO_LARGE, f"the request is too large: {exc}") from exc
        return collector

    def forward_part(self, caller: Session, message: Part, now: float) -> Deliveries:
        """Forward one more part of a streamed request, or collect the parts until the last has arrived."""
        pending = caller.calls_made.get(message.id)
        if pending is None or not pending.has_more_parts:
            self._counters.stray += 1
            return []
        caller.op = pending.op
        pending.has_more_parts = not message.last
        kind, op = pending.kind, pending.op
        if not isinstance(kind, BufferedRequest):
            return [Delivery(pending.callee.peer, Part(op, message.body, message.last), op)]
        try:
            if message.body is not None:
                kind.collector.add(message.body)
            body = NULL if pending.has_more_parts else kind.collector.to_array()
        except CollectError as exc:
            text = f"the request is too large: {exc}"
            self._pending_calls.close(pending, now, Reason.TOO_LARGE, text)
            return self._fail(pending, Reason.TOO_LARGE, text)
        if pending.has_more_parts:
            return []
        kind.collector.clear()
        pending.kind, pending.is_fast_path = None, pending.wants_stream or not kind.call.stream
        time_left = max(0.0, pending.deadline - now)
        call = msgspec.structs.replace(kind.call, body=body, timeout=time_left, more=False)
        return [Delivery(pending.callee.peer, call, op)]

    def cancel(self, caller: Session, message: Cancel, now: float) -> Deliveries:
        """Cancel a call at its callee and end it for its caller."""
        pending = caller.calls_made.get(message.id)
        if pending is None:
            return []
        caller.op = operation_of(pending)
        self._pending_calls.close(pending, now, Reason.CANCELLED)
        return [*self._cancel_at_callee(pending), *self._end_without_result(pending, Reason.CANCELLED, "", now)]

    # Responses.

    def forward_result(self, callee: Session, message: Result, now: float) -> Deliveries:
        """Forward a result, or one part of a streamed result, to the caller."""
        pending = callee.calls_served.get(message.id)
        if pending is None:
            return self._drop_stray(callee)
        if message.stream or not pending.is_fast_path:
            callee.op = operation_of(pending)
            return self._forward_special_result(pending, message, now)
        callee.op = pending.op
        self._pending_calls.close(pending, now)
        self._counters.results += 1
        attachments = message.attachments
        if attachments:
            attachments = self._relay_attachments(pending, message)
        answer = Result(pending.id, message.body, attachments, extras=message.extras)
        return [Delivery(pending.caller.peer, answer, pending.op, pending)]

    def _forward_special_result(self, pending: PendingCall, message: Result, now: float) -> Deliveries:
        """Handle a result off the fast path: a stream, a collected stream, or a result for the hub itself."""
        kind = pending.kind
        if kind is None:
            return (
                self._forward_element(pending, message, now)
                if pending.wants_stream
                else self._collect_result(pending, message, now)
            )
        if isinstance(kind, BufferedRequest):
            return self._drop_stray(pending.callee)
        if isinstance(kind, DurableRequest):
            return self._forward_durable_result(pending, kind, message, now)
        if message.stream and not message.last:
            return []
        if isinstance(kind, RouteQuery):
            self._pending_calls.close(pending, now, Reason.RAISED, _NOT_A_DESCRIPTION)
            return self._fail(pending, Reason.RAISED, _NOT_A_DESCRIPTION)
        self._pending_calls.close(pending, now)
        return self._queues.complete(kind) if isinstance(kind, JobAssignment) else []

    def _forward_durable_result(
        self, pending: PendingCall, request: DurableRequest, message: Result, now: float
    ) -> Deliveries:
        if message.stream or message.attachments:
            request.has_streamed = True
            deliveries = self._forward_element(pending, message, now)
            return (
                [*deliveries, *self._durable_requests.finish_stream(request, now)]
                if message.last or not message.stream
                else deliveries
            )
        self._pending_calls.close(pending, now)
        return self._durable_requests.handle_result(pending, request, message, now)

    def _forward_element(self, pending: PendingCall, message: Result, now: float) -> Deliveries:
        is_last = message.last or not message.stream
        if is_last:
            self._pending_calls.close(pending, now)
            self._counters.results += 1
        attachments = self._relay_attachments(pending, message) if message.attachments else ()
        element = Result(pending.id, message.body, attachments, message.stream, message.last, message.extras)
        return [Delivery(pending.caller.peer, element, operation_of(pending), pending if is_last else None)]

    def _collect_result(self, pending: PendingCall, message: Result, now: float) -> Deliveries:
        """Collect a streamed result into one array for a caller that did not request a stream."""
        is_last = message.last or not message.stream
        try:
            body = self._add_to_array(pending, message)
        except CollectError as exc:
            text = f"the result cannot be collected into an array: {exc}"
            self._pending_calls.close(pending, now, Reason.RAISED, text)
            cancellation = [] if is_last else self._cancel_at_callee(pending)
            return [*cancellation, *self._fail(pending, Reason.RAISED, text)]
        if not is_last:
            return []
        self._pending_calls.close(pending, now)
        self._counters.results += 1
        attachments = self._relay_attachments(pending, message) if message.attachments else ()
        answer = Result(pending.id, body, attachments, extras=message.extras)
        return [Delivery(pending.caller.peer, answer, pending.op, pending)]

    def _add_to_array(self, pending: PendingCall, message: Result) -> Payload:
        """Add a part; return the collected array after the last part, otherwise NULL.

        CollectError if the result is too large or cannot be an array.
        """
        if pending.collector is None:
            if not message.stream:
                return as_array(message.body or NULL)
            pending.collector, pending.is_fast_path = (
                StreamCollector(self._limits, pending.callee.collected_bytes),
                False,
            )
        if message.attachments:
            raise CollectError("its elements have attachments")
        if message.body is not None:
            pending.collector.add(message.body)
        return pending.collector.to_array() if message.last or not message.stream else NULL

    def forward_failure(self, callee: Session, message: Failure, now: float) -> Deliveries:
        """Forward a failure to the caller."""
        pending = callee.calls_served.get(message.id)
        if pending is None or isinstance(pending.kind, BufferedRequest):
            return self._drop_stray(callee)
        callee.op = operation_of(pending)
        self._pending_calls.close(pending, now, message.reason, message.text)
        if isinstance(pending.kind, JobAssignment | HubRouteQuery):
            return self._end_without_result(pending, message.reason, message.text, now)
        if isinstance(pending.kind, DurableRequest):
            return self._durable_requests.handle_failure(pending.kind, message, now)
        self._counters.failures[message.reason] += 1
        failure = msgspec.structs.replace(message, id=pending.id)
        return [Delivery(pending.caller.peer, failure, pending.op)]

    def forward_progress(self, callee: Session, message: Progress, _now: float) -> Deliveries:
        """Forward progress to a caller that requested it."""
        pending = callee.calls_served.get(message.id)
        if pending is not None:
            callee.op = operation_of(pending)
        if pending is None or not pending.wants_progress:
            return []
        progress = Progress(pending.id, message.body, message.kind, message.code, message.text, message.args)
        return [Delivery(pending.caller.peer, progress, callee.op)]

    def count_stray(self, callee: Session, message: Stray, _now: float) -> Deliveries:
        """Count a response without a pending call."""
        return self._drop_stray(callee, message.text)

    def _drop_stray(self, callee: Session, text: str = "a response without a pending call") -> Deliveries:
        callee.annotation = FrameAnnotation("drop", text)
        self._counters.stray += 1
        return []

    def _relay_attachments(self, pending: PendingCall, message: Result) -> tuple[str, ...]:
        op = operation_of(pending)
        return self._attachments.relay(pending.callee, message.attachments, (pending.caller,), op, message.body)

    # Ends without a response.

    def expire(self, now: float) -> Deliveries:
        """End the calls whose deadlines have passed."""
        deliveries: Deliveries = []
        for pending in self._pending_calls.expire(now):
            deliveries += self._cancel_at_callee(pending)
            deliveries += self._end_without_result(pending, Reason.TIMEOUT, "", now)
        return deliveries

    def end_all(self, now: float) -> Deliveries:
        """End all open calls, because the hub is stopping."""
        deliveries: Deliveries = []
        for pending in self._pending_calls.all():
            deliveries += self._cancel_at_callee(pending)
            deliveries += self._fail_lost(pending, "the hub is closing", now)
        return deliveries

    def leave(self, session: Session, now: float) -> Deliveries:
        """End the calls that a session made, and those that it was serving."""
        deliveries: Deliveries = []
        for pending in list(session.calls_made.values()):
            self._pending_calls.close(pending, now, Reason.CANCELLED, "the caller is gone")
            deliveries += self._cancel_at_callee(pending)
        for pending in list(session.calls_served.values()):
            deliveries += self._fail_lost(pending, "the callee is gone", now)
        return deliveries

    def fail_undelivered(
        self, op: str, error: LocalProtocolError, now: float, *, is_partial: bool = False
    ) -> Deliveries:
        """End a call after the callee's protocol could not represent its request, or a later part of it."""
        pending = self._pending_calls.get(op)
        if pending is None:
            return []
        text = str(error)
        reason = Reason.LOST if is_partial else unsendable_reason(error)
        self._pending_calls.close(pending, now, reason, text)
        # A callee that received a part gets a cancellation: the effect of half a request is unknown.
        return [
            *(self._cancel_at_callee(pending) if is_partial else ()),
            *self._end_without_result(pending, reason, text, now),
        ]

    def fail_undelivered_result(
        self, caller: Session, call_id: str, undelivered: Delivery, error: LocalProtocolError, now: float
    ) -> Deliveries:
        """End a call after the caller's protocol could not represent its result, or a part of it."""
        deliveries: Deliveries = []
        pending, ended, protocol = caller.calls_made.get(call_id), undelivered.call, caller.traits.protocol
        text, name = unsendable_result_failure(error, protocol)
        if pending is not None and operation_of(pending) == undelivered.op:
            self._pending_calls.close(pending, now, Reason.RAISED, text)
            deliveries = self._cancel_at_callee(pending)
            if isinstance(pending.kind, DurableRequest):
                deliveries += self._durable_requests.finish_stream(pending.kind, now)
        elif isinstance(ended, PendingCall):
            self._counters.results -= 1  # counted just before, so no report includes it
            self._pending_calls.fail_closed(ended, Reason.RAISED, text, now)
        elif ended is not None:
            record = FailureRecord.at_hub(now, ended, caller, Reason.RAISED, text)
            self._counters.traffic.count_undeliverable(caller.traffic_label, record)
        self._counters.failures[Reason.RAISED] += 1
        return [*deliveries, Delivery(caller.peer, Failure(call_id, Reason.RAISED, text, name=name), undelivered.op)]

    def _cancel_at_callee(self, pending: PendingCall) -> Deliveries:
        """Cancel a call at its callee.

        If the callee's protocol has no cancellation, nothing is sent: only the protocol state of its session forgets
        the call.
        """
        callee = pending.callee
        if isinstance(pending.kind, BufferedRequest) or not callee.is_present:
            return []
        return [Delivery(callee.peer, Cancel(pending.op), operation_of(pending))]

    def _fail_lost(self, pending: PendingCall, text: str, now: float) -> Deliveries:
        """Fail a call whose response is lost; its method may have run, unless its request was still being collected."""
        reason = Reason.UNAVAILABLE if isinstance(pending.kind, BufferedRequest) else Reason.LOST
        self._pending_calls.close(pending, now, reason, text)
        return self._end_without_result(pending, reason, text, now)

    def _end_without_result(self, pending: PendingCall, reason: Reason, text: str, now: float) -> Deliveries:
        """End a closed call of any kind without a result."""
        if isinstance(pending.kind, JobAssignment):
            return self._queues.return_job(pending.kind, reason, text, now)
        if isinstance(pending.kind, DurableRequest):
            return self._durable_requests.handle_lost_callee(pending, pending.kind, reason, text, now)
        return [] if isinstance(pending.kind, HubRouteQuery) else self._fail(pending, reason, text)

    def _fail(self, pending: PendingCall, reason: Reason, text: str) -> Deliveries:
        self._counters.failures[reason] += 1
        wait = RETRY_AFTER if reason is Reason.OVERLOADED else None
        return [Delivery(pending.caller.peer, Failure(pending.id, reason, text, retry_after=wait), pending.op)]
