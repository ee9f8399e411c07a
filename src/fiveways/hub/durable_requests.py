"""Requests of peers that were promised an answer: they outlive their callees, and with a store the hub itself."""

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
"""What a callee, or its absence, may say without having answered: another try is worth it."""


class DurableRequests:
    """All that is owed, wherever it stands: with a callee, waiting for one, or answered and not acknowledged."""

    def __init__(
        self,
        settings: HubSettings,
        calls: PendingCalls,
        offers: Registrations,
        built_ins: BuiltInMethods,
        counters: Counters,
        storage: StoreStatus,
    ) -> None:
        self._store_status, self._is_durable = storage, storage.is_durable
        self._pending_calls = calls
        self._registrations = offers
        self._built_ins = built_ins
        self._counters = counters
        self.unrouted = UnroutedCalls(offers, built_ins, counters.traffic)
        """Where calls are counted that nobody was given, owed or not."""
        self._by_key: dict[str, DurableRequest] = {}
        self._pool = SizedPool(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._last_number = 0
        self._waiting = storage.waiting_requests = WaitingRequests(calls.alarm, settings)
        self._unresolved = UnresolvedRequests(calls.alarm)
        self._is_closed = False
        self._settings = settings

    def __len__(self) -> int:
        return len(self._by_key)

    def requests(self) -> list[DurableRequest]:
        """Return all of them."""
        return list(self._by_key.values())

    def configure(self, settings: HubSettings) -> None:
        """Let these hold from now on."""
        self._settings = settings
        self._pool.configure(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._waiting.configure(settings)

    def await_registrations(self, until: float) -> None:
        """Give those who served an earlier hub until then to come back, before their methods are said to be unknown."""
        self._unresolved.await_registrations(until)

    def close(self) -> None:
        """Give nothing to anybody any more: what is owed is owed by the next hub."""
        self._is_closed = True

    # Taking them.

    def call_handler(self, otherwise: Handler) -> Handler:
        """Return what is done with a call; what cannot be kept, or need not be, is done `otherwise`."""
        find = self._registrations.find

        def call(session: Session, word: Call, now: float) -> Deliveries:
            is_own = find(word.method) is None and word.method in self._built_ins
            if is_own or word.callback or word.more or word.attachments:
                return otherwise(session, word, now)
            return self._handle_call(session, word, now)

        return call

    def _handle_call(self, session: Session, word: Call, now: float) -> Deliveries:
        if session.access.call is not None:
            session.access.call.check("call", word.method)
        key = _key(session.peer, word.id)
        method = self._registrations.find(word.method) or self._registrations.longest_route(word.method)
        is_unsure = method is None and self._may_register_soon(word, now)
        if word.id in session.calls_made or key in self._by_key:
            raise bad_arguments(f"a call {word.id} is open already")
        owner, size, has_callee = session.owner, _size_of(word), self._has_callee(word.method, method)
        if why := self._pool.excess(owner, size):
            raise overloaded(f"too many requests wait for their answers: {why}")
        if not has_callee and (why := self._waiting.pool.excess(owner, size)):
            raise overloaded(f"nobody can take {word.method} now, and too many requests wait: {why}")
        self._store_status.check_available()
        owed = self._add(key, session, word, now + self._settings.request_ttl, owner, size)
        if not has_callee:
            self._waiting.count(owed)
        session.op = owed.op
        if is_unsure:
            self._unresolved.add(owed)
            return []
        return self._accept(owed, now)

    def _may_register_soon(self, word: Call, now: float) -> bool:
        """Whether a method without a registration may have had one before this hub started; a Refusal if it has not."""
        missing = self._registrations.not_found_refusal(word.method)
        if missing.reason is Reason.UNAVAILABLE:
            return False
        if self._unresolved.is_grace_over(now):
            raise missing
        return True

    def _accept(self, owed: DurableRequest, now: float) -> Deliveries:
        session, word = owed.session, owed.call
        accepted = Delivery(session.peer, Accepted(word.id), owed.op)
        if not self._is_durable:
            return [accepted, *self._dispatch(owed, now)]
        # Nobody is given it before it is safe: who could not keep it says for certain that it was not run.
        owed.stored_expires_at = self._store_status.epoch + owed.expires_at
        record = PutRequest(session.peer, word.id, encode_call(word), owed.stored_expires_at)
        return [*self._persist_peer(session, now), Persist(record, [accepted], word.id)]

    def _has_callee(self, name: str, method: MethodEntry | None) -> bool:
        """Whether a request can be given to a callee right now."""
        if method is None or name in self._waiting.busy_methods:
            return False
        most = self._settings.max_given
        return len(method.registrations[0].session.calls_served) < most or any(
            len(offer.session.calls_served) < most for offer in method.registrations
        )

    def handle_persisted(self, record: PutRequest, keep: Persist, now: float) -> Deliveries:
        """Accept a request that has been written down, and give it to a callee."""
        owed = self._by_key.get(_key(record.peer, keep.call_id))
        if owed is None or record.expires_at != owed.stored_expires_at:
            return []  # its session has ended, and the peer may have made it again
        return [*keep.then] if self._is_closed else [*keep.then, *self._dispatch(owed, now)]

    def _persist_peer(self, session: Session, now: float) -> Deliveries:
        """Let the store know of a peer that it keeps something for, and of the owner whose share that uses."""
        owner = session.owner
        if session.stored_owner == owner:
            return []
        session.stored_owner = owner
        return [Persist(PutPeer(session.peer, session.identity, self._store_status.epoch + now, session.remote), [])]

    def handle_not_persisted(self, record: PutRequest, call_id: str, why: str, now: float) -> Deliveries:
        """Refuse, for now, a request that could not be written down: nobody was told that it is accepted."""
        owed = self._by_key.get(_key(record.peer, call_id))
        if owed is None or record.expires_at != owed.stored_expires_at:
            return []
        self._remove(owed)
        self._counters.failures[Reason.OVERLOADED] += 1
        self.unrouted.count(owed.session, owed.call, Reason.OVERLOADED, why, now)
        return [Delivery(record.peer, Failure(call_id, Reason.OVERLOADED, why, retry_after=RETRY_AFTER), owed.op)]

    def restore(self, session: Session, word: Call, expires_at: float, now: float) -> Deliveries:
        """Go on with a request that an earlier hub has accepted; `expires_at` in seconds since 1970."""
        key, owner = _key(session.peer, word.id), session.owner
        owed = self._add(key, session, word, expires_at - self._store_status.epoch, owner, _size_of(word))
        owed.tries = 1
        self._store_status.note_restored(owed)
        return self._dispatch(owed, now)

    def _add(
        self, key: str, session: Session, word: Call, expires_at: float, owner: Owner, size: int
    ) -> DurableRequest:
        self._last_number += 1
        self._pool.acquire(owner, size)
        session.durable_requests += 1
        owed = self._by_key[key] = DurableRequest(key, session, word, expires_at, owner, size, f"n{self._last_number}")
        return owed

    def _remove(self, owed: DurableRequest) -> None:
        if self._by_key.pop(owed.key, None) is not None:
            owed.session.durable_requests -= 1
            self._pool.release(owed.owner, owed.size)
            if owed.has_no_callee:
                self._waiting.uncount(owed)

    def _dispatch(self, owed: DurableRequest, now: float) -> Deliveries:
        """Give a request to a callee, or let it wait for one."""
        if owed.call.method in self._waiting.busy_methods:
            self._waiting.wait_for_room(owed, now)
            return []
        try:
            found = self._choose_callee(owed)
        except Refusal as refusal:
            if refusal.reason is Reason.OVERLOADED:
                self._waiting.wait_for_room(owed, now)
            else:
                self._waiting.add(owed)
            return []
        return self._send_to_callee(owed, found, now)

    def _send_to_callee(
        self, owed: DurableRequest, found: tuple[Registration, str, str, bool], now: float
    ) -> Deliveries:
        offer, name, spelling, gives_array = found
        word, callee = owed.call, offer.session
        owed.tries += 1
        if owed.has_no_callee:
            self._waiting.uncount(owed)
        left = max(0.0, owed.expires_at - now)
        pending = self._pending_calls.open(owed.session, word.id, callee, word.method, left, now)
        pending.kind, pending.is_fast_path, pending.wants_stream, pending.wants_progress = owed, False, True, True
        op, again = pending.op, owed.tries > 1
        rest = (
            None,
            False,
            gives_array,
            True,
            self._pending_calls.start_span(pending, word.traceparent),
            again,
            word.extras,
        )
        return [Delivery(callee.peer, Call(op, name, word.body, spelling, (), False, *rest), owed.op)]

    def _choose_callee(self, owed: DurableRequest) -> tuple[Registration, str, str, bool]:
        """Return who gets it, and how its method is called there; a Refusal if there is nobody now."""
        name = owed.call.method
        method = self._registrations.find(name)
        if method is not None:
            offer = self._registrations.choose_callee(method, self._settings.max_given)
            return offer, name, offer.spelling, method.collects_stream
        route = self._registrations.longest_route(name)
        if route is None:
            raise self._registrations.not_found_refusal(name)
        offer = self._registrations.choose_callee(route, self._settings.max_given)
        inner = strip_prefix(route.name, name)
        style, wanted = owed.session.traits.names, offer.session.traits.names
        spelling = offer.listed_names.get(inner) or respell(owed.call.spelling, route.name, name, style, wanted)
        return offer, inner, spelling, route.collects_stream

    def handle_registration(self, name: str, *, is_route: bool, now: float) -> Deliveries:
        """Give those that waited for such an offer to whoever made it."""
        deliveries: Deliveries = []
        for owed in self._unresolved.take(name, is_route=is_route):
            # The peer may have left or cancelled meanwhile, and made the request again under the same key.
            if self._by_key.get(owed.key) is owed:
                deliveries += self._accept(owed, now)
        for owed in self._waiting.take(name, is_route=is_route):
            owed.retry_delay = 0.0
            deliveries += self._dispatch(owed, now)
        return deliveries

    # Ending them.

    def handle_result(self, pending: PendingCall, owed: DurableRequest, body: Result, now: float) -> Deliveries:
        """Give the caller its answer, once it is safe."""
        answer = Result(owed.call.id, body.body, (), False, True, body.extras)
        told = Delivery(owed.session.peer, answer, owed.op, pending)
        if not self._is_durable:
            self.count_results([told])
            return self._finish(owed, told, b"", now)
        try:
            written = encode_result(body)
        except (Unrepresentable, UnicodeEncodeError) as exc:
            text = f"the answer cannot be kept: {exc}"
            self._pending_calls.fail_closed(pending, Reason.RAISED, text, now)
            return self.handle_failure(owed, Failure(owed.call.id, Reason.RAISED, text), now)
        return self._finish(owed, told, written, now)

    def count_results(self, answers: Sequence[Delivery]) -> None:
        """Count results that are about to be said: earlier it is not known that they can be."""
        self._counters.results += sum(type(each.message) is Result for each in answers)

    def handle_failure(self, owed: DurableRequest, word: Failure, now: float) -> Deliveries:
        """Tell the caller how its method failed, or try again where no method did."""
        if word.reason in _RETRYABLE and now < owed.expires_at and not owed.has_streamed:
            if owed.session.is_present and not self._is_closed:
                self._waiting.retry_later(owed, now)
            return []
        self._counters.failures[word.reason] += 1
        text = "" if word.reason in _RETRYABLE else word.text
        reason = Reason.TIMEOUT if word.reason in _RETRYABLE else word.reason
        wording = None if word.reason in _RETRYABLE else word.wording
        failure = Failure(owed.call.id, reason, text, word.data, word.retry_after, word.name, word.code, wording)
        try:
            written = encode_failure(failure)
        except (Unrepresentable, UnicodeEncodeError):
            # That it failed is more than what it said of it.
            text = text.encode(errors="replace").decode()
            failure = Failure(owed.call.id, reason, text, retry_after=word.retry_after, code=word.code)
            written = encode_failure(failure)
        return self._finish(owed, Delivery(owed.session.peer, failure, owed.op), written, now)

    def finish_stream(self, owed: DurableRequest, now: float) -> Deliveries:
        """Know that the last part of an answer has come: parts are not kept, so that a new hub asks for them anew."""
        self._remove(owed)
        return self._dispatch_next(owed.call.method, now)

    def handle_lost_callee(
        self, pending: PendingCall, owed: DurableRequest, reason: Reason, text: str, now: float
    ) -> Deliveries:
        """Give a request to the next callee, whose last one is gone, or give it up."""
        if self._is_closed or not owed.session.is_present:
            return []
        if reason is Reason.LOST and now < owed.expires_at and not owed.has_streamed:
            return self._dispatch(owed, now)
        if reason is Reason.TIMEOUT:
            owed.expires_at = now  # the clock of calls may be a little ahead
        return self.handle_failure(owed, Failure(pending.id, reason, text), now)

    def _finish(self, owed: DurableRequest, told: Delivery, written: bytes, now: float) -> Deliveries:
        self._remove(owed)
        deliveries: Deliveries = [told]
        if self._is_durable:
            expires_at = self._store_status.epoch + now + self._settings.answer_ttl
            deliveries = [Persist(PutAnswer(told.peer, owed.call.id, written, expires_at), [told], owed.call.id)]
        if self._waiting:
            deliveries += self._dispatch_next(owed.call.method, now)
        return deliveries

    def _dispatch_next(self, method: str, now: float) -> Deliveries:
        """Give the next one that waits to somebody who has room again."""
        owed = self._waiting.next_for(method)
        if owed is None:
            return []
        try:
            found = self._choose_callee(owed)
        except Refusal:
            return []
        self._waiting.remove(owed)
        return self._send_to_callee(owed, found, now)

    def cancel_handler(self, otherwise: Handler) -> Handler:
        """Return what is done with a cancellation; of what is with a callee, `otherwise`."""

        def cancel(session: Session, word: Cancel, now: float) -> Deliveries:
            owed = self._by_key.get(_key(session.peer, word.id))
            if owed is None or word.id in session.calls_made:
                return otherwise(session, word, now)
            session.op = owed.op
            self._waiting.remove(owed)
            self.unrouted.count(session, owed.call, Reason.CANCELLED, "", now)
            return self.handle_failure(owed, Failure(word.id, Reason.CANCELLED), now)

        return cancel

    def handle_acknowledged(self, session: Session, word: Acknowledged, now: float) -> Deliveries:
        """Keep nothing more of an answer that has arrived, but that it has."""
        if not self._is_durable:
            return []
        return [
            Persist(
                PutTombstone(session.peer, word.id, self._store_status.epoch + now + self._settings.duplicate_window),
                [],
            )
        ]

    def leave(self, session: Session) -> Deliveries:
        """Forget all that is owed to a peer that will not come back."""
        if session.durable_requests:
            for owed in [each for each in self._by_key.values() if each.session is session]:
                self._waiting.remove(owed)
                self._remove(owed)
        return [Persist(DropPeer(session.peer), [])] if session.stored_owner is not None else []

    # Time.

    def deadline(self) -> float | None:
        """Return when to call `late`."""
        times = self._waiting.deadline(), self._unresolved.deadline()
        return min((time for time in times if time is not None), default=None)

    def expire(self, now: float) -> Deliveries:
        """Try again what could not be taken; give up what has waited too long."""
        deliveries: Deliveries = []
        for owed in self._unresolved.expire(now):
            if self._by_key.get(owed.key) is not owed:
                continue
            self._remove(owed)
            session, word = owed.session, owed.call
            missing = self._registrations.not_found_refusal(word.method)
            self._counters.failures[missing.reason] += 1
            self.unrouted.count(session, word, missing.reason, missing.text, now)
            deliveries.append(Delivery(session.peer, Failure(word.id, missing.reason, missing.text)))
        for owed in self._waiting.expire(now):
            self.unrouted.count(owed.session, owed.call, Reason.TIMEOUT, "", now)
            deliveries += self.handle_failure(owed, Failure(owed.call.id, Reason.TIMEOUT), now)
        requests, methods = self._waiting.due(now)
        for owed in requests:
            deliveries += self._dispatch(owed, now)
        for method in methods:
            deliveries += self._dispatch_waiting(method, now)
        return deliveries

    def _dispatch_waiting(self, method: str, now: float) -> Deliveries:
        """Give as many of those that wait for a method as there is room for."""
        deliveries: Deliveries = []
        while given := self._dispatch_next(method, now):
            deliveries += given
        rest = self._waiting.next_for(method)
        if rest is not None and (self._registrations.find(method) or self._registrations.longest_route(method)):
            self._waiting.wait_for_room(rest, now)
        return deliveries


def _size_of(word: Call) -> int:
    return len(word.body.raw) if type(word.body) is Json else size_of(word.body)


def _key(peer: str, call_id: str) -> str:
    return f"{peer} {call_id}"
