"""Calls on their way to a callee, and answers on their way back."""

from typing import Final

import msgspec

from fiveways.errors import LocalProtocolError
from fiveways.hub.attachments import Attachments
from fiveways.hub.builtins import BuiltIns
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.calls import Calls, Pending, operation_of
from fiveways.hub.collected import Collected, TooMuch, as_array
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.errands import Held, Listing, Owed, Query, Work
from fiveways.hub.names import below, respelled
from fiveways.hub.offers import Offers
from fiveways.hub.owed import Owing
from fiveways.hub.queues import Queues
from fiveways.hub.refusal import RETRY_AFTER, Refusal, bad, busy
from fiveways.hub.session import Mark, Session
from fiveways.hub.traffic import CALLBACK, HUB, Failed
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Cancel, Failure, Part, Progress, Result, Stray
from fiveways.model.outcomes import reason_unsaid, unsaid_answer
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload

_NO_DESCRIPTION: Final = "the answer is no description"


class Router:
    """Passes calls on and answers back, and sees to it that every call ends, and ends once."""

    def __init__(  # noqa: PLR0913, PLR0917  each table has an owner of its own
        self,
        limits: Limits,
        calls: Calls,
        offers: Offers,
        callbacks: Callbacks,
        attachments: Attachments,
        queues: Queues,
        built_ins: BuiltIns,
        owing: Owing,
        counters: Counters,
    ) -> None:
        self._limits = limits
        self._max_pending = limits.max_pending
        self._calls = calls
        self._offers = offers
        self._find = offers.find
        self._callbacks = callbacks
        self._attachments = attachments
        self._queues = queues
        self._built_ins = built_ins
        self._owing = owing
        self._counters = counters

    # The way there.

    def call(self, caller: Session, word: Call, now: float) -> Deliveries:
        """Pass a call on to somebody who offers the method."""
        find = self._find
        method = None if word.callback else find(word.method)
        if method is None:
            return self._call_other(caller, word, now)
        if caller.access.call is not None:
            caller.access.call.check("call", word.method)
        offers = method.offers
        offer = offers[0] if len(offers) == 1 else self._offers.choose(method)
        return self.forward(caller, word, offer.session, word.method, offer.spelling, method.gives_array, now)

    def _call_other(self, caller: Session, word: Call, now: float) -> Deliveries:
        """Call what is no method on offer: a callback, a method of the hub itself, or a name below a route."""
        if word.callback:
            callback = self._callbacks.get(word.method)
            deliveries = self.forward(caller, word, callback.owner, callback.id, "", False, now)
            self._callbacks.use(word.method)
            return deliveries
        if word.method in self._built_ins:
            return self._built_ins.call(caller, word, now)
        if caller.access.call is not None:
            caller.access.call.check("call", word.method)
        route = self._offers.route_of(word.method)
        if route is None:
            raise self._offers.missing(word.method)
        offer = self._offers.choose(route)
        name = below(route.name, word.method)
        style, wanted = caller.traits.names, offer.session.traits.names
        spelling = offer.listed.get(name) or respelled(word.spelling, route.name, word.method, style, wanted)
        return self.forward(caller, word, offer.session, name, spelling, route.gives_array, now)

    def forward(
        self, caller: Session, word: Call, callee: Session, name: str, spelling: str, gives_array: bool, now: float
    ) -> Deliveries:
        """Pass a call on to this callee, which knows the method as `name`, and as `spelling` where there is one."""
        asked = caller.asked
        if word.id in asked:
            raise bad(f"a call {word.id} is open already")
        if len(asked) >= self._max_pending or len(callee.serving) >= self._max_pending:
            raise busy("too many calls are open")
        attachments = word.attachments
        if attachments:
            self._attachments.check_room(caller, attachments)
        elements = None
        if word.more and not callee.traits.takes_parts:
            elements = self._first_element(caller, word)
        timeout = self._calls.default if word.timeout is None else self._calls.timeout(word.timeout)
        label = CALLBACK if word.callback else word.method
        pending = self._calls.open(caller, word.id, callee, label, timeout, now)
        op = caller.op = pending.op
        if attachments:
            attachments = self._attachments.relay(caller, attachments, (callee,), op, word.body)
        stream = word.stream
        if stream:
            pending.stream = True
        elif gives_array:
            # The callee is asked for a stream, so that its elements are told from an array that is one element.
            stream = True
            pending.plain = False
        if word.progress:
            pending.progress = True
        call = Call(
            op,
            name,
            word.body,
            spelling,
            attachments,
            word.callback,
            timeout,
            word.more,
            stream,
            word.progress,
            word.traceparent if self._calls.spans is None else self._calls.traced(pending, word.traceparent),
            word.redelivered,
            word.extras,
        )
        if word.more:
            pending.more = True
            if elements is not None:
                pending.errand, pending.plain = Held(call, elements), False
                return []
        return [Delivery(callee.peer, call, op)]

    def _first_element(self, caller: Session, word: Call) -> Collected:
        """Begin to put a request together for a callee that takes it only whole."""
        if word.attachments:
            raise bad("a streamed request with attachments cannot be passed on to a method that takes it only whole")
        elements = Collected(self._limits, caller.collecting)
        try:
            elements.add(word.body)
        except TooMuch as exc:
            raise Refusal(Reason.TOO_LARGE, f"the request is too large: {exc}") from exc
        return elements

    def part(self, caller: Session, word: Part, now: float) -> Deliveries:
        """Pass on one more element of a request, or put it to the others until all are there."""
        pending = caller.asked.get(word.id)
        if pending is None or not pending.more:
            self._counters.stray += 1
            return []
        caller.op = pending.op
        pending.more = not word.last
        held, op = pending.errand, pending.op
        if not isinstance(held, Held):
            return [Delivery(pending.callee.peer, Part(op, word.body, word.last), op)]
        try:
            if word.body is not None:
                held.elements.add(word.body)
            body = NULL if pending.more else held.elements.whole()
        except TooMuch as exc:
            text = f"the request is too large: {exc}"
            self._calls.close(pending, now, Reason.TOO_LARGE, text)
            return self._fail(pending, Reason.TOO_LARGE, text)
        if pending.more:
            return []
        held.elements.free()
        pending.errand, pending.plain = None, pending.stream or not held.call.stream
        left = max(0.0, pending.deadline - now)
        call = msgspec.structs.replace(held.call, body=body, timeout=left, more=False)
        return [Delivery(pending.callee.peer, call, op)]

    def cancel(self, caller: Session, word: Cancel, now: float) -> Deliveries:
        """Tell the callee that its answer is not wanted any more, and the caller that its call is over."""
        pending = caller.asked.get(word.id)
        if pending is None:
            return []
        caller.op = operation_of(pending)
        self._calls.close(pending, now, Reason.CANCELLED)
        return [*self._call_off(pending), *self._end(pending, Reason.CANCELLED, "", now)]

    # The way back.

    def result(self, callee: Session, word: Result, now: float) -> Deliveries:
        """Give a caller its answer, or a part of it."""
        pending = callee.serving.get(word.id)
        if pending is None:
            return self._nobody_waits(callee)
        if word.stream or not pending.plain:
            callee.op = operation_of(pending)
            return self._other_result(pending, word, now)
        callee.op = pending.op
        self._calls.close(pending, now)
        self._counters.results += 1
        attachments = word.attachments
        if attachments:
            attachments = self._relay_back(pending, word)
        answer = Result(pending.id, word.body, attachments, False, True, word.extras)
        return [Delivery(pending.caller.peer, answer, pending.op, pending)]

    def _other_result(self, pending: Pending, word: Result, now: float) -> Deliveries:
        """Take an answer that is a stream, should be one, or is for the hub itself."""
        errand = pending.errand
        if errand is None:
            return self._pass_element(pending, word, now) if pending.stream else self._collect(pending, word, now)
        if isinstance(errand, Held):
            return self._nobody_waits(pending.callee)
        if isinstance(errand, Owed):
            return self._owed_result(pending, errand, word, now)
        if word.stream and not word.last:
            return []
        if isinstance(errand, Query):
            self._calls.close(pending, now, Reason.RAISED, _NO_DESCRIPTION)
            return self._fail(pending, Reason.RAISED, _NO_DESCRIPTION)
        self._calls.close(pending, now)
        return self._queues.done(errand) if isinstance(errand, Work) else []

    def _owed_result(self, pending: Pending, owed: Owed, word: Result, now: float) -> Deliveries:
        if word.stream or word.attachments:
            owed.is_streaming = True
            passed = self._pass_element(pending, word, now)
            return [*passed, *self._owing.streamed(owed, now)] if word.last or not word.stream else passed
        self._calls.close(pending, now)
        return self._owing.answered(pending, owed, word, now)

    def _pass_element(self, pending: Pending, word: Result, now: float) -> Deliveries:
        is_last = word.last or not word.stream
        if is_last:
            self._calls.close(pending, now)
            self._counters.results += 1
        attachments = self._relay_back(pending, word) if word.attachments else ()
        element = Result(pending.id, word.body, attachments, word.stream, word.last, word.extras)
        return [Delivery(pending.caller.peer, element, operation_of(pending), pending if is_last else None)]

    def _collect(self, pending: Pending, word: Result, now: float) -> Deliveries:
        """Give an array to a caller that takes a streamed answer only whole."""
        is_last = word.last or not word.stream
        try:
            body = self._collected(pending, word)
        except TooMuch as exc:
            text = f"the answer cannot be put together: {exc}"
            self._calls.close(pending, now, Reason.RAISED, text)
            called_off = [] if is_last else self._call_off(pending)
            return [*called_off, *self._fail(pending, Reason.RAISED, text)]
        if not is_last:
            return []
        self._calls.close(pending, now)
        self._counters.results += 1
        attachments = self._relay_back(pending, word) if word.attachments else ()
        answer = Result(pending.id, body, attachments, extras=word.extras)
        return [Delivery(pending.caller.peer, answer, pending.op, pending)]

    def _collected(self, pending: Pending, word: Result) -> Payload:
        """Return the answer once it is whole; TooMuch if it is too large, or cannot be an array."""
        if pending.answer is None:
            if not word.stream:
                return as_array(word.body or NULL)
            pending.answer, pending.plain = Collected(self._limits, pending.callee.collecting), False
        if word.attachments:
            raise TooMuch("its elements have attachments")
        if word.body is not None:
            pending.answer.add(word.body)
        return pending.answer.whole() if word.last or not word.stream else NULL

    def failure(self, callee: Session, word: Failure, now: float) -> Deliveries:
        """Tell a caller why its call failed."""
        pending = callee.serving.get(word.id)
        if pending is None or isinstance(pending.errand, Held):
            return self._nobody_waits(callee)
        callee.op = operation_of(pending)
        self._calls.close(pending, now, word.reason, word.text)
        if isinstance(pending.errand, Work | Listing):
            return self._end(pending, word.reason, word.text, now)
        if isinstance(pending.errand, Owed):
            return self._owing.failed(pending.errand, word, now)
        self._counters.failures[word.reason] += 1
        failure = msgspec.structs.replace(word, id=pending.id)
        return [Delivery(pending.caller.peer, failure, pending.op)]

    def progress(self, callee: Session, word: Progress, _now: float) -> Deliveries:
        """Tell a caller how far its call is, if it wants to know."""
        pending = callee.serving.get(word.id)
        if pending is not None:
            callee.op = operation_of(pending)
        if pending is None or not pending.progress:
            return []
        told = Progress(pending.id, word.body, word.kind, word.code, word.text, word.args)
        return [Delivery(pending.caller.peer, told, callee.op)]

    def stray(self, callee: Session, word: Stray, _now: float) -> Deliveries:
        """Count an answer that nobody waited for."""
        return self._nobody_waits(callee, word.text)

    def _nobody_waits(self, callee: Session, text: str = "an answer that nobody waits for") -> Deliveries:
        callee.mark = Mark("drop", text)
        self._counters.stray += 1
        return []

    def _relay_back(self, pending: Pending, word: Result) -> tuple[str, ...]:
        op = operation_of(pending)
        return self._attachments.relay(pending.callee, word.attachments, (pending.caller,), op, word.body)

    # Ends without an answer.

    def late(self, now: float) -> Deliveries:
        """End the calls whose time is over."""
        deliveries: Deliveries = []
        for pending in self._calls.late(now):
            deliveries += self._call_off(pending)
            deliveries += self._end(pending, Reason.TIMEOUT, "", now)
        return deliveries

    def finish(self, now: float) -> Deliveries:
        """End all calls, since nobody will be there for their answers."""
        deliveries: Deliveries = []
        for pending in self._calls.all():
            deliveries += self._call_off(pending)
            deliveries += self._lose(pending, "the hub is closing", now)
        return deliveries

    def leave(self, session: Session, now: float) -> Deliveries:
        """End the calls that a peer made, and those that it was to answer."""
        deliveries: Deliveries = []
        for pending in list(session.asked.values()):
            self._calls.close(pending, now, Reason.CANCELLED, "the caller is gone")
            deliveries += self._call_off(pending)
        for pending in list(session.serving.values()):
            deliveries += self._lose(pending, "the callee is gone", now)
        return deliveries

    def undelivered(self, op: str, error: LocalProtocolError, now: float, *, begun: bool = False) -> Deliveries:
        """End a call that its callee's protocol cannot say, or of which it cannot say the rest."""
        pending = self._calls.get(op)
        if pending is None:
            return []
        text = str(error)
        reason = Reason.LOST if begun else reason_unsaid(error)
        self._calls.close(pending, now, reason, text)
        # Who has heard of a part of it is told: what is done with half a request is not known.
        return [*(self._call_off(pending) if begun else ()), *self._end(pending, reason, text, now)]

    def unanswered(
        self, caller: Session, call_id: str, unsaid: Delivery, error: LocalProtocolError, now: float
    ) -> Deliveries:
        """End a call whose answer, or a part of it, the caller's protocol cannot say."""
        deliveries: Deliveries = []
        pending, done, protocol = caller.asked.get(call_id), unsaid.call, caller.traits.protocol
        text, name = unsaid_answer(error, protocol)
        if pending is not None and operation_of(pending) == unsaid.op:
            self._calls.close(pending, now, Reason.RAISED, text)
            deliveries = self._call_off(pending)
            if isinstance(pending.errand, Owed):
                deliveries += self._owing.streamed(pending.errand, now)
        elif isinstance(done, Pending):
            self._counters.results -= 1  # in the same moment in which it was counted
            self._calls.fail(done, Reason.RAISED, text, now)
        elif done is not None:
            failed = Failed(now, done, protocol, HUB, Reason.RAISED, text, caller.name)
            self._counters.traffic.unanswered(caller.counted_as, failed)
        self._counters.failures[Reason.RAISED] += 1
        return [*deliveries, Delivery(caller.peer, Failure(call_id, Reason.RAISED, text, name=name), unsaid.op)]

    def _call_off(self, pending: Pending) -> Deliveries:
        """Tell a callee that nobody waits any more: where it cannot hear that, its conversation forgets the call."""
        callee = pending.callee
        if isinstance(pending.errand, Held) or not callee.is_here:
            return []
        return [Delivery(callee.peer, Cancel(pending.op), operation_of(pending))]

    def _lose(self, pending: Pending, text: str, now: float) -> Deliveries:
        """End a call whose answer cannot come: it may have run, unless it was never passed on."""
        reason = Reason.UNAVAILABLE if isinstance(pending.errand, Held) else Reason.LOST
        self._calls.close(pending, now, reason, text)
        return self._end(pending, reason, text, now)

    def _end(self, pending: Pending, reason: Reason, text: str, now: float) -> Deliveries:
        """Be done with a call of any sort, already closed, that got no answer."""
        if isinstance(pending.errand, Work):
            return self._queues.give_back(pending.errand, reason, text, now)
        if isinstance(pending.errand, Owed):
            return self._owing.lost(pending, pending.errand, reason, text, now)
        return [] if isinstance(pending.errand, Listing) else self._fail(pending, reason, text)

    def _fail(self, pending: Pending, reason: Reason, text: str) -> Deliveries:
        self._counters.failures[reason] += 1
        wait = RETRY_AFTER if reason is Reason.BUSY else None
        return [Delivery(pending.caller.peer, Failure(pending.id, reason, text, retry_after=wait), pending.op)]
