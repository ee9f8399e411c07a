"""Requests of peers that were promised an answer: they outlive their callees, and with a store the hub itself."""

from collections.abc import Sequence
from typing import Final

from fiveways.errors import Unrepresentable
from fiveways.hub.builtins import BuiltIns
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Keep
from fiveways.hub.errands import Owed
from fiveways.hub.kept import write_call, write_failure, write_result
from fiveways.hub.names import below, respelled
from fiveways.hub.offers import Method, Offer, Offers
from fiveways.hub.refusal import RETRY_AFTER, Refusal, bad, busy
from fiveways.hub.session import Handler, Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, SizedPool
from fiveways.hub.sizes import size_of
from fiveways.hub.storage import Storage
from fiveways.hub.unasked import Unasked
from fiveways.hub.unsure import Unsure
from fiveways.hub.waiting import Waiting
from fiveways.model.failures import Reason
from fiveways.model.messages import Accepted, Acknowledged, Call, Cancel, Failure, Result
from fiveways.model.records import DropPeer, Forget, PutAnswer, PutPeer, PutRequest
from fiveways.wire.payload import Json

_PASSING: Final = frozenset({Reason.LOST, Reason.UNAVAILABLE, Reason.BUSY, Reason.TIMEOUT})
"""What a callee, or its absence, may say without having answered: another try is worth it."""


class Owing:
    """All that is owed, wherever it stands: with a callee, waiting for one, or answered and not acknowledged."""

    def __init__(
        self,
        settings: HubSettings,
        calls: Calls,
        offers: Offers,
        built_ins: BuiltIns,
        counters: Counters,
        storage: Storage,
    ) -> None:
        self._storage, self._keeps = storage, storage.keeps
        self._calls = calls
        self._offers = offers
        self._built_ins = built_ins
        self._counters = counters
        self.unasked = Unasked(offers, built_ins, counters.traffic)
        """Where calls are counted that nobody was given, owed or not."""
        self._by_key: dict[str, Owed] = {}
        self._pool = SizedPool(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._made = 0
        self._waiting = storage.waiting = Waiting(calls.alarm, settings)
        self._unsure = Unsure(calls.alarm)
        self._is_closed = False
        self._settings = settings

    def __len__(self) -> int:
        return len(self._by_key)

    def all(self) -> list[Owed]:
        """Return all of them."""
        return list(self._by_key.values())

    def configure(self, settings: HubSettings) -> None:
        """Let these hold from now on."""
        self._settings = settings
        self._pool.configure(settings.max_owed, settings.max_owed_bytes, settings.shares)
        self._waiting.configure(settings)

    def settle(self, until: float) -> None:
        """Give those who served an earlier hub until then to come back, before their methods are said to be unknown."""
        self._unsure.settle(until)

    def close(self) -> None:
        """Give nothing to anybody any more: what is owed is owed by the next hub."""
        self._is_closed = True

    # Taking them.

    def caller(self, otherwise: Handler) -> Handler:
        """Return what is done with a call; what cannot be kept, or need not be, is done `otherwise`."""
        find = self._offers.find

        def call(session: Session, word: Call, now: float) -> Deliveries:
            is_own = find(word.method) is None and word.method in self._built_ins
            if is_own or word.callback or word.more or word.attachments:
                return otherwise(session, word, now)
            return self._take(session, word, now)

        return call

    def _take(self, session: Session, word: Call, now: float) -> Deliveries:
        if session.access.call is not None:
            session.access.call.check("call", word.method)
        key = _key(session.peer, word.id)
        method = self._offers.find(word.method) or self._offers.route_of(word.method)
        is_unsure = method is None and self._is_unsure(word, now)
        if word.id in session.asked or key in self._by_key:
            raise bad(f"a call {word.id} is open already")
        owner, size, has_callee = session.owner, _size_of(word), self._has_callee(word.method, method)
        if why := self._pool.excess(owner, size):
            raise busy(f"too many requests wait for their answers: {why}")
        if not has_callee and (why := self._waiting.pool.excess(owner, size)):
            raise busy(f"nobody can take {word.method} now, and too many requests wait: {why}")
        self._storage.check()
        owed = self._owe(key, session, word, now + self._settings.request_ttl, owner, size)
        if not has_callee:
            self._waiting.count(owed)
        session.op = owed.op
        if is_unsure:
            self._unsure.put(owed)
            return []
        return self._accept(owed, now)

    def _is_unsure(self, word: Call, now: float) -> bool:
        """Whether a method without a registration may have had one before this hub started; a Refusal if it has not."""
        missing = self._offers.missing(word.method)
        if missing.reason is Reason.UNAVAILABLE:
            return False
        if self._unsure.is_over(now):
            raise missing
        return True

    def _accept(self, owed: Owed, now: float) -> Deliveries:
        session, word = owed.session, owed.word
        accepted = Delivery(session.peer, Accepted(word.id), owed.op)
        if not self._keeps:
            return [accepted, *self._dispatch(owed, now)]
        # Nobody is given it before it is safe: who could not keep it says for certain that it was not run.
        owed.until = self._storage.epoch + owed.expires_at
        record = PutRequest(session.peer, word.id, write_call(word), owed.until)
        return [*self._introduce(session, now), Keep(record, [accepted], word.id)]

    def _has_callee(self, name: str, method: Method | None) -> bool:
        """Whether a request can be given to a callee right now."""
        if method is None or name in self._waiting.full:
            return False
        most = self._settings.max_given
        return len(method.offers[0].session.serving) < most or any(
            len(offer.session.serving) < most for offer in method.offers
        )

    def kept(self, record: PutRequest, keep: Keep, now: float) -> Deliveries:
        """Accept a request that has been written down, and give it to a callee."""
        owed = self._by_key.get(_key(record.peer, keep.call))
        if owed is None or record.expires_at != owed.until:
            return []  # its session has ended, and the peer may have made it again
        return [*keep.then] if self._is_closed else [*keep.then, *self._dispatch(owed, now)]

    def _introduce(self, session: Session, now: float) -> Deliveries:
        """Let the store know of a peer that it keeps something for, and of the owner whose share that uses."""
        owner = session.owner
        if session.kept_as == owner:
            return []
        session.kept_as = owner
        return [Keep(PutPeer(session.peer, session.identity, self._storage.epoch + now, session.remote), [])]

    def unkept(self, record: PutRequest, call_id: str, why: str, now: float) -> Deliveries:
        """Refuse, for now, a request that could not be written down: nobody was told that it is accepted."""
        owed = self._by_key.get(_key(record.peer, call_id))
        if owed is None or record.expires_at != owed.until:
            return []
        self._drop(owed)
        self._counters.failures[Reason.BUSY] += 1
        self.unasked.count(owed.session, owed.word, Reason.BUSY, why, now)
        return [Delivery(record.peer, Failure(call_id, Reason.BUSY, why, retry_after=RETRY_AFTER), owed.op)]

    def restore(self, session: Session, word: Call, expires_at: float, now: float) -> Deliveries:
        """Go on with a request that an earlier hub has accepted; `expires_at` in seconds since 1970."""
        key, owner = _key(session.peer, word.id), session.owner
        owed = self._owe(key, session, word, expires_at - self._storage.epoch, owner, _size_of(word))
        owed.tries = 1
        self._storage.restored(owed)
        return self._dispatch(owed, now)

    def _owe(self, key: str, session: Session, word: Call, expires_at: float, owner: Owner, size: int) -> Owed:
        self._made += 1
        self._pool.acquire(owner, size)
        session.owed += 1
        owed = self._by_key[key] = Owed(key, session, word, expires_at, owner, size, f"n{self._made}")
        return owed

    def _drop(self, owed: Owed) -> None:
        if self._by_key.pop(owed.key, None) is not None:
            owed.session.owed -= 1
            self._pool.release(owed.owner, owed.size)
            if owed.is_waiting:
                self._waiting.discount(owed)

    def _dispatch(self, owed: Owed, now: float) -> Deliveries:
        """Give a request to a callee, or let it wait for one."""
        if owed.word.method in self._waiting.full:
            self._waiting.line_up(owed, now)
            return []
        try:
            found = self._find(owed)
        except Refusal as refusal:
            if refusal.reason is Reason.BUSY:
                self._waiting.line_up(owed, now)
            else:
                self._waiting.put(owed)
            return []
        return self._give(owed, found, now)

    def _give(self, owed: Owed, found: tuple[Offer, str, str, bool], now: float) -> Deliveries:
        offer, name, spelling, gives_array = found
        word, callee = owed.word, offer.session
        owed.tries += 1
        if owed.is_waiting:
            self._waiting.discount(owed)
        left = max(0.0, owed.expires_at - now)
        pending = self._calls.open(owed.session, word.id, callee, word.method, left, now)
        pending.errand, pending.plain, pending.stream, pending.progress = owed, False, True, True
        op, again = pending.op, owed.tries > 1
        rest = (None, False, gives_array, True, self._calls.traced(pending, word.traceparent), again, word.extras)
        return [Delivery(callee.peer, Call(op, name, word.body, spelling, (), False, *rest), owed.op)]

    def _find(self, owed: Owed) -> tuple[Offer, str, str, bool]:
        """Return who gets it, and how its method is called there; a Refusal if there is nobody now."""
        name = owed.word.method
        method = self._offers.find(name)
        if method is not None:
            offer = self._offers.choose(method, self._settings.max_given)
            return offer, name, offer.spelling, method.gives_array
        route = self._offers.route_of(name)
        if route is None:
            raise self._offers.missing(name)
        offer = self._offers.choose(route, self._settings.max_given)
        inner = below(route.name, name)
        style, wanted = owed.session.traits.names, offer.session.traits.names
        spelling = offer.listed.get(inner) or respelled(owed.word.spelling, route.name, name, style, wanted)
        return offer, inner, spelling, route.gives_array

    def offered(self, name: str, *, is_route: bool, now: float) -> Deliveries:
        """Give those that waited for such an offer to whoever made it."""
        deliveries: Deliveries = []
        for owed in self._unsure.take(name, is_route=is_route):
            # The peer may have left or cancelled meanwhile, and made the request again under the same key.
            if self._by_key.get(owed.key) is owed:
                deliveries += self._accept(owed, now)
        for owed in self._waiting.take(name, is_route=is_route):
            owed.wait = 0.0
            deliveries += self._dispatch(owed, now)
        return deliveries

    # Ending them.

    def answered(self, pending: Pending, owed: Owed, body: Result, now: float) -> Deliveries:
        """Give the caller its answer, once it is safe."""
        answer = Result(owed.word.id, body.body, (), False, True, body.extras)
        told = Delivery(owed.session.peer, answer, owed.op, pending)
        if not self._keeps:
            self.told([told])
            return self._settle(owed, told, b"", now)
        try:
            written = write_result(body)
        except (Unrepresentable, UnicodeEncodeError) as exc:
            text = f"the answer cannot be kept: {exc}"
            self._calls.fail(pending, Reason.RAISED, text, now)
            return self.failed(owed, Failure(owed.word.id, Reason.RAISED, text), now)
        return self._settle(owed, told, written, now)

    def told(self, answers: Sequence[Delivery]) -> None:
        """Count results that are about to be said: earlier it is not known that they can be."""
        self._counters.results += sum(type(each.word) is Result for each in answers)

    def failed(self, owed: Owed, word: Failure, now: float) -> Deliveries:
        """Tell the caller how its method failed, or try again where no method did."""
        if word.reason in _PASSING and now < owed.expires_at and not owed.is_streaming:
            if owed.session.is_here and not self._is_closed:
                self._waiting.put_back(owed, now)
            return []
        self._counters.failures[word.reason] += 1
        text = "" if word.reason in _PASSING else word.text
        reason = Reason.TIMEOUT if word.reason in _PASSING else word.reason
        wording = None if word.reason in _PASSING else word.wording
        failure = Failure(owed.word.id, reason, text, word.data, word.retry_after, word.name, word.code, wording)
        try:
            written = write_failure(failure)
        except (Unrepresentable, UnicodeEncodeError):
            # That it failed is more than what it said of it.
            text = text.encode(errors="replace").decode()
            failure = Failure(owed.word.id, reason, text, retry_after=word.retry_after, code=word.code)
            written = write_failure(failure)
        return self._settle(owed, Delivery(owed.session.peer, failure, owed.op), written, now)

    def streamed(self, owed: Owed, now: float) -> Deliveries:
        """Know that the last part of an answer has come: parts are not kept, so that a new hub asks for them anew."""
        self._drop(owed)
        return self._go_on(owed.word.method, now)

    def lost(self, pending: Pending, owed: Owed, reason: Reason, text: str, now: float) -> Deliveries:
        """Give a request to the next callee, whose last one is gone, or give it up."""
        if self._is_closed or not owed.session.is_here:
            return []
        if reason is Reason.LOST and now < owed.expires_at and not owed.is_streaming:
            return self._dispatch(owed, now)
        if reason is Reason.TIMEOUT:
            owed.expires_at = now  # the clock of calls may be a little ahead
        return self.failed(owed, Failure(pending.id, reason, text), now)

    def _settle(self, owed: Owed, told: Delivery, written: bytes, now: float) -> Deliveries:
        self._drop(owed)
        deliveries: Deliveries = [told]
        if self._keeps:
            expires_at = self._storage.epoch + now + self._settings.answer_ttl
            deliveries = [Keep(PutAnswer(told.to, owed.word.id, written, expires_at), [told], owed.word.id)]
        if self._waiting:
            deliveries += self._go_on(owed.word.method, now)
        return deliveries

    def _go_on(self, method: str, now: float) -> Deliveries:
        """Give the next one that waits to somebody who has room again."""
        owed = self._waiting.first(method)
        if owed is None:
            return []
        try:
            found = self._find(owed)
        except Refusal:
            return []
        self._waiting.remove(owed)
        return self._give(owed, found, now)

    def canceller(self, otherwise: Handler) -> Handler:
        """Return what is done with a cancellation; of what is with a callee, `otherwise`."""

        def cancel(session: Session, word: Cancel, now: float) -> Deliveries:
            owed = self._by_key.get(_key(session.peer, word.id))
            if owed is None or word.id in session.asked:
                return otherwise(session, word, now)
            session.op = owed.op
            self._waiting.remove(owed)
            self.unasked.count(session, owed.word, Reason.CANCELLED, "", now)
            return self.failed(owed, Failure(word.id, Reason.CANCELLED), now)

        return cancel

    def acknowledged(self, session: Session, word: Acknowledged, now: float) -> Deliveries:
        """Keep nothing more of an answer that has arrived, but that it has."""
        if not self._keeps:
            return []
        return [Keep(Forget(session.peer, word.id, self._storage.epoch + now + self._settings.duplicate_window), [])]

    def leave(self, session: Session) -> Deliveries:
        """Forget all that is owed to a peer that will not come back."""
        if session.owed:
            for owed in [each for each in self._by_key.values() if each.session is session]:
                self._waiting.remove(owed)
                self._drop(owed)
        return [Keep(DropPeer(session.peer), [])] if session.kept_as is not None else []

    # Time.

    def deadline(self) -> float | None:
        """Return when to call `late`."""
        times = self._waiting.deadline(), self._unsure.deadline()
        return min((time for time in times if time is not None), default=None)

    def late(self, now: float) -> Deliveries:
        """Try again what could not be taken; give up what has waited too long."""
        deliveries: Deliveries = []
        for owed in self._unsure.late(now):
            if self._by_key.get(owed.key) is not owed:
                continue
            self._drop(owed)
            session, word = owed.session, owed.word
            missing = self._offers.missing(word.method)
            self._counters.failures[missing.reason] += 1
            self.unasked.count(session, word, missing.reason, missing.text, now)
            deliveries.append(Delivery(session.peer, Failure(word.id, missing.reason, missing.text)))
        for owed in self._waiting.late(now):
            self.unasked.count(owed.session, owed.word, Reason.TIMEOUT, "", now)
            deliveries += self.failed(owed, Failure(owed.word.id, Reason.TIMEOUT), now)
        requests, methods = self._waiting.due(now)
        for owed in requests:
            deliveries += self._dispatch(owed, now)
        for method in methods:
            deliveries += self._refill(method, now)
        return deliveries

    def _refill(self, method: str, now: float) -> Deliveries:
        """Give as many of those that wait for a method as there is room for."""
        deliveries: Deliveries = []
        while given := self._go_on(method, now):
            deliveries += given
        rest = self._waiting.first(method)
        if rest is not None and (self._offers.find(method) or self._offers.route_of(method)):
            self._waiting.line_up(rest, now)
        return deliveries


def _size_of(word: Call) -> int:
    return len(word.body.raw) if type(word.body) is Json else size_of(word.body)


def _key(peer: str, call_id: str) -> str:
    return f"{peer} {call_id}"
