"""Durable requests: accepted requests survive the loss of a callee and, with a store, a hub restart."""

from collections.abc import Sequence
from typing import Final

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.builtin_methods import BuiltInMethods
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.name_spelling import respell, strip_prefix
from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.refusal import RETRY_AFTER, Refusal, bad_arguments, overloaded
from fiveways.hub.registrations import MethodEntry, Registration, Registrations
from fiveways.hub.session import Handler, Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, SizedPool
from fiveways.hub.sizes import size_of
from fiveways.hub.store_status import StoreStatus
from fiveways.hub.stored_messages import encode_call, encode_failure, encode_result
from fiveways.hub.unresolved_requests import UnresolvedRequests
from fiveways.hub.unrouted import UnroutedCalls
from fiveways.hub.waiting_requests import WaitingRequests
from fiveways.model.messages import Accepted, Acknowledged, Call, Cancel, Failure, Result
from fiveways.model.store_changes import DropPeer, PutAnswer, PutPeer, PutRequest, PutTombstone
from fiveways.wire.payload import Json

_RETRYABLE: Final = frozenset({Reason.LOST, Reason.UNAVAILABLE, Reason.OVERLOADED, Reason.TIMEOUT})
"""Failures without an answer of the method: redelivery may succeed."""


class DurableRequests:
    """All durable requests: at a callee, waiting for a callee, or answered without acknowledgement."""

    def __init__(
        self,
        settings: HubSettings,
        pending_calls: PendingCalls,
        registrations: Registrations,
        built_ins: BuiltInMethods,
        counters: Counters,
        store_status: StoreStatus,
    ) -> None:
        self._store_status, self._is_durable = store_status, store_status.is_durable
        self._pending_calls = pending_calls
        self._registrations = registrations
        self._built_ins = built_ins
        self._counters = counters
        self.unrouted = UnroutedCalls(registrations, built_ins, counters.traffic)
        """Counts calls that reached no callee, durable or not."""
        self._by_key: dict[str, DurableRequest] = {}
        self._pool = SizedPool(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._last_number = 0
        self._waiting = store_status.waiting_requests = WaitingRequests(pending_calls.alarm, settings)
        self._unresolved = UnresolvedRequests(pending_calls.alarm)
        self._is_closed = False
        self._settings = settings

    def __len__(self) -> int:
        return len(self._by_key)

    def requests(self) -> list[DurableRequest]:
        """Return all durable requests."""
        return list(self._by_key.values())

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self._settings = settings
        self._pool.configure(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._waiting.configure(settings)

    def await_registrations(self, until: float) -> None:
        """Give callees of a previous hub process until this time to register, before their methods count as unknown."""
        self._unresolved.await_registrations(until)

    def close(self) -> None:
        """Dispatch no request any more; the next hub process does."""
        self._is_closed = True

    # Acceptance.

    def call_handler(self, fallback: Handler) -> Handler:
        """Return the handler of calls; `fallback` handles calls that cannot or need not be durable."""
        find = self._registrations.find

        def call(session: Session, message: Call, now: float) -> Deliveries:
            method = find(message.method)
            is_own = method is None and message.method in self._built_ins
            if is_own or message.callback or message.more or message.attachments:
                return fallback(session, message, now)
            return self._handle_call(session, message, method, now)

        return call

    def _handle_call(self, session: Session, message: Call, method: MethodEntry | None, now: float) -> Deliveries:
        if session.access.call is not None:
            session.access.call.check("call", message.method)
        key = _key(session.peer, message.id)
        if method is None:
            method = self._registrations.longest_route(message.method)
        may_register_soon = method is None and self._may_register_soon(message, now)
        if message.id in session.calls_made or key in self._by_key:
            raise bad_arguments(f"call {message.id} is already open")
        owner, size = session.owner, _size_of(message)
        has_callee = method is not None and self._has_callee(message.method, method)
        if excess := self._pool.excess(owner, size):
            raise overloaded(f"too many durable requests: {excess}")
        if not has_callee and (excess := self._waiting.pool.excess(owner, size)):
            raise overloaded(f"{message.method} has no available callee, and too many requests wait: {excess}")
        if self._store_status.unavailable_reason:
            self._store_status.check_available()
        request = self._add(key, session, message, now + self._settings.request_ttl, owner, size)
        if not has_callee:
            self._waiting.count(request)
        session.op = request.op
        if may_register_soon:
            self._unresolved.add(request)
            return []
        return self._accept(request, now)

    def _may_register_soon(self, message: Call, now: float) -> bool:
        """Return whether an unknown method may have had a callee before this hub started; raise Refusal if not."""
        refusal = self._registrations.not_found_refusal(message.method)
        if refusal.reason is Reason.UNAVAILABLE:
            return False
        if self._unresolved.is_grace_over(now):
            raise refusal
        return True

    def _accept(self, request: DurableRequest, now: float) -> Deliveries:
        session, message = request.session, request.call
        accepted = Delivery(session.peer, Accepted(message.id), request.op)
        if not self._is_durable:
            return [accepted, *self._dispatch(request, now)]
        # Dispatch only after the write: a failed write then proves that the method was not run.
        request.stored_expires_at = self._store_status.epoch + request.expires_at
        record = PutRequest(session.peer, message.id, encode_call(message), request.stored_expires_at)
        return [*self._persist_peer(session, now), Persist(record, [accepted], message.id)]

    def _has_callee(self, name: str, method: MethodEntry) -> bool:
        """Return whether a callee can take a request now."""
        if name in self._waiting.busy_methods:
            return False
        max_calls = self._settings.max_given
        return len(method.registrations[0].session.calls_served) < max_calls or any(
            len(registration.session.calls_served) < max_calls for registration in method.registrations
        )

    def handle_persisted(self, record: PutRequest, persist: Persist, now: float) -> Deliveries:
        """Accept a request that was written to the store, and dispatch it."""
        request = self._by_key.get(_key(record.peer, persist.call_id))
        if request is None or record.expires_at != request.stored_expires_at:
            return []  # its session has ended, and the peer may have made it again
        return [*persist.then] if self._is_closed else [*persist.then, *self._dispatch(request, now)]

    def _persist_peer(self, session: Session, now: float) -> Deliveries:
        """Write the peer of a durable request to the store, with the owner of the share that it uses."""
        owner = session.owner
        if session.stored_owner == owner:
            return []
        session.stored_owner = owner
        return [Persist(PutPeer(session.peer, session.identity, self._store_status.epoch + now, session.remote), [])]

    def handle_not_persisted(self, record: PutRequest, call_id: str, error: str, now: float) -> Deliveries:
        """Fail a request that could not be written to the store and so was not accepted; the caller may retry."""
        request = self._by_key.get(_key(record.peer, call_id))
        if request is None or record.expires_at != request.stored_expires_at:
            return []
        self._remove(request)
        self._counters.failures[Reason.OVERLOADED] += 1
        self.unrouted.count(request.session, request.call, Reason.OVERLOADED, error, now)
        return [Delivery(record.peer, Failure(call_id, Reason.OVERLOADED, error, retry_after=RETRY_AFTER), request.op)]

    def restore(self, session: Session, message: Call, expires_at: float, now: float) -> Deliveries:
        """Restore a request that a previous hub process accepted; `expires_at` is Unix time."""
        key, owner = _key(session.peer, message.id), session.owner
        request = self._add(key, session, message, expires_at - self._store_status.epoch, owner, _size_of(message))
        request.tries = 1
        self._store_status.note_restored(request)
        return self._dispatch(request, now)

    def _add(
        self, key: str, session: Session, message: Call, expires_at: float, owner: Owner, size: int
    ) -> DurableRequest:
        self._last_number += 1
        self._pool.acquire(owner, size)
        session.durable_requests += 1
        request = self._by_key[key] = DurableRequest(
            key, session, message, expires_at, owner, size, f"n{self._last_number}"
        )
        return request

    def _remove(self, request: DurableRequest) -> None:
        if self._by_key.pop(request.key, None) is not None:
            request.session.durable_requests -= 1
            self._pool.release(request.owner, request.size)
            if request.has_no_callee:
                self._waiting.uncount(request)

    def _dispatch(self, request: DurableRequest, now: float) -> Deliveries:
        """Send a request to a callee, or let it wait for one."""
        if request.call.method in self._waiting.busy_methods:
            self._waiting.wait_for_room(request, now)
            return []
        try:
            target = self._choose_callee(request)
        except Refusal as refusal:
            if refusal.reason is Reason.OVERLOADED:
                self._waiting.wait_for_room(request, now)
            else:
                self._waiting.add(request)
            return []
        return self._send_to_callee(request, target, now)

    def _send_to_callee(
        self, request: DurableRequest, target: tuple[Registration, str, str, bool], now: float
    ) -> Deliveries:
        registration, name, spelling, collects_stream = target
        message, callee = request.call, registration.session
        request.tries += 1
        if request.has_no_callee:
            self._waiting.uncount(request)
        time_left = max(0.0, request.expires_at - now)
        pending = self._pending_calls.open(request.session, message.id, callee, message.method, time_left, now)
        pending.mark_special(request, wants_stream=True, wants_progress=True)
        call = Call(
            pending.op,
            name,
            message.body,
            spelling,
            stream=collects_stream,
            progress=True,
            traceparent=self._pending_calls.start_span(pending, message.traceparent),
            redelivered=request.tries > 1,
            extras=message.extras,
        )
        return [Delivery(callee.peer, call, request.op)]

    def _choose_callee(self, request: DurableRequest) -> tuple[Registration, str, str, bool]:
        """Return a callee with its name, spelling and stream mode for the method; raise Refusal if there is none."""
        name = request.call.method
        method = self._registrations.find(name)
        if method is not None:
            registration = self._registrations.choose_callee(method, self._settings.max_given)
            return registration, name, registration.spelling, method.collects_stream
        route = self._registrations.longest_route(name)
        if route is None:
            raise self._registrations.not_found_refusal(name)
        registration = self._registrations.choose_callee(route, self._settings.max_given)
        name_below_route = strip_prefix(route.name, name)
        caller_style, callee_style = request.session.traits.names, registration.session.traits.names
        spelling = registration.listed_names.get(name_below_route) or respell(
            request.call.spelling, route.name, name, caller_style, callee_style
        )
        return registration, name_below_route, spelling, route.collects_stream

    def handle_registration(self, name: str, *, is_route: bool, now: float) -> Deliveries:
        """Dispatch the requests that waited for this registration."""
        deliveries: Deliveries = []
        for request in self._unresolved.take(name, is_route=is_route):
            # The peer may have left or cancelled meanwhile, and sent a new request under the same key.
            if self._by_key.get(request.key) is request:
                deliveries += self._accept(request, now)
        for request in self._waiting.take(name, is_route=is_route):
            request.retry_delay = 0.0
            deliveries += self._dispatch(request, now)
        return deliveries

    # Completion.

    def handle_result(self, pending: PendingCall, request: DurableRequest, result: Result, now: float) -> Deliveries:
        """Deliver a result to the caller, after it is written to the store."""
        answer = Result(request.call.id, result.body, extras=result.extras)
        delivery = Delivery(request.session.peer, answer, request.op, pending)
        if not self._is_durable:
            self._counters.results += 1
            return self._finish(request, delivery, b"", now)
        try:
            encoded = encode_result(result)
        except (Unrepresentable, UnicodeEncodeError) as exc:
            text = f"the result cannot be stored: {exc}"
            self._pending_calls.fail_closed(pending, Reason.RAISED, text, now)
            return self.handle_failure(request, Failure(request.call.id, Reason.RAISED, text), now)
        return self._finish(request, delivery, encoded, now)

    def count_results(self, answers: Sequence[Delivery]) -> None:
        """Count results on delivery: until then it is unknown whether they can be written."""
        self._counters.results += sum(type(answer.message) is Result for answer in answers)

    def handle_failure(self, request: DurableRequest, message: Failure, now: float) -> Deliveries:
        """Deliver a failure to the caller, or retry if the method did not run to its end."""
        if message.reason in _RETRYABLE and now < request.expires_at and not request.has_streamed:
            if request.session.is_present and not self._is_closed:
                self._waiting.retry_later(request, now)
            return []
        self._counters.failures[message.reason] += 1
        text = "" if message.reason in _RETRYABLE else message.text
        reason = Reason.TIMEOUT if message.reason in _RETRYABLE else message.reason
        wording = None if message.reason in _RETRYABLE else message.wording
        failure = Failure(
            request.call.id, reason, text, message.data, message.retry_after, message.name, message.code, wording
        )
        try:
            encoded = encode_failure(failure)
        except (Unrepresentable, UnicodeEncodeError):
            # The fact of the failure matters more than its exact text.
            text = text.encode(errors="replace").decode()
            failure = Failure(request.call.id, reason, text, retry_after=message.retry_after, code=message.code)
            encoded = encode_failure(failure)
        return self._finish(request, Delivery(request.session.peer, failure, request.op), encoded, now)

    def finish_stream(self, request: DurableRequest, now: float) -> Deliveries:
        """End a request after the last part of its result; parts are not stored, so a new hub process redelivers it."""
        self._remove(request)
        return self._dispatch_next(request.call.method, now)

    def handle_lost_callee(
        self, pending: PendingCall, request: DurableRequest, reason: Reason, text: str, now: float
    ) -> Deliveries:
        """Redeliver a request to the next callee after the loss of the last one, or fail it."""
        if self._is_closed or not request.session.is_present:
            return []
        if reason is Reason.LOST and now < request.expires_at and not request.has_streamed:
            return self._dispatch(request, now)
        if reason is Reason.TIMEOUT:
            request.expires_at = now  # the clock of calls may be a little ahead
        return self.handle_failure(request, Failure(pending.id, reason, text), now)

    def _finish(self, request: DurableRequest, delivery: Delivery, encoded: bytes, now: float) -> Deliveries:
        self._remove(request)
        deliveries: Deliveries = [delivery]
        if self._is_durable:
            expires_at = self._store_status.epoch + now + self._settings.answer_ttl
            deliveries = [
                Persist(PutAnswer(delivery.peer, request.call.id, encoded, expires_at), [delivery], request.call.id)
            ]
        if self._waiting:
            deliveries += self._dispatch_next(request.call.method, now)
        return deliveries

    def _dispatch_next(self, method: str, now: float) -> Deliveries:
        """Dispatch the next waiting request of a method, if a callee has room."""
        request = self._waiting.next_for(method)
        if request is None:
            return []
        try:
            target = self._choose_callee(request)
        except Refusal:
            return []
        self._waiting.remove(request)
        return self._send_to_callee(request, target, now)

    def cancel_handler(self, fallback: Handler) -> Handler:
        """Return the handler of cancellations; `fallback` handles those of requests at a callee."""

        def cancel(session: Session, message: Cancel, now: float) -> Deliveries:
            request = self._by_key.get(_key(session.peer, message.id))
            if request is None or message.id in session.calls_made:
                return fallback(session, message, now)
            session.op = request.op
            self._waiting.remove(request)
            self.unrouted.count(session, request.call, Reason.CANCELLED, "", now)
            return self.handle_failure(request, Failure(message.id, Reason.CANCELLED), now)

        return cancel

    def handle_acknowledged(self, session: Session, message: Acknowledged, now: float) -> Deliveries:
        """Replace the stored answer of an acknowledged request by a tombstone."""
        if not self._is_durable:
            return []
        return [
            Persist(
                PutTombstone(
                    session.peer, message.id, self._store_status.epoch + now + self._settings.duplicate_window
                ),
                [],
            )
        ]

    def leave(self, session: Session) -> Deliveries:
        """Delete all requests of a session that has ended."""
        if session.durable_requests:
            for request in [request for request in self._by_key.values() if request.session is session]:
                self._waiting.remove(request)
                self._remove(request)
        return [Persist(DropPeer(session.peer), [])] if session.stored_owner is not None else []

    def deadline(self) -> float | None:
        """Return the time of the next call of `expire`."""
        times = self._waiting.deadline(), self._unresolved.deadline()
        return min((time for time in times if time is not None), default=None)

    def expire(self, now: float) -> Deliveries:
        """Retry requests that no callee could take; fail those that have expired."""
        deliveries: Deliveries = []
        for request in self._unresolved.expire(now):
            if self._by_key.get(request.key) is not request:
                continue
            self._remove(request)
            session, message = request.session, request.call
            missing = self._registrations.not_found_refusal(message.method)
            self._counters.failures[missing.reason] += 1
            self.unrouted.count(session, message, missing.reason, missing.text, now)
            deliveries.append(Delivery(session.peer, Failure(message.id, missing.reason, missing.text)))
        for request in self._waiting.expire(now):
            self.unrouted.count(request.session, request.call, Reason.TIMEOUT, "", now)
            deliveries += self.handle_failure(request, Failure(request.call.id, Reason.TIMEOUT), now)
        requests, methods = self._waiting.due(now)
        for request in requests:
            deliveries += self._dispatch(request, now)
        for method in methods:
            deliveries += self._dispatch_waiting(method, now)
        return deliveries

    def _dispatch_waiting(self, method: str, now: float) -> Deliveries:
        """Dispatch as many waiting requests of a method as its callees have room for."""
        deliveries: Deliveries = []
        while dispatched := self._dispatch_next(method, now):
            deliveries += dispatched
        request = self._waiting.next_for(method)
        if request is not None and (self._registrations.find(method) or self._registrations.longest_route(method)):
            self._waiting.wait_for_room(request, now)
        return deliveries


def _size_of(message: Call) -> int:
    return len(message.body.raw) if type(message.body) is Json else size_of(message.body)


def _key(peer: str, call_id: str) -> str:
    return f"{peer} {call_id}"
