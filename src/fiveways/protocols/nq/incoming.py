"""The answering half of a conversation: requests of the peer, and what the hub says to them."""

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
_ACK, _ACKNOWLEDGED = RequestStep.ACK, Tombstone.ACKNOWLEDGED  # members of an Enum are slow to look up


class Incoming(Responses):
    """What the peer asks, and what it is answered."""

    def __init__(self, common: SessionState) -> None:
        super().__init__(common)
        self._hub_messages = common.hub_messages
        self.finished = FinishedRequests(common)
        self.tombstones = self.finished.tombstones

    # Requests.

    def on_request(self, message: Request, now: float) -> None:
        """Take a request, or recognise one that was taken before."""
        key = request_key(message.t, message.r)
        if (key in self.requests or self.finished.may_contain(key)) and self._answer_repeat(key, message.r, now):
            return
        try:
            if message.t in self._shared.own_subscriptions or message.t == CLOSED_TARGET:
                self._on_event(key, message, now)
                return
            self._check_room()
            attached: tuple[hub.Attachment, ...] = ()
            if message.extra is None and not message.v:
                hub_message = message_from_request(
                    key, message.t or self._shared.options.default_method, message.d or NULL, None
                )
            else:
                attached = read_attachments(key, message.extra, self._shared.limits)
                hub_message = self._parse_message(key, message, attached)
            topic = None if type(hub_message) is hub.Call else self._shared.peer_subscriptions.request(hub_message)
        except RequestRefused as refused:
            self._retransmission.send_once(self.finished.refuse(key, message.r, refused, now))
            return
        serving = self._open(key, message)
        if topic is not None:
            serving.topic, serving.grant = topic
        self._hub_messages.append(hub_message)
        if attached and getattr(hub_message, "attachments", ()):
            self._hub_messages += attached

    def on_part(self, message: RequestPart, now: float) -> None:
        """Take one part of a streamed request; the hub hears them in order."""
        key = request_key(message.t, message.r)
        serving = self.requests.get(key)
        if serving is None or serving.receiver is None:
            if self._answer_repeat(key, message.r, now):
                return
            try:
                serving = self._open_stream(key, message)
            except RequestRefused as refused:
                self._retransmission.send_once(self.finished.refuse(key, message.r, refused, now))
                return
        receiver = serving.receiver
        assert receiver is not None  # noqa: S101  a streamed request that is not answered has one
        if message.n + (message.f or 0) > self._shared.limits.max_stream:
            self._abort(serving, ErrorObject("local", True, "toolarge", text="the stream is too long"), now)
            return
        before = receiver.next
        try:
            turn = receiver.add_part(message)
        except InconsistentPart:
            self._abort(serving, ErrorObject("local", True, "malformed", text="the parts contradict each other"), now)
            return
        for part in turn:
            self._deliver_part(serving, part, receiver.total, now)
        if serving.state is IncomingState.ANSWERED:
            return  # the first part was refused
        if receiver.is_done and not receiver.ended:
            self._hub_messages.append(hub.Part(key, None, last=True))
            receiver.ended = True
        if message.n == 1 and before > 1 and serving.accepted:
            self._send_acceptance(serving)
        receiver.acknowledge(now, progress=receiver.next > before)

    def _open_stream(self, key: str, message: RequestPart) -> IncomingRequest:
        self._check_room()
        if message.d is None and message.n <= 1:
            raise RequestRefused(Reason.BAD_ARGUMENTS, "a streamed request needs an element")
        self._parse_message(key, message, ())  # Refused now, if it will be
        serving = self._open(key, message)
        serving.receiver = StreamReceiver(self._shared, serving.a, serving.r)
        return serving

    def _open(self, key: str, message: Request | RequestPart) -> IncomingRequest:
        serving = IncomingRequest(self._shared.mint(), key, message.r)
        if message.v:
            serving.v = message.v
        self.requests.add(serving)
        return serving

    def _parse_message(
        self, key: str, message: Request | RequestPart, attached: tuple[hub.Attachment, ...]
    ) -> hub.HubMessage:
        target = message.t or self._shared.options.default_method
        names = tuple(each.name for each in attached)
        more = isinstance(message, RequestPart)
        return message_from_request(key, target, message.d or NULL, message.extra, names, more=more, verbose=message.v)

    def _check_room(self) -> None:
        if self.requests.is_full():
            raise RequestRefused(Reason.OVERLOADED, "too many requests are open, or too many answers not acknowledged")

    def _deliver_part(self, serving: IncomingRequest, part: RequestPart, total: int | None, now: float) -> None:
        receiver = serving.receiver
        if receiver is None:
            return  # its first part was refused
        if part.n > 1:
            receiver.ended = part.n == total
            self._hub_messages.append(hub.Part(serving.key, part.d, last=receiver.ended))
            return
        try:
            attached = read_attachments(serving.key, part.extra, self._shared.limits)
            self._hub_messages.append(self._parse_message(serving.key, part, attached))
            self._hub_messages += attached
        except RequestRefused as refused:
            error = bridge.error_from_failure(hub.Failure("", refused.reason, refused.text[:MAX_REASON_LENGTH]))
            serving.unheard = True
            self._send_answer(serving, write(nq.ErrorAnswer(serving.a, (serving.r,), None, error)), now)

    def _abort(self, serving: IncomingRequest, error: ErrorObject, now: float) -> None:
        """End a request. If the hub has heard of it, it is the hub that has to say so."""
        if serving.receiver is not None and serving.receiver.next == 1:
            serving.unheard = True
            self._send_answer(serving, write(nq.ErrorAnswer(serving.a, (serving.r,), None, error)), now)
        elif not serving.cancelled:
            serving.cancelled = True
            serving.cancel_error = error
            self._hub_messages.append(hub.Cancel(serving.key))

    def _answer_repeat(self, key: str, r: str, now: float) -> bool:
        """Whether the request has come before; if so, say again what was said then."""
        serving = self.requests.get(key)
        if serving is None:
            answer = self.finished.answer_repeat(key, r, now)
            if answer is not None:
                self._retransmission.send_once(answer)
            return answer is not None
        serving.repeat_count += 1
        if serving.state is IncomingState.ANSWERED:
            self._resend_answer(serving)
            return True
        if serving.accepted:
            self._send_acceptance(serving)
        if serving.v:
            self._retransmission.send_once(write(nq.Note(serving.a, (r,), None, WAITING_ERROR)))
        if isinstance(serving.v, str):
            # Only who asks for it by a text hears NQ talk about itself (NQ-10).
            error = ErrorObject(
                "debug", False, "", "", "repeat", "came again, {1} so far", (str(serving.repeat_count),)
            )
            self._retransmission.send_once(write(nq.Note(serving.a, (r,), None, error)))
        return True

    def _resend_answer(self, serving: IncomingRequest) -> None:
        if serving.sender is None:
            self._retransmission.send(serving)
        else:
            serving.sender.on_timeout()
            self._retransmission.send(serving.sender)

    def _on_event(self, key: str, message: Request, now: float) -> None:
        """Hear an event of a subscription of ours, or its end; the answer needs nobody above."""
        body = message.d or NULL
        if message.t == CLOSED_TARGET:
            self._on_topic_closed(body)
        else:
            following = self._shared.own_subscriptions[message.t]
            attached = read_attachments(key, message.extra, self._shared.limits)
            names = tuple(each.name for each in attached)
            self._hub_messages.append(bridge.event_from_request(following, body, message.extra, names))
            self._hub_messages += attached
        self.tombstones.add(key, Tombstone.EVENT, now)
        self._retransmission.send_once(write(nq.Answer(self._shared.mint(), (message.r,), JSON_NULL)))

    def _on_topic_closed(self, body: Payload) -> None:
        match bridge.body_value(body):
            case {"id": str(target)}:
                following = self._shared.own_subscriptions.pop(target, None)
                if following is not None:
                    self._hub_messages.append(hub.TopicClosed(following.subscription))
            case _:
                raise RequestRefused(Reason.BAD_ARGUMENTS, "needs id, the subscription that has ended")

    # What the peer says about its requests.

    def on_poll(self, message: nq.Poll, now: float) -> None:
        """Tell what became of a request; an answer that is there follows (NQ-a06)."""
        key = request_key(message.t, message.p)
        serving = self.requests.get(key)
        if serving is not None:
            note = "done" if serving.state is IncomingState.ANSWERED else "pending"
            self._retransmission.send_once(
                write(nq.PollReply(serving.a, (message.p,), ErrorObject("sys", False, note=note)))
            )
            if serving.state is IncomingState.ANSWERED:
                self._resend_answer(serving)
            return
        a, answer = self._shared.mint(), self.finished.answer_repeat(key, message.p, now)
        note = "unknown" if answer is None else "done"
        self._retransmission.send_once(write(nq.PollReply(a, (message.p,), ErrorObject("sys", False, note=note))))
        if answer is not None:
            self._retransmission.send_once(answer)

    def on_ack(self, message: nq.Ack, now: float) -> None:
        """Let a single answer go. On a stream, or before the answer, a bare `{i}` means nothing (NQ-a02)."""
        for backchannel in message.i:
            serving = self.requests.find_by_backchannel(backchannel)
            if serving is not None and serving.sender is None and serving.said:
                self.on_acknowledged(serving, now)

    def on_next(self, message: nq.Next, now: float) -> None:
        """Let the parts go that have come."""
        for backchannel in message.i:
            serving = self.requests.find_by_backchannel(backchannel)
            if serving is not None and acknowledge_parts(serving.sender, message.o, now):
                self.on_acknowledged(serving, now)

    def on_missing(self, message: nq.Missing, now: float) -> None:
        """Say the parts again that are missing."""
        numbers = frozenset(message.o)
        for backchannel in frozenset(message.i):
            serving = self.requests.find_by_backchannel(backchannel)
            if serving is not None:
                resend_parts(serving.sender, numbers)

    def on_cancel(self, message: nq.CancelRequest, now: float) -> None:
        """Tell the hub, once, that the answer is not wanted any more."""
        for identifier in message.i:
            serving = self.requests.find_by_backchannel(identifier) or self.requests.get(
                request_key(message.t, identifier)
            )
            if serving is None:
                continue
            if serving.state is IncomingState.ANSWERED:
                self._resend_answer(serving)
            else:
                self._abort(serving, CANCELLED, now)

    def on_back_message(self, message: nq.BackMessage, now: float) -> None:
        """Say that nobody reads the backchannel: the hub has no word for it."""
        for backchannel in dict.fromkeys(message.i):
            serving = self.requests.find_by_backchannel(backchannel)
            if serving is not None and serving.state is not IncomingState.ANSWERED:
                error = ErrorObject("warn", False, warn="unread", text="nobody reads this backchannel")
                self._retransmission.send_once(write(nq.Note(serving.a, (serving.r,), None, error)))

    def on_acknowledged(self, serving: IncomingRequest, now: float) -> None:
        """Keep nothing more of a request but its key: its answer has come."""
        serving.advance(_ACK)
        self.requests.remove(serving)
        self.tombstones.add(serving.key, _ACKNOWLEDGED, now)
        if not serving.unheard:
            self._hub_messages.append(hub.Acknowledged(serving.key))

    # Time.

    def expire(self, now: float) -> None:
        """Say what was accepted; let answers go that the peer never took, which somebody should know."""
        self.send_due_acceptances(now)
        while (serving := self.requests.oldest_answered()) is not None and serving.expires_at <= now:
            serving.advance(RequestStep.EXPIRE)
            self.requests.remove(serving)
            self.tombstones.add(serving.key, Tombstone.EXPIRED, now)
            if not serving.unheard:
                self._hub_messages.append(
                    hub.Stray(serving.key, "the answer was never acknowledged, and its time is over")
                )
        self.tombstones.expire(now)

    def deadline(self) -> float | None:
        """Return when the next acceptance is to be said, or the oldest answer to be given up."""
        if self.pending_acceptances:
            return self.pending_acceptances[0][0]
        oldest = self.requests.oldest_answered()
        return None if oldest is None else oldest.expires_at

    def resend_all(self) -> None:
        """Say all of it again, over another link."""
        for serving in self.requests.all():
            if serving.payload:
                self._retransmission.resend_now(serving)
            if serving.sender is not None:
                self._retransmission.resend_now(serving.sender)
            if serving.receiver is not None:
                self._retransmission.resend_now(serving.receiver)

    def export(self, now: float, *, unaccepted: bool) -> list[dict[str, object]]:
        """Return all that is needed to go on elsewhere."""
        return [
            each.export(now) for each in self.requests.all() if unaccepted or each.state is not IncomingState.RECEIVED
        ]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Go on where another has stopped."""
        servings = [IncomingRequest.restore(self._shared, each, now) for each in saved]
        for serving in servings:
            self.requests.add(serving)
            if serving.topic and not serving.grant and serving.state is not IncomingState.ANSWERED:
                self._shared.peer_subscriptions.grants.setdefault(serving.topic, "")
        for serving in sorted(servings, key=lambda each: each.expires_at):
            if serving.state is IncomingState.ANSWERED:
                self.requests.store_answer(serving, serving.expires_at)
