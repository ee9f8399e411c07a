"""What the hub says to requests of the peer: that they are accepted, how far they are, and how they end."""

from collections import deque
from math import inf
from typing import Final

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols import builtin_methods
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import JSON_NULL, json_body
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.frames import FreeKeys
from fiveways.protocols.nq.requests import IncomingRequest, IncomingRequests
from fiveways.protocols.nq.serializer import answer_start, write, write_answer
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import IncomingState, RequestStep
from fiveways.protocols.nq.streams import StreamSender
from fiveways.wire.payload import NULL, Json, Payload

_MAX_CODE_LENGTH: Final = 64
ALWAYS_KEPT_BYTES: Final = 1024
"""Bytes of an answer that is always kept."""


class Responses:
    """The lower half of `Incoming`: what goes back to the peer."""

    def __init__(self, common: SessionState) -> None:
        self._shared = common
        self._retransmission = common.retransmission
        self.requests = IncomingRequests(common)
        self._accept_within = common.options.accept_within
        self.pending_acceptances: deque[tuple[float, IncomingRequest]] = deque()
        """Acceptances, and when each must be said."""

    def send_accepted(self, message: hub.Accepted, now: float) -> None:
        """`{a, i}`."""
        serving = self.requests.get_unanswered(message.id)
        serving.advance(RequestStep.ACCEPT)
        serving.accepted = True
        serving.operation = self._shared.operation
        if self._accept_within:
            self.pending_acceptances.append((now + self._accept_within, serving))
        else:
            self._send_acceptance(serving)

    def send_due_acceptances(self, until: float = inf) -> None:
        """Say of those that were accepted, and should have heard so by then, what was not answered meanwhile."""
        unsaid = self.pending_acceptances
        while unsaid and unsaid[0][0] <= until:
            serving = unsaid.popleft()[1]
            if serving.state is IncomingState.ACCEPTED:
                self._send_acceptance(serving)

    def send_result(self, message: hub.Result, now: float, free: FreeKeys | None = None) -> None:
        """`{a, i, d}`, or one part of it."""
        serving = self.requests.get_unanswered(message.id)
        body = message.body if type(message.body) is Json or message.body is None else json_body(message.body)
        if message.extras:
            free = (bridge.free_from_extras(message.extras) or {}) | (free or {})
        if message.stream:
            self._send_part(serving, body, None, free, now, end=message.last)
        elif serving.sender is not None:
            raise LocalProtocolError(f"request {message.id} is answered in parts")
        else:
            if free:
                raw = write(nq.Answer(serving.a, (serving.r,), body or JSON_NULL, free))
            else:
                raw = write_answer(answer_start(serving.a, (serving.r,)), body or JSON_NULL)
            self._shared.check_size(raw)
            if not self._has_room(raw):
                raise LocalProtocolError("too many bytes of answers are not acknowledged")
            self._send_answer(serving, raw, now)
        if serving.topic:
            self._shared.peer_subscriptions.settle(serving.topic, serving.a, serving.grant, granted=True)

    def send_description(self, message: hub.Description, now: float) -> None:
        """Answer `hub-discover`."""
        self.send_result(hub.Result(message.id, builtin_methods.description_payload(message)), now)

    def send_failure(self, message: hub.Failure, now: float) -> None:
        """`{a, i, e}`, fatal; in a stream it is the end of it."""
        serving = self.requests.get_unanswered(message.id)
        error = bridge.error_from_failure(message, accepted=serving.state is not IncomingState.RECEIVED)
        error = serving.cancel_error or error if message.reason is Reason.CANCELLED else error
        body = None if message.data is None else json_body(message.data)
        raw = self._shared.check_size(write(nq.ErrorAnswer(serving.a, (serving.r,), body, error)))
        if not self._has_room(raw):
            body, error = (
                None,
                ErrorObject(error.type, True, error.err[:_MAX_CODE_LENGTH]),
            )  # the end must always find room
            raw = write(nq.ErrorAnswer(serving.a, (serving.r,), None, error))
        if serving.sender is None:
            self._send_answer(serving, raw, now)
        else:
            self._send_part(serving, body, error, None, now, end=True)
        if serving.topic:
            self._shared.peer_subscriptions.settle(serving.topic, serving.a, serving.grant, granted=False)

    def send_progress(self, message: hub.Progress, now: float) -> None:
        """`{a, i, e}`, not fatal; `tmp` and `debug` only for who asked for them (NQ-a13)."""
        serving = self.requests.get_unanswered(message.id)
        error = bridge.error_from_progress(message)
        body = None if message.body is NULL else json_body(message.body)
        raw = self._shared.check_size(write(nq.Note(serving.a, (serving.r,), body, error)))
        if serving.v or message.kind not in bridge.VERBOSE_KINDS:
            self._retransmission.send_once(raw, self._shared.operation)

    def _send_acceptance(self, serving: IncomingRequest) -> None:
        self._retransmission.send_once(answer_start(serving.a, (serving.r,)) + b"}", serving.operation)

    def _has_room(self, raw: bytes) -> bool:
        return len(raw) <= ALWAYS_KEPT_BYTES or self._shared.answer_budget.has_room(len(raw))

    def _send_answer(self, serving: IncomingRequest, raw: bytes, now: float) -> None:
        serving.advance(RequestStep.END)
        serving.payload, serving.operation = raw, self._shared.operation
        self.requests.store_answer(serving, now + self._shared.options.answer_ttl)
        self._retransmission.send(serving)

    def _send_part(
        self,
        serving: IncomingRequest,
        body: Payload | None,
        error: ErrorObject | None,
        free: FreeKeys | None,
        now: float,
        *,
        end: bool,
    ) -> None:
        sender = serving.sender or StreamSender(self._shared, operation=self._shared.operation)
        number = sender.last + 1
        part = nq.AnswerPart(serving.a, (serving.r,), body, error, number, 0 if end else None, free)
        raw = self._shared.check_size(write(part))
        if not end and body is None:
            raise LocalProtocolError("only the end of a stream may carry nothing")
        if error is None and number > self._shared.limits.max_stream:
            raise LocalProtocolError(f"the peer takes no more than {number - 1} parts of the answer to {serving.key}")
        if error is None and sender.is_full(len(raw)):
            raise LocalProtocolError("too many parts or bytes of answers are not acknowledged")
        serving.advance(RequestStep.END if end else RequestStep.PART)
        serving.sender = sender
        sender.add(raw, end=end)
        if end:
            self.requests.store_answer(serving, now + self._shared.options.answer_ttl)
        if sender.can_send():
            self._retransmission.send(sender)
