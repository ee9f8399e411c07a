"""Incoming requests of a conversation, and the answers of the hub."""

from typing import Any

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import (
    CLOSED_TARGET,
    JSON_NULL,
    RequestRefused,
    message_from_request,
    read_attachments,
    request_key,
)
from fiveways.protocols.nq.dedup import MAX_REASON_LENGTH, FinishedRequests, Tombstone
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.messages import Request, RequestPart
from fiveways.protocols.nq.requests import CANCELLED, IncomingRequest
from fiveways.protocols.nq.responses import Responses
from fiveways.protocols.nq.serializer import write
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import IncomingState, RequestStep
from fiveways.protocols.nq.streams import InconsistentPart, StreamReceiver, acknowledge_parts, resend_parts
from fiveways.wire.payload import NULL, Payload

WAITING_ERROR = ErrorObject("tmp", False, note="waiting")
_ACK, _ACKNOWLEDGED = RequestStep.ACK, Tombstone.ACKNOWLEDGED  # attribute access on an Enum class is slow


class Incoming(Responses):
    """Requests of the peer and their answers."""

    def __init__(self, shared: SessionState) -> None:
        super().__init__(shared)
        self._hub_messages = shared.hub_messages
        self.finished = FinishedRequests(shared)
        self.tombstones = self.finished.tombstones

    # Requests.

    def on_request(self, message: Request, now: float) -> None:
        """Handle a request or its retransmission."""
        key = request_key(message.t, message.r)
        if (key in self.requests or self.finished.may_contain(key)) and self._answer_repeat(key, message.r, now):
            return
        try:
            if message.t in self._shared.own_subscriptions or message.t == CLOSED_TARGET:
                self._on_event(key, message, now)
                return
            self._check_room()
            attachments: tuple[hub.Attachment, ...] = ()
            if message.extra is None and not message.v:
                hub_message = message_from_request(
                    key, message.t or self._shared.options.default_method, message.d or NULL, None
                )
            else:
                attachments = read_attachments(key, message.extra, self._shared.limits)
                hub_message = self._parse_message(key, message, attachments)
            topic = None if type(hub_message) is hub.Call else self._shared.peer_subscriptions.request(hub_message)
        except RequestRefused as refused:
            self._retransmission.send_once(self.finished.refuse(key, message.r, refused, now))
            return
        request = self._open(key, message)
        if topic is not None:
            request.topic, request.grant = topic
        self._hub_messages.append(hub_message)
        if attachments and getattr(hub_message, "attachments", ()):
            self._hub_messages += attachments

    def on_part(self, message: RequestPart, now: float) -> None:
        """Handle a part of a streamed request; the hub receives parts in order."""
        key = request_key(message.t, message.r)
        request = self.requests.get(key)
        if request is None or request.receiver is None:
            if self._answer_repeat(key, message.r, now):
                return
            try:
                request = self._open_stream(key, message)
            except RequestRefused as refused:
                self._retransmission.send_once(self.finished.refuse(key, message.r, refused, now))
                return
        receiver = request.receiver
        assert receiver is not None  # noqa: S101  a streamed request has a receiver until it is answered
        if message.n + (message.f or 0) > self._shared.limits.max_stream:
            self._abort(request, ErrorObject.local("toolarge", "the stream is too long"), now)
            return
        old_next = receiver.next
        try:
            ready = receiver.add_part(message)
        except InconsistentPart:
            self._abort(request, ErrorObject.local("malformed", "the parts contradict each other"), now)
            return
        for part in ready:
            self._deliver_part(request, part, receiver.total, now)
        if request.state is IncomingState.ANSWERED:
            return  # the first part was refused
        if receiver.is_done and not receiver.ended:
            self._hub_messages.append(hub.Part(key, None, last=True))
            receiver.ended = True
        if message.n == 1 and old_next > 1 and request.accepted:
            self._send_acceptance(request)
        receiver.acknowledge(now, progress=receiver.next > old_next)

    def _open_stream(self, key: str, message: RequestPart) -> IncomingRequest:
        self._check_room()
        if message.d is None and message.n <= 1:
            raise RequestRefused(Reason.BAD_ARGUMENTS, "a streamed request needs at least one element")
        self._parse_message(key, message, ())  # refuse an invalid request before its other parts arrive
        request = self._open(key, message)
        request.receiver = StreamReceiver(self._shared, request.a, request.r)
        return request

    def _open(self, key: str, message: Request | RequestPart) -> IncomingRequest:
        request = IncomingRequest(self._shared.mint(), key, message.r)
        if message.v:
            request.v = message.v
        self.requests.add(request)
        return request

    def _parse_message(
        self, key: str, message: Request | RequestPart, attachments: tuple[hub.Attachment, ...]
    ) -> hub.HubMessage:
        target = message.t or self._shared.options.default_method
        names = tuple(each.name for each in attachments)
        more = isinstance(message, RequestPart)
        return message_from_request(key, target, message.d or NULL, message.extra, names, more=more, verbose=message.v)

    def _check_room(self) -> None:
        if self.requests.is_full():
            raise RequestRefused(Reason.OVERLOADED, "too many requests are open, or too many answers not acknowledged")

    def _deliver_part(self, request: IncomingRequest, part: RequestPart, total: int | None, now: float) -> None:
        receiver = request.receiver
        if receiver is None:
            return  # the first part was refused
        if part.n > 1:
            receiver.ended = part.n == total
            self._hub_messages.append(hub.Part(request.key, part.d, last=receiver.ended))
            return
        try:
            attachments = read_attachments(request.key, part.extra, self._shared.limits)
            self._hub_messages.append(self._parse_message(request.key, part, attachments))
            self._hub_messages += attachments
        except RequestRefused as refused:
            error = bridge.error_from_failure(hub.Failure("", refused.reason, refused.text[:MAX_REASON_LENGTH]))
            request.unheard = True
            self._send_answer(request, write(nq.ErrorAnswer(request.a, (request.r,), None, error)), now)

    def _abort(self, request: IncomingRequest, error: ErrorObject, now: float) -> None:
        """End a request. If the hub has received it, the hub must answer the cancellation."""
        if request.receiver is not None and request.receiver.next == 1:
            request.unheard = True
            self._send_answer(request, write(nq.ErrorAnswer(request.a, (request.r,), None, error)), now)
        elif not request.cancelled:
            request.cancelled = True
            request.cancel_error = error
            self._hub_messages.append(hub.Cancel(request.key))

    def _answer_repeat(self, key: str, r: str, now: float) -> bool:
        """Answer a retransmission; return false if the request is new."""
        request = self.requests.get(key)
        if request is None:
            answer = self.finished.answer_repeat(key, r, now)
            if answer is not None:
                self._retransmission.send_once(answer)
            return answer is not None
        request.repeat_count += 1
        if request.state is IncomingState.ANSWERED:
            self._resend_answer(request)
            return True
        if request.accepted:
            self._send_acceptance(request)
        if request.v:
            self._retransmission.send_once(write(nq.Note(request.a, (r,), None, WAITING_ERROR)))
        if isinstance(request.v, str):
            # NQ-10: only a text in v enables notes of NQ itself.
            error = ErrorObject(
                "debug", False, "", "", "repeat", "came again, {1} so far", (str(request.repeat_count),)
            )
            self._retransmission.send_once(write(nq.Note(request.a, (r,), None, error)))
        return True

    def _resend_answer(self, request: IncomingRequest) -> None:
        if request.sender is None:
            self._retransmission.send(request)
        else:
            request.sender.on_timeout()
            self._retransmission.send(request.sender)

    def _on_event(self, key: str, message: Request, now: float) -> None:
        """Handle an event of our subscription, or its end; the answer does not involve the hub."""
        body = message.d or NULL
        if message.t == CLOSED_TARGET:
            self._on_topic_closed(body)
        else:
            subscription = self._shared.own_subscriptions[message.t]
            attachments = read_attachments(key, message.extra, self._shared.limits)
            names = tuple(attachment.name for attachment in attachments)
            self._hub_messages.append(bridge.event_from_request(subscription, body, message.extra, names))
            self._hub_messages += attachments
        self.tombstones.add(key, Tombstone.EVENT, now)
        self._retransmission.send_once(write(nq.Answer(self._shared.mint(), (message.r,), JSON_NULL)))

    def _on_topic_closed(self, body: Payload) -> None:
        match bridge.body_value(body):
            case {"id": str(target)}:
                following = self._shared.own_subscriptions.pop(target, None)
                if following is not None:
                    self._hub_messages.append(hub.TopicClosed(following.subscription))
            case _:
                raise RequestRefused(Reason.BAD_ARGUMENTS, "needs id, the subscription that ended")

    # Messages of the peer about its requests.

    def on_poll(self, message: nq.Poll, now: float) -> None:
        """Send the state of a request, and its answer if there is one (NQ-a06)."""
        key = request_key(message.t, message.p)
        request = self.requests.get(key)
        if request is not None:
            note = "done" if request.state is IncomingState.ANSWERED else "pending"
            self._retransmission.send_once(write(nq.PollReply(request.a, (message.p,), ErrorObject.system(note))))
            if request.state is IncomingState.ANSWERED:
                self._resend_answer(request)
            return
        a, answer = self._shared.mint(), self.finished.answer_repeat(key, message.p, now)
        note = "unknown" if answer is None else "done"
        self._retransmission.send_once(write(nq.PollReply(a, (message.p,), ErrorObject.system(note))))
        if answer is not None:
            self._retransmission.send_once(answer)

    def on_ack(self, message: nq.Ack, now: float) -> None:
        """Remove a single answer. A bare `{i}` for a stream, or before the answer, has no meaning (NQ-a02)."""
        for backchannel in message.i:
            request = self.requests.find_by_backchannel(backchannel)
            if request is not None and request.sender is None and request.said:
                self.on_acknowledged(request, now)

    def on_next(self, message: nq.Next, now: float) -> None:
        """Remove acknowledged parts."""
        for backchannel in message.i:
            request = self.requests.find_by_backchannel(backchannel)
            if request is not None and acknowledge_parts(request.sender, message.o, now):
                self.on_acknowledged(request, now)

    def on_missing(self, message: nq.Missing, now: float) -> None:
        """Resend missing parts."""
        numbers = frozenset(message.o)
        for backchannel in frozenset(message.i):
            request = self.requests.find_by_backchannel(backchannel)
            if request is not None:
                resend_parts(request.sender, numbers)

    def on_cancel(self, message: nq.CancelRequest, now: float) -> None:
        """Forward a cancellation to the hub, once."""
        for identifier in message.i:
            request = self.requests.find_by_backchannel(identifier) or self.requests.get(
                request_key(message.t, identifier)
            )
            if request is None:
                continue
            if request.state is IncomingState.ANSWERED:
                self._resend_answer(request)
            else:
                self._abort(request, CANCELLED, now)

    def on_back_message(self, message: nq.BackMessage, now: float) -> None:
        """Send a warning that the backchannel is not read: the hub has no message for it."""
        for backchannel in dict.fromkeys(message.i):
            request = self.requests.find_by_backchannel(backchannel)
            if request is not None and request.state is not IncomingState.ANSWERED:
                error = ErrorObject("warn", False, warn="unread", text="the backchannel is not read")
                self._retransmission.send_once(write(nq.Note(request.a, (request.r,), None, error)))

    def on_acknowledged(self, request: IncomingRequest, now: float) -> None:
        """Replace a request by its tombstone, because its answer was acknowledged."""
        request.advance(_ACK)
        self.requests.remove(request)
        self.tombstones.add(request.key, _ACKNOWLEDGED, now)
        if not request.unheard:
            self._hub_messages.append(hub.Acknowledged(request.key))

    # Time.

    def expire(self, now: float) -> None:
        """Send due acceptances, and report and remove answers that were never acknowledged."""
        self.send_due_acceptances(now)
        while (request := self.requests.oldest_answered()) is not None and request.expires_at <= now:
            request.advance(RequestStep.EXPIRE)
            self.requests.remove(request)
            self.tombstones.add(request.key, Tombstone.EXPIRED, now)
            if not request.unheard:
                self._hub_messages.append(hub.Stray(request.key, "the answer expired without an acknowledgement"))
        self.tombstones.expire(now)

    def deadline(self) -> float | None:
        """Return the time of the next acceptance, or the expiry of the oldest answer."""
        if self.pending_acceptances:
            return self.pending_acceptances[0][0]
        oldest = self.requests.oldest_answered()
        return None if oldest is None else oldest.expires_at

    def resend_all(self) -> None:
        """Retransmit everything on another connection."""
        for request in self.requests.all():
            if request.payload:
                self._retransmission.resend_now(request)
            if request.sender is not None:
                self._retransmission.resend_now(request.sender)
            if request.receiver is not None:
                self._retransmission.resend_now(request.receiver)

    def export(self, now: float, *, unaccepted: bool) -> list[dict[str, object]]:
        """Return the state for `restore`."""
        return [
            request.export(now)
            for request in self.requests.all()
            if unaccepted or request.state is not IncomingState.RECEIVED
        ]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Restore the exported requests."""
        requests = [IncomingRequest.restore(self._shared, each, now) for each in saved]
        for request in requests:
            self.requests.add(request)
            if request.topic and not request.grant and request.state is not IncomingState.ANSWERED:
                self._shared.peer_subscriptions.grants.setdefault(request.topic, "")
        for request in sorted(requests, key=lambda each: each.expires_at):
            if request.state is IncomingState.ANSWERED:
                self.requests.store_answer(request, request.expires_at)
