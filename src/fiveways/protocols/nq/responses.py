"""Responses of the hub to requests of the peer: acceptance, progress and result."""

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
"""Answers up to this size are stored even if the budget is exhausted."""


class Responses:
    """The base class of `Incoming` with the messages to the peer."""

    def __init__(self, shared: SessionState) -> None:
        self._shared = shared
        self._retransmission = shared.retransmission
        self.requests = IncomingRequests(shared)
        self._accept_within = shared.options.accept_within
        self.pending_acceptances: deque[tuple[float, IncomingRequest]] = deque()
        """Delayed acceptances with the time to send each."""

    def send_accepted(self, message: hub.Accepted, now: float) -> None:
        """`{a, i}`."""
        request = self.requests.get_unanswered(message.id)
        request.advance(RequestStep.ACCEPT)
        request.accepted = True
        request.operation = self._shared.operation
        if self._accept_within:
            self.pending_acceptances.append((now + self._accept_within, request))
        else:
            self._send_acceptance(request)

    def send_due_acceptances(self, until: float = inf) -> None:
        """Send the acceptances due by `until` for requests that are not answered yet."""
        pending = self.pending_acceptances
        while pending and pending[0][0] <= until:
            request = pending.popleft()[1]
            if request.state is IncomingState.ACCEPTED:
                self._send_acceptance(request)

    def send_result(self, message: hub.Result, now: float, free: FreeKeys | None = None) -> None:
        """`{a, i, d}`, or one part of it."""
        request = self.requests.get_unanswered(message.id)
        body = message.body if type(message.body) is Json or message.body is None else json_body(message.body)
        if message.extras:
            free = (bridge.free_from_extras(message.extras) or {}) | (free or {})
        if message.stream:
            self._send_part(request, body, None, free, now, end=message.last)
        elif request.sender is not None:
            raise LocalProtocolError(f"request {message.id} is answered in parts")
        else:
            if free:
                raw = write(nq.Answer(request.a, (request.r,), body or JSON_NULL, free))
            else:
                raw = write_answer(answer_start(request.a, (request.r,)), body or JSON_NULL)
            self._shared.check_size(raw)
            if not self._has_room(raw):
                raise LocalProtocolError("too many bytes of answers are not acknowledged")
            self._send_answer(request, raw, now)
        if request.topic:
            self._shared.peer_subscriptions.apply_response(request.topic, request.a, request.grant, granted=True)

    def send_description(self, message: hub.Description, now: float) -> None:
        """Answer `hub-discover`."""
        self.send_result(hub.Result(message.id, builtin_methods.description_payload(message)), now)

    def send_failure(self, message: hub.Failure, now: float) -> None:
        """`{a, i, e}`, fatal; in a stream the last part."""
        request = self.requests.get_unanswered(message.id)
        error = bridge.error_from_failure(message, accepted=request.state is not IncomingState.RECEIVED)
        error = request.cancel_error or error if message.reason is Reason.CANCELLED else error
        body = None if message.data is None else json_body(message.data)
        raw = self._shared.check_size(write(nq.ErrorAnswer(request.a, (request.r,), body, error)))
        if not self._has_room(raw):
            body, error = (
                None,
                ErrorObject(error.type, True, error.err[:_MAX_CODE_LENGTH]),
            )  # the end of a request must not fail because of the budget
            raw = write(nq.ErrorAnswer(request.a, (request.r,), None, error))
        if request.sender is None:
            self._send_answer(request, raw, now)
        else:
            self._send_part(request, body, error, None, now, end=True)
        if request.topic:
            self._shared.peer_subscriptions.apply_response(request.topic, request.a, request.grant, granted=False)

    def send_progress(self, message: hub.Progress, now: float) -> None:
        """`{a, i, e}`, not fatal; `tmp` and `debug` only with `v` (NQ-a13)."""
        request = self.requests.get_unanswered(message.id)
        error = bridge.error_from_progress(message)
        body = None if message.body is NULL else json_body(message.body)
        raw = self._shared.check_size(write(nq.Note(request.a, (request.r,), body, error)))
        if request.v or message.kind not in bridge.VERBOSE_KINDS:
            self._retransmission.send_once(raw, self._shared.operation)

    def _send_acceptance(self, request: IncomingRequest) -> None:
        self._retransmission.send_once(answer_start(request.a, (request.r,)) + b"}", request.operation)

    def _has_room(self, raw: bytes) -> bool:
        return len(raw) <= ALWAYS_KEPT_BYTES or self._shared.answer_budget.has_room(len(raw))

    def _send_answer(self, request: IncomingRequest, raw: bytes, now: float) -> None:
        request.advance(RequestStep.END)
        request.payload, request.operation = raw, self._shared.operation
        self.requests.store_answer(request, now + self._shared.options.answer_ttl)
        self._retransmission.send(request)

    def _send_part(
        self,
        request: IncomingRequest,
        body: Payload | None,
        error: ErrorObject | None,
        free: FreeKeys | None,
        now: float,
        *,
        end: bool,
    ) -> None:
        sender = request.sender or StreamSender(self._shared, operation=self._shared.operation)
        number = sender.last + 1
        part = nq.AnswerPart(request.a, (request.r,), body, error, number, 0 if end else None, free)
        raw = self._shared.check_size(write(part))
        if not end and body is None:
            raise LocalProtocolError("only the last part of a stream may lack a body")
        if error is None and number > self._shared.limits.max_stream:
            raise LocalProtocolError(f"the answer to {request.key} has more than {number - 1} parts")
        if error is None and sender.is_full(len(raw)):
            raise LocalProtocolError("too many parts or bytes of answers are not acknowledged")
        request.advance(RequestStep.END if end else RequestStep.PART)
        request.sender = sender
        sender.add(raw, end=end)
        if end:
            self.requests.store_answer(request, now + self._shared.options.answer_ttl)
        if sender.can_send():
            self._retransmission.send(sender)
