"""Open requests in both directions, with their state and data."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

import msgspec

from fiveways.errors import LocalProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.nq.bridge import VERBOSE_KEY, Extras
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.messages import AnswerPart, CancelRequest, Poll, RequestPart
from fiveways.protocols.nq.retransmission import Retransmittable
from fiveways.protocols.nq.serializer import write
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import (
    INCOMING_TRANSITIONS,
    OUTGOING_TRANSITIONS,
    IncomingState,
    OutgoingState,
    RequestStep,
)
from fiveways.protocols.nq.streams import StreamReceiver, StreamSender

CANCELLED: Final = ErrorObject.local("cancelled")
_POLLED_STATES: Final = frozenset({OutgoingState.ACCEPTED, OutgoingState.STREAMING})


def read_verbosity(extras: Extras) -> bool | str:
    """Return the verbosity that the caller of a call requested."""
    body = extras.get(VERBOSE_KEY)
    if body is None:
        return False
    try:
        value = body.value()
    except Unrepresentable:
        return False
    return value if isinstance(value, str) else bool(value)


class OutgoingRequest(Retransmittable):
    """Our request: retransmitted until accepted, then polled until answered.

    After a cancellation, that is retransmitted until the peer reacts.
    """

    _FIELDS: ClassVar = ("r", "t", "hub_id", "topic", "a", "accepted", "grant", "v")
    shared: SessionState
    r: str
    t: str
    message_type: type[hub.HubMessage]
    hub_id: str | None
    """None if the hub does not wait for the answer."""
    a: str = ""
    """The peer's backchannel, once known."""
    accepted: bool = False
    """Whether the hub has received `Accepted`."""
    data: bytes = b""
    expires_at: float = 0.0
    grant: str = ""
    """For an event: its subscription's grant, because names can be used again."""
    has_recent_part: bool = False
    """Whether a part arrived since the last delay began, which makes a poll unnecessary."""
    receiver: StreamReceiver[AnswerPart] | None = None
    sender: StreamSender | None = None
    state: OutgoingState = OutgoingState.SENT
    topic: str = ""
    """Our subscription that this request creates."""
    v: bool | str = False

    def advance(self, step: RequestStep) -> bool:
        """Change the state; return false if the step is invalid in this state."""
        after = OUTGOING_TRANSITIONS[self.state].get(step)
        if after is None:
            return False
        self.state = after
        return True

    def next_payloads(self) -> Sequence[bytes]:
        """Return the request, the poll or the cancellation."""
        if self.state is OutgoingState.SENT and self.sender is None:
            return (self.data,)
        if self.state is OutgoingState.CANCELLED:
            return (write(self._cancellation()),)
        # The stream retransmits the parts of a streamed request. Poll only if all are acknowledged but no answer
        # arrived.
        if self.has_recent_part or (self.state is OutgoingState.SENT and self.sender is not None and self.sender.parts):
            self.has_recent_part = False
            return ()
        return (write(Poll(self.t, self.r)),)

    @property
    def delays(self) -> Sequence[float]:
        """The delays between retransmissions or polls."""
        return self.shared.poll_delays if self.state in _POLLED_STATES else self.shared.retransmission_delays

    def close(self) -> None:
        """Release all data except for the cancellation."""
        self.shared.retransmission.cancel(self)
        self.shared.request_budget.release(len(self.data))
        self.data = b""
        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()

    def export(self, now: float) -> dict[str, object]:
        """Return the state for `restore`."""
        return _export(self, self._FIELDS, self.data, now) | {"word": self.message_type.__name__}

    @classmethod
    def restore(cls, shared: SessionState, saved: dict[str, Any], now: float) -> Self:
        """Restore a request from an exported state."""
        request = cls(shared, saved["r"], saved["t"], getattr(hub, saved["word"]), saved["hub_id"])
        request.state = OutgoingState[saved["state"]]
        request.data = saved["data"].encode()
        _restore(request, cls._FIELDS, shared, saved, now)
        return request

    def _cancellation(self) -> CancelRequest:
        return CancelRequest("", (self.a,), CANCELLED) if self.a else CancelRequest(self.t, (self.r,), CANCELLED)


class IncomingRequest(Retransmittable):
    """A request of the peer. Its answer in `payload` is retransmitted until acknowledged.

    It cannot be acknowledged before it was sent (`said`). The stream retransmits an answer in parts.
    """

    _FIELDS: ClassVar = ("a", "key", "r", "v", "topic", "grant", "accepted", "cancelled", "said", "unheard")
    a: str
    key: str
    """From t and r; also the hub id."""
    r: str
    accepted: bool = False
    cancelled: bool = False
    cancel_error: ErrorObject | None = None
    """The reason why the conversation ended the request; the hub only receives `Cancel`."""
    expires_at: float = 0.0
    grant: str = ""
    """The grant that an unsubscription ends, see `topic`."""
    receiver: StreamReceiver[RequestPart] | None = None
    repeat_count: int = 0
    sender: StreamSender | None = None
    state: IncomingState = IncomingState.RECEIVED
    topic: str = ""
    """The subscription that begins or ends when the request succeeds."""
    unheard: bool = False
    """Whether the hub never received it."""
    v: bool | str = False

    def advance(self, step: RequestStep) -> None:
        """Change the state; LocalProtocolError if the step is invalid in this state."""
        after = INCOMING_TRANSITIONS[self.state].get(step)
        if after is None:
            raise LocalProtocolError(f"step {step.value} is invalid: request {self.key} is {self.state.value}")
        self.state = after

    def export(self, now: float) -> dict[str, object]:
        """Return the state for `restore`."""
        excuse = None if self.cancel_error is None else msgspec.to_builtins(self.cancel_error)
        return _export(self, self._FIELDS, self.payload, now) | {"excuse": excuse}

    @classmethod
    def restore(cls, shared: SessionState, saved: dict[str, Any], now: float) -> Self:
        """Restore a request from an exported state."""
        request = cls(saved["a"], saved["key"], saved["r"])
        request.state = IncomingState[saved["state"]]
        request.cancel_error = None if saved["excuse"] is None else msgspec.convert(saved["excuse"], ErrorObject)
        _restore(request, cls._FIELDS, shared, saved, now)
        request.payload = saved["data"].encode()
        return request


def _export(
    request: OutgoingRequest | IncomingRequest, fields: tuple[str, ...], data: bytes, now: float
) -> dict[str, object]:
    sender, receiver = request.sender, request.receiver
    saved: dict[str, object] = {field: getattr(request, field) for field in fields}
    saved |= {"state": request.state.name, "data": data.decode()}
    saved |= {"ttl": request.expires_at - now, "sender": None if sender is None else sender.export()}
    return saved | {"receiver": None if receiver is None else receiver.export()}


def _restore(
    request: OutgoingRequest | IncomingRequest,
    fields: tuple[str, ...],
    shared: SessionState,
    saved: dict[str, Any],
    now: float,
) -> None:
    for field in fields:
        setattr(request, field, saved[field])
    request.expires_at = now + saved["ttl"]
    if saved["sender"] is not None:
        request.sender = StreamSender.restore(shared, saved["sender"])
    if saved["receiver"] is not None:
        request.receiver = StreamReceiver.restore(shared, saved["receiver"])


class IncomingRequests:
    """The unfinished requests of the peer by key and by backchannel, and the answered ones by age."""

    def __init__(self, shared: SessionState) -> None:
        self._shared = shared
        self.by_key: dict[str, IncomingRequest] = {}
        self.by_backchannel: dict[str, IncomingRequest] = {}
        self.answered: OrderedDict[str, IncomingRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def all(self) -> list[IncomingRequest]:
        """Return all requests."""
        return list(self.by_key.values())

    def get(self, key: str) -> IncomingRequest | None:
        """Return the request with this key, if any."""
        return self.by_key.get(key)

    def find_by_backchannel(self, backchannel: str) -> IncomingRequest | None:
        """Return the request with this backchannel, if any."""
        return self.by_backchannel.get(backchannel)

    def get_unanswered(self, key: str) -> IncomingRequest:
        """Return the request for a message of the hub; LocalProtocolError if it is not open."""
        request = self.by_key.get(key)
        if request is None or request.state is IncomingState.ANSWERED:
            raise LocalProtocolError(f"no request {key} is open")
        return request

    def is_full(self) -> bool:
        """Return whether the peer must acknowledge answers before it sends further requests."""
        shared = self._shared
        return len(self.by_key) >= shared.limits.max_pending or shared.answer_budget.is_full()

    def restore_accepted(self, key: str, r: str) -> None:
        """Add a request that an earlier hub process accepted."""
        request = IncomingRequest(self._shared.mint(), key, r)
        request.state, request.accepted = IncomingState.ACCEPTED, True
        self.add(request)

    def add(self, request: IncomingRequest) -> None:
        """Add a request."""
        self.by_key[request.key] = self.by_backchannel[request.a] = request

    def store_answer(self, request: IncomingRequest, expires_at: float) -> None:
        """Store the complete answer."""
        request.expires_at = expires_at
        self._shared.answer_budget.used += len(request.payload)
        self.answered[request.a] = request
        if request.receiver is not None:
            request.receiver.close()
            request.receiver = None

    def remove(self, request: IncomingRequest) -> None:
        """Remove a request and its data."""
        a, shared = request.a, self._shared
        del self.by_key[request.key], self.by_backchannel[a]
        if self.answered.pop(a, None) is not None:
            shared.answer_budget.release(len(request.payload))
        request.payload = b""
        shared.retransmission.cancel(request)
        if request.sender is not None:
            request.sender.close()
        if request.receiver is not None:
            request.receiver.close()

    def oldest_answered(self) -> IncomingRequest | None:
        """Return the request with the oldest answer, if any."""
        return next(iter(self.answered.values()), None)
