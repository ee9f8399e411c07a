"""Outgoing requests of a conversation, and the answers of the peer."""

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols.deferred_messages import DeferredMessages
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.bridge import OwnSubscription
from fiveways.protocols.nq.frames import FreeKeys
from fiveways.protocols.nq.messages import (
    Acceptance,
    Answer,
    AnswerPart,
    Bad,
    CancelRequest,
    ErrorAnswer,
    Missing,
    Next,
    Note,
    PollReply,
    Request,
    RequestPart,
)
from fiveways.protocols.nq.outgoing_requests import OutgoingRequests
from fiveways.protocols.nq.requests import CANCELLED, OutgoingRequest, read_verbosity
from fiveways.protocols.nq.serializer import write
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import OutgoingState, RequestStep
from fiveways.protocols.nq.streams import (
    InconsistentPart,
    StreamReceiver,
    StreamSender,
    acknowledge_parts,
    resend_parts,
)
from fiveways.wire.payload import NULL


class Outgoing(OutgoingRequests):
    """Our requests and the handling of the peer's answers."""

    def __init__(self, shared: SessionState, deferred: DeferredMessages) -> None:
        super().__init__(shared)
        self._deferred = deferred

    # Messages of the hub.

    def send_request(
        self, message: bridge.RequestMessage, now: float, extra: FreeKeys | None = None, topic: str = ""
    ) -> OutgoingRequest:
        """`{t, r, d}`, or the first part of it."""
        hub_id: str | None = getattr(message, "id", None)  # events have no id
        self._check_room(message, hub_id)
        target, body, free = bridge.request_from_message(message, topic)
        if extra is not None:
            free = extra if free is None else free | extra
        json_body = None if body is NULL else bridge.json_body(body)
        shared = self._shared
        request = OutgoingRequest(shared, shared.mint(), target, type(message), hub_id)
        request.expires_at = now + shared.options.request_ttl
        request.v = shared.options.verbose
        request.operation = shared.operation
        if isinstance(message, hub.Call) and message.extras is not None:
            request.v = read_verbosity(message.extras) or request.v
        if isinstance(message, hub.Call) and message.more:
            part = RequestPart(target, request.r, json_body or bridge.JSON_NULL, 1, None, request.v, "", free)
            raw = shared.check_size(write(part))
            request.sender = StreamSender(shared, operation=shared.operation)
            request.sender.add(raw, end=False)
            self._retransmission.send(request.sender)
            self._retransmission.restart_wait(request, now)
        else:
            request.data = shared.check_size(write(Request(target, request.r, json_body, request.v, "", free)))
            size, budget = len(request.data), shared.request_budget
            # Events may use half of the budget, as of the number of requests.
            if (
                request.message_type is hub.Event and budget.used + size > (budget.maximum + 1) // 2
            ) or not budget.has_room(size):
                raise LocalProtocolError("too many bytes of unanswered requests to this peer")
            self._retransmission.send(request)
        self._add(request)
        return request

    def send_part(self, message: hub.Part, now: float) -> None:
        """`{t, r, d, n, f}`."""
        request = self._by_id.get(message.id)
        if request is None or request.sender is None or request.sender.ended:
            raise LocalProtocolError(f"no streamed request {message.id} is open")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the last part of a stream may lack a body")
        sender, shared = request.sender, self._shared
        body = None if message.body is None else bridge.json_body(message.body)
        number, follow = sender.last + 1, 0 if message.last else None
        raw = shared.check_size(write(RequestPart(request.t, request.r, body, number, follow, request.v)))
        if number > shared.limits.max_stream or sender.is_full(len(raw)):
            raise LocalProtocolError(f"request {message.id} has more than {number - 1} parts")
        sender.add(raw, end=message.last)
        if sender.can_send():
            self._retransmission.send(sender)

    def send_cancel(self, message: hub.Cancel, now: float) -> None:
        """`{i, e}`, fatal; requests without a hub id are not affected."""
        request = self._by_id.get(message.id)
        if request is not None:
            self._cancel(request, now)

    def send_subscribe(self, message: hub.Subscribe, now: float) -> None:
        """Subscribe; events arrive as requests to a target that is minted here."""
        subscriptions = self._shared.own_subscriptions
        if self._subscription_target(message.subscription) is not None:
            raise LocalProtocolError(f"subscription {message.subscription} is open already")
        if len(subscriptions) >= self._shared.limits.max_subscriptions:
            raise LocalProtocolError("too many subscriptions are open")
        target = self._shared.mint()  # a minted name cannot be the name of a method
        self.send_request(message, now, None, target).topic = target
        subscriptions[target] = OwnSubscription(message.subscription, message.envelope)

    def send_unsubscribe(self, message: hub.Unsubscribe, now: float) -> None:
        """Unsubscribe."""
        target = self._subscription_target(message.subscription)
        if target is None:
            raise LocalProtocolError(f"no subscription {message.subscription} is open")
        self.send_request(message, now, None, target)
        del self._shared.own_subscriptions[target]

    def send_event(self, message: hub.Event | hub.TopicClosed, now: float, extra: FreeKeys | None = None) -> None:
        """Send an event as a request to the peer's subscription, without a hub id."""
        published = self._shared.peer_subscriptions
        grant = published.grants.get(message.subscription)
        if not grant:
            raise LocalProtocolError(f"the peer has no subscription {message.subscription}")
        self.send_request(message, now, extra).grant = grant
        if isinstance(message, hub.TopicClosed):
            published.end(message.subscription, grant)

    def _check_room(self, message: bridge.RequestMessage, hub_id: str | None) -> None:
        if hub_id in self._by_id or hub_id in self._deferred:
            raise LocalProtocolError(f"request {hub_id} is open already")
        limit = self._shared.limits.max_pending
        # A subscriber that does not answer must not block calls.
        if len(self._requests) >= limit or (isinstance(message, hub.Event) and self._event_count >= (limit + 1) // 2):
            raise LocalProtocolError("too many requests to this peer are open")

    def _subscription_target(self, name: str) -> str | None:
        own = self._shared.own_subscriptions
        return next((target for target, subscription in own.items() if subscription.subscription == name), None)

    # Messages of the peer.

    def on_acceptance(self, message: Acceptance, now: float) -> None:
        """`{a, i}`: stop retransmitting and start polling."""
        for r in message.i:
            request = self._requests.get(r)
            if request is None:
                continue
            self._check_peer_restart(request, message.a, now)
            request.a = request.a or message.a
            if request.advance(RequestStep.ACCEPT):
                self._retransmission.restart_wait(request, now)
                if request.hub_id is not None and request.message_type is hub.Call and not request.accepted:
                    request.accepted = True
                    self._hub_messages.append(hub.Accepted(request.hub_id))

    def on_answer(self, message: Answer, now: float) -> None:
        """`{a, i, d}`: deliver the first one and acknowledge each (NQ-12)."""
        shared = self._shared
        shared.pending_acks.append(message.a)
        attachments = None if message.extra is None else bridge.answer_attachments(message, shared.limits)
        extras = bridge.extras_from_free(message.extra)
        for r in message.i:
            request = self._requests.get(r)
            if request is None:
                continue
            if request.receiver is not None:
                self._check_peer_restart(request, message.a, now)
            hub_id, message_type = request.hub_id, request.message_type
            self._finish(request, RequestStep.END)
            if hub_id is not None:
                self._hub_messages += bridge.messages_from_answer(hub_id, message_type, message, attachments, extras)
        if request is None or len(message.i) > 1:
            self._report_stray(message.i)

    def on_part(self, message: AnswerPart, now: float) -> None:
        """`{a, i, d, n, f}`: deliver in order."""
        for r in message.i:
            request = self._requests.get(r)
            if request is not None:
                self._check_peer_restart(request, message.a, now)
            if request is not None and request.state is not OutgoingState.CANCELLED:
                if request.receiver is None:
                    request.a = message.a
                    request.receiver = StreamReceiver(self._shared, "", message.a)
                if request.receiver.i == message.a:
                    self._deliver_part(request, request.receiver, message, now)
                    continue
                if self._shared.is_from_unknown_run(message.a):
                    continue  # the peer has not sent its prefix yet, so it may still be the expected run
            # Acknowledge parts of closed or unknown requests too, so that the peer stops retransmitting.
            self._retransmission.send_once(write(Next("", (message.a,), message.n + 1)))
            if request is not None and message.f == 0 and request.state is OutgoingState.CANCELLED:
                self._finish(request, RequestStep.END)
        self._report_stray(message.i)

    def _deliver_part(
        self, request: OutgoingRequest, receiver: StreamReceiver[AnswerPart], message: AnswerPart, now: float
    ) -> None:
        limits, hub_id = self._shared.limits, request.hub_id
        if message.n + (message.f or 0) > limits.max_stream:
            self._fail(request, Reason.RAISED, "the stream is too long", now)
            return
        request.has_recent_part = True
        request.advance(RequestStep.PART)
        try:
            turn = receiver.add_part(message)
        except InconsistentPart:
            self._end_contradictory_stream(request, message, now)
            return
        for part in turn:
            receiver.ended = part.n == receiver.total
            if hub_id is not None:
                self._hub_messages += bridge.messages_from_part(hub_id, part, limits, last=receiver.ended)
        receiver.acknowledge(now, progress=bool(turn))
        if receiver.is_done:
            self._finish(request, RequestStep.END)
            if hub_id is not None and not receiver.ended:
                self._hub_messages.append(hub.Result(hub_id, None, stream=True))

    def _end_contradictory_stream(self, request: OutgoingRequest, message: AnswerPart, now: float) -> None:
        """End a stream that contradicts itself; an error ends it at any number."""
        if message.e is None:
            self._fail(request, Reason.RAISED, "the parts of the answer contradict each other", now)
            return
        hub_id = request.hub_id
        self._retransmission.send_once(write(Next("", (message.a,), message.n + 1)))
        self._finish(request, RequestStep.END)
        if hub_id is not None:
            self._hub_messages.append(bridge.failure_from_error(hub_id, message.e, message.d))

    def on_error(self, message: ErrorAnswer, now: float) -> None:
        """`{a, i, e}`, fatal."""
        self._shared.pending_acks.append(message.a)
        for r in message.i:
            request = self._requests.get(r)
            if request is None:
                continue
            self._check_peer_restart(request, message.a, now)
            hub_id = request.hub_id
            self._finish(request, RequestStep.END)
            self._shared.own_subscriptions.pop(request.topic, None)
            if hub_id is not None:
                self._hub_messages.append(bridge.failure_from_error(hub_id, message.e, message.d))
            elif request.message_type is hub.Event and bridge.is_unknown_target(message.e):
                self._on_unknown_subscription(request)
        self._report_stray(message.i)

    def _on_unknown_subscription(self, request: OutgoingRequest) -> None:
        """Remove a subscription that the peer has forgotten, unless its name was used again."""
        if self._shared.peer_subscriptions.end(request.t, request.grant):
            self._hub_messages.append(hub.Unsubscribe(None, request.t))

    def on_note(self, message: Note, now: float) -> None:
        """`{a, i, e}`, not fatal."""
        is_quiet = message.e.type not in bridge.VERBOSE_KINDS
        for r in message.i:
            request = self._requests.get(r)
            if request and request.hub_id is not None and request.message_type is hub.Call and (is_quiet or request.v):
                self._hub_messages.append(bridge.progress_from_error(request.hub_id, message.e, message.d))

    def on_poll_reply(self, message: PollReply, now: float) -> None:
        """Resend a request that the peer does not know; other replies need no action (NQ-a06)."""
        for r in message.i:
            request = self._requests.get(r)
            if request is None or request.state is OutgoingState.CANCELLED:
                continue
            if message.e.note != "unknown":
                self._check_peer_restart(request, message.a, now)
            elif request.sender is None and request.advance(RequestStep.UNKNOWN):
                request.a = ""
                self._retransmission.resend_now(request)
            else:
                self._fail(request, Reason.LOST, "the peer has lost a part of the stream", now)

    def on_next(self, message: Next, now: float) -> None:
        """`{a, i, o}`: parts of our request arrived."""
        for r in message.i:
            request = self._requests.get(r)
            if request is not None and request.state is not OutgoingState.CANCELLED:
                acknowledge_parts(request.sender, message.o, now)
            else:
                self._cancel_unknown_parts(message.a, request)

    def on_missing(self, message: Missing, now: float) -> None:
        """`{a, i, o: [...]}`: parts of our request are missing."""
        numbers = frozenset(message.o)
        for r in dict.fromkeys(message.i):
            request = self._requests.get(r)
            if request is not None and request.state is not OutgoingState.CANCELLED:
                resend_parts(request.sender, numbers)
            else:
                self._cancel_unknown_parts(message.a, request)

    def _cancel_unknown_parts(self, a: str, request: OutgoingRequest | None) -> None:
        """Tell a peer that waits for more parts of a request that it is cancelled."""
        if request is not None:
            request.a = a  # the retransmitted cancellation can use this backchannel now
        else:
            self._retransmission.send_once(write(CancelRequest("", (a,), CANCELLED)))

    def on_bad_answer(self, bad: Bad, now: float) -> None:
        """Fail requests with an invalid answer, which the peer would only retransmit."""
        self._shared.pending_acks.append(bad.a)
        for r in bad.i:
            request = self._requests.get(r)
            if request is not None and request.state is not OutgoingState.CANCELLED:
                request.a = bad.a
                self._fail(request, Reason.RAISED, f"the answer is invalid: {bad.text} [{bad.rule}]", now)
