"""The asking half of a conversation: requests of ours, and what the peer says to them."""

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
    """What we ask of the peer, and what it answers."""

    def __init__(self, common: SessionState, waiting: DeferredMessages) -> None:
        super().__init__(common)
        self._deferred = waiting

    # What the hub says.

    def send_request(
        self, message: bridge.RequestMessage, now: float, extra: FreeKeys | None = None, topic: str = ""
    ) -> OutgoingRequest:
        """`{t, r, d}`, or the first part of it."""
        hub_id: str | None = getattr(message, "id", None)  # events have none
        self._check_room(message, hub_id)
        target, body, free = bridge.request_from_message(message, topic)
        if extra is not None:
            free = extra if free is None else free | extra
        given = None if body is NULL else bridge.json_body(body)
        common = self._shared
        asking = OutgoingRequest(common, common.mint(), target, type(message), hub_id)
        asking.expires_at = now + common.options.request_ttl
        asking.v = common.options.verbose
        asking.operation = common.operation
        if isinstance(message, hub.Call) and message.extras is not None:
            asking.v = read_verbosity(message.extras) or asking.v
        if isinstance(message, hub.Call) and message.more:
            part = RequestPart(target, asking.r, given or bridge.JSON_NULL, 1, None, asking.v, "", free)
            raw = common.check_size(write(part))
            asking.sender = StreamSender(common, operation=common.operation)
            asking.sender.add(raw, end=False)
            self._retransmission.send(asking.sender)
            self._retransmission.restart_wait(asking, now)
        else:
            asking.data = common.check_size(write(Request(target, asking.r, given, asking.v, "", free)))
            size, asked = len(asking.data), common.request_budget
            # As with their number, events may take half of the room.
            if (
                asking.message_type is hub.Event and asked.used + size > (asked.maximum + 1) // 2
            ) or not asked.has_room(size):
                raise LocalProtocolError("too many bytes of requests to this peer are not answered")
            self._retransmission.send(asking)
        self._add(asking)
        return asking

    def send_part(self, message: hub.Part, now: float) -> None:
        """`{t, r, d, n, f}`."""
        asking = self._by_id.get(message.id)
        if asking is None or asking.sender is None or asking.sender.ended:
            raise LocalProtocolError(f"no streamed request {message.id} is open")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the end of a stream may carry nothing")
        sender, common = asking.sender, self._shared
        body = None if message.body is None else bridge.json_body(message.body)
        number, follow = sender.last + 1, 0 if message.last else None
        raw = common.check_size(write(RequestPart(asking.t, asking.r, body, number, follow, asking.v)))
        if number > common.limits.max_stream or sender.is_full(len(raw)):
            raise LocalProtocolError(f"the peer takes no more than {number - 1} parts of request {message.id}")
        sender.add(raw, end=message.last)
        if sender.can_send():
            self._retransmission.send(sender)

    def send_cancel(self, message: hub.Cancel, now: float) -> None:
        """`{i, e}`, fatal; a request that the hub does not wait for is left alone."""
        asking = self._by_id.get(message.id)
        if asking is not None:
            self._cancel(asking, now)

    def send_subscribe(self, message: hub.Subscribe, now: float) -> None:
        """Ask for events; they will come as requests to the target that the subscription is given here."""
        following = self._shared.own_subscriptions
        if self._subscription_target(message.subscription) is not None:
            raise LocalProtocolError(f"subscription {message.subscription} is open already")
        if len(following) >= self._shared.limits.max_subscriptions:
            raise LocalProtocolError("too many subscriptions are open")
        target = self._shared.mint()  # any other might be the name of a method
        self.send_request(message, now, None, target).topic = target
        following[target] = OwnSubscription(message.subscription, message.envelope)

    def send_unsubscribe(self, message: hub.Unsubscribe, now: float) -> None:
        """Ask for no more events."""
        target = self._subscription_target(message.subscription)
        if target is None:
            raise LocalProtocolError(f"no subscription {message.subscription} is open")
        self.send_request(message, now, None, target)
        del self._shared.own_subscriptions[target]

    def send_event(self, message: hub.Event | hub.TopicClosed, now: float, extra: FreeKeys | None = None) -> None:
        """Send a request to a subscription of the peer's; nobody waits for its answer."""
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
        room = self._shared.limits.max_pending
        # A subscriber that does not answer may not keep the calls out.
        if len(self._requests) >= room or (isinstance(message, hub.Event) and self._event_count >= (room + 1) // 2):
            raise LocalProtocolError("too many requests to this peer are open")

    def _subscription_target(self, subscription: str) -> str | None:
        following = self._shared.own_subscriptions
        return next((target for target, each in following.items() if each.subscription == subscription), None)

    # What the peer says.

    def on_acceptance(self, message: Acceptance, now: float) -> None:
        """`{a, i}`: no need to say it again; poll now and then."""
        for r in message.i:
            asking = self._requests.get(r)
            if asking is None:
                continue
            self._check_peer_restart(asking, message.a, now)
            asking.a = asking.a or message.a
            if asking.advance(RequestStep.ACCEPT):
                self._retransmission.restart_wait(asking, now)
                if asking.hub_id is not None and asking.message_type is hub.Call and not asking.accepted:
                    asking.accepted = True
                    self._hub_messages.append(hub.Accepted(asking.hub_id))

    def on_answer(self, message: Answer, now: float) -> None:
        """`{a, i, d}`: the first one is given on, each is acknowledged (NQ-12)."""
        common = self._shared
        common.pending_acks.append(message.a)
        attached = None if message.extra is None else bridge.answer_attachments(message, common.limits)
        extras = bridge.extras_from_free(message.extra)
        for r in message.i:
            asking = self._requests.get(r)
            if asking is None:
                continue
            if asking.receiver is not None:
                self._check_peer_restart(asking, message.a, now)
            hub_id, hub_message = asking.hub_id, asking.message_type
            self._finish(asking, RequestStep.END)
            if hub_id is not None:
                self._hub_messages += bridge.messages_from_answer(hub_id, hub_message, message, attached, extras)
        if asking is None or len(message.i) > 1:
            self._report_stray(message.i)

    def on_part(self, message: AnswerPart, now: float) -> None:
        """`{a, i, d, n, f}`: given on in order."""
        for r in message.i:
            asking = self._requests.get(r)
            if asking is not None:
                self._check_peer_restart(asking, message.a, now)
            if asking is not None and asking.state is not OutgoingState.CANCELLED:
                if asking.receiver is None:
                    asking.a = message.a
                    asking.receiver = StreamReceiver(self._shared, "", message.a)
                if asking.receiver.i == message.a:
                    self._deliver_part(asking, asking.receiver, message, now)
                    continue
                if self._shared.is_from_unknown_run(message.a):
                    continue  # who speaks here has not told who it is: it may yet be the one to hear
            # Nobody wants it, or no longer: what is acknowledged is not said again.
            self._retransmission.send_once(write(Next("", (message.a,), message.n + 1)))
            if asking is not None and message.f == 0 and asking.state is OutgoingState.CANCELLED:
                self._finish(asking, RequestStep.END)
        self._report_stray(message.i)

    def _deliver_part(
        self, asking: OutgoingRequest, receiver: StreamReceiver[AnswerPart], message: AnswerPart, now: float
    ) -> None:
        limits, hub_id = self._shared.limits, asking.hub_id
        if message.n + (message.f or 0) > limits.max_stream:
            self._fail(asking, Reason.RAISED, "the stream is too long", now)
            return
        asking.has_recent_part = True
        asking.advance(RequestStep.PART)
        try:
            turn = receiver.add_part(message)
        except InconsistentPart:
            self._end_contradictory_stream(asking, message, now)
            return
        for part in turn:
            receiver.ended = part.n == receiver.total
            if hub_id is not None:
                self._hub_messages += bridge.messages_from_part(hub_id, part, limits, last=receiver.ended)
        receiver.acknowledge(now, progress=bool(turn))
        if receiver.is_done:
            self._finish(asking, RequestStep.END)
            if hub_id is not None and not receiver.ended:
                self._hub_messages.append(hub.Result(hub_id, None, (), True, True))

    def _end_contradictory_stream(self, asking: OutgoingRequest, message: AnswerPart, now: float) -> None:
        """End a stream that contradicts itself; an error is an end wherever it stands."""
        if message.e is None:
            self._fail(asking, Reason.RAISED, "the parts of the answer contradict each other", now)
            return
        hub_id = asking.hub_id
        self._retransmission.send_once(write(Next("", (message.a,), message.n + 1)))
        self._finish(asking, RequestStep.END)
        if hub_id is not None:
            self._hub_messages.append(bridge.failure_from_error(hub_id, message.e, message.d))

    def on_error(self, message: ErrorAnswer, now: float) -> None:
        """`{a, i, e}`, fatal."""
        self._shared.pending_acks.append(message.a)
        for r in message.i:
            asking = self._requests.get(r)
            if asking is None:
                continue
            self._check_peer_restart(asking, message.a, now)
            hub_id = asking.hub_id
            self._finish(asking, RequestStep.END)
            self._shared.own_subscriptions.pop(asking.topic, None)
            if hub_id is not None:
                self._hub_messages.append(bridge.failure_from_error(hub_id, message.e, message.d))
            elif asking.message_type is hub.Event and bridge.is_unknown_target(message.e):
                self._on_unknown_subscription(asking)
        self._report_stray(message.i)

    def _on_unknown_subscription(self, asking: OutgoingRequest) -> None:
        """Take note that the subscriber has forgotten its subscription, unless it has another of that name now."""
        if self._shared.peer_subscriptions.end(asking.t, asking.grant):
            self._hub_messages.append(hub.Unsubscribe(None, asking.t))

    def on_note(self, message: Note, now: float) -> None:
        """`{a, i, e}`, not fatal."""
        is_quiet = message.e.type not in bridge.VERBOSE_KINDS
        for r in message.i:
            asking = self._requests.get(r)
            if asking and asking.hub_id is not None and asking.message_type is hub.Call and (is_quiet or asking.v):
                self._hub_messages.append(bridge.progress_from_error(asking.hub_id, message.e, message.d))

    def on_poll_reply(self, message: PollReply, now: float) -> None:
        """Send a request again that the peer does not know; all else is patience (NQ-a06)."""
        for r in message.i:
            asking = self._requests.get(r)
            if asking is None or asking.state is OutgoingState.CANCELLED:
                continue
            if message.e.note != "unknown":
                self._check_peer_restart(asking, message.a, now)
            elif asking.sender is None and asking.advance(RequestStep.UNKNOWN):
                asking.a = ""
                self._retransmission.resend_now(asking)
            else:
                self._fail(asking, Reason.LOST, "the peer has forgotten half of a stream", now)

    def on_next(self, message: Next, now: float) -> None:
        """`{a, i, o}`: parts of our request have come."""
        for r in message.i:
            asking = self._requests.get(r)
            if asking is not None and asking.state is not OutgoingState.CANCELLED:
                acknowledge_parts(asking.sender, message.o, now)
            else:
                self._cancel_unknown_parts(message.a, asking)

    def on_missing(self, message: Missing, now: float) -> None:
        """`{a, i, o: [...]}`: parts of our request have not come."""
        numbers = frozenset(message.o)
        for r in dict.fromkeys(message.i):
            asking = self._requests.get(r)
            if asking is not None and asking.state is not OutgoingState.CANCELLED:
                resend_parts(asking.sender, numbers)
            else:
                self._cancel_unknown_parts(message.a, asking)

    def _cancel_unknown_parts(self, a: str, asking: OutgoingRequest | None) -> None:
        """Tell the peer, who waits for more of a request, that no more will come."""
        if asking is not None:
            asking.a = a  # what is being said again and again may call it by this name now
        else:
            self._retransmission.send_once(write(CancelRequest("", (a,), CANCELLED)))

    def on_bad_answer(self, bad: Bad, now: float) -> None:
        """Give up requests whose answer nobody can read: it would only come again."""
        self._shared.pending_acks.append(bad.a)
        for r in bad.i:
            asking = self._requests.get(r)
            if asking is not None and asking.state is not OutgoingState.CANCELLED:
                asking.a = bad.a
                self._fail(asking, Reason.RAISED, f"the answer cannot be read: {bad.text} [{bad.rule}]", now)
