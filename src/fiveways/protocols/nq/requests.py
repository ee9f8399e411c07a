"""The requests that are open, ours and the peer's: what each of them is waiting for, and what is kept for it."""

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

CANCELLED: Final = ErrorObject("local", True, "cancelled")
_POLLED_STATES: Final = frozenset({OutgoingState.ACCEPTED, OutgoingState.STREAMING})


def read_verbosity(extras: Extras) -> bool | str:
    """Return how much the caller of a call wants to hear on the way."""
    given = extras.get(VERBOSE_KEY)
    if given is None:
        return False
    try:
        value = given.value()
    except Unrepresentable:
        return False
    return value if isinstance(value, str) else bool(value)


class OutgoingRequest(Retransmittable):
    """A request of ours: repeated until accepted, then polled until answered, or cancelled until the peer is silent."""

    _FIELDS: ClassVar = ("r", "t", "hub_id", "topic", "a", "accepted", "grant", "v")
    shared: SessionState
    r: str
    t: str
    message_type: type[hub.HubMessage]
    hub_id: str | None
    """None if nobody waits for the answer."""
    a: str = ""
    """The peer's backchannel, once known."""
    accepted: bool = False
    """The hub has heard so."""
    data: bytes = b""
    expires_at: float = 0.0
    grant: str = ""
    """Of an event: which subscription it is for, among several of the same name that follow each other."""
    has_recent_part: bool = False
    """A part has come since the last wait began, so there is no need to poll."""
    receiver: StreamReceiver[AnswerPart] | None = None
    sender: StreamSender | None = None
    state: OutgoingState = OutgoingState.SENT
    topic: str = ""
    """The subscription of ours that it asks for."""
    v: bool | str = False

    def advance(self, step: RequestStep) -> bool:
        """Go where the step leads; False if it leads nowhere from here."""
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
        # The parts of a streamed request are repeated by their own stream, until none is left but still no word came.
        if self.has_recent_part or (self.state is OutgoingState.SENT and self.sender is not None and self.sender.parts):
            self.has_recent_part = False
            return ()
        return (write(Poll(self.t, self.r)),)

    @property
    def delays(self) -> Sequence[float]:
        """The waits between repeats, or between polls."""
        return self.shared.poll_delays if self.state in _POLLED_STATES else self.shared.retransmission_delays

    def close(self) -> None:
        """Let go what is kept for it, except what a cancellation needs."""
        self.shared.retransmission.cancel(self)
        self.shared.request_budget.release(len(self.data))
        self.data = b""
        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()

    def export(self, now: float) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        return _export(self, self._FIELDS, self.data, now) | {"word": self.message_type.__name__}

    @classmethod
    def restore(cls, common: SessionState, saved: dict[str, Any], now: float) -> Self:
        """Go on where another has stopped."""
        asking = cls(common, saved["r"], saved["t"], getattr(hub, saved["word"]), saved["hub_id"])
        asking.state = OutgoingState[saved["state"]]
        asking.data = saved["data"].encode()
        _restore(asking, cls._FIELDS, common, saved, now)
        return asking

    def _cancellation(self) -> CancelRequest:
        return CancelRequest("", (self.a,), CANCELLED) if self.a else CancelRequest(self.t, (self.r,), CANCELLED)


class IncomingRequest(Retransmittable):
    """A request of the peer. Once answered, its answer (`always`) is said again until acknowledged.

    Before it has been `said`, nothing can acknowledge it. One in parts is repeated by its own stream.
    """

    _FIELDS: ClassVar = ("a", "key", "r", "v", "topic", "grant", "accepted", "cancelled", "said", "unheard")
    a: str
    key: str
    """From t and r; the hub knows it by this, too."""
    r: str
    accepted: bool = False
    cancelled: bool = False
    cancel_error: ErrorObject | None = None
    """Why we ended it ourselves, where the hub only hears that it is cancelled."""
    expires_at: float = 0.0
    grant: str = ""
    """What an unsubscription ends, see `topic`."""
    receiver: StreamReceiver[RequestPart] | None = None
    repeat_count: int = 0
    sender: StreamSender | None = None
    state: IncomingState = IncomingState.RECEIVED
    topic: str = ""
    """The subscription that lives, or lives no more, once the request is granted."""
    unheard: bool = False
    """The hub never heard of it."""
    v: bool | str = False

    def advance(self, step: RequestStep) -> None:
        """Go where the step leads; LocalProtocolError if it leads nowhere from here."""
        after = INCOMING_TRANSITIONS[self.state].get(step)
        if after is None:
            raise LocalProtocolError(f"no {step.value} now: request {self.key} is {self.state.value}")
        self.state = after

    def export(self, now: float) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        excuse = None if self.cancel_error is None else msgspec.to_builtins(self.cancel_error)
        return _export(self, self._FIELDS, self.payload, now) | {"excuse": excuse}

    @classmethod
    def restore(cls, common: SessionState, saved: dict[str, Any], now: float) -> Self:
        """Go on where another has stopped."""
        serving = cls(saved["a"], saved["key"], saved["r"])
        serving.state = IncomingState[saved["state"]]
        serving.cancel_error = None if saved["excuse"] is None else msgspec.convert(saved["excuse"], ErrorObject)
        _restore(serving, cls._FIELDS, common, saved, now)
        serving.payload = saved["data"].encode()
        return serving


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
    common: SessionState,
    saved: dict[str, Any],
    now: float,
) -> None:
    for field in fields:
        setattr(request, field, saved[field])
    request.expires_at = now + saved["ttl"]
    if saved["sender"] is not None:
        request.sender = StreamSender.restore(common, saved["sender"])
    if saved["receiver"] is not None:
        request.receiver = StreamReceiver.restore(common, saved["receiver"])


class IncomingRequests:
    """The requests of the peer that are not finished: by key, by backchannel, and the answered ones by age."""

    def __init__(self, common: SessionState) -> None:
        self._shared = common
        self.by_key: dict[str, IncomingRequest] = {}
        self.by_backchannel: dict[str, IncomingRequest] = {}
        self.answered: OrderedDict[str, IncomingRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def all(self) -> list[IncomingRequest]:
        """Return them all."""
        return list(self.by_key.values())

    def get(self, key: str) -> IncomingRequest | None:
        """Return the request of that key."""
        return self.by_key.get(key)

    def find_by_backchannel(self, backchannel: str) -> IncomingRequest | None:
        """Return the request that is answered on this backchannel."""
        return self.by_backchannel.get(backchannel)

    def get_unanswered(self, key: str) -> IncomingRequest:
        """Return the request that the hub wants to say something about; LocalProtocolError if it is not open."""
        serving = self.by_key.get(key)
        if serving is None or serving.state is IncomingState.ANSWERED:
            raise LocalProtocolError(f"no request {key} is open")
        return serving

    def is_full(self) -> bool:
        """Whether the peer must take some of its answers before it asks for more."""
        common = self._shared
        return len(self.by_key) >= common.limits.max_pending or common.answer_budget.is_full()

    def restore_accepted(self, key: str, r: str) -> None:
        """Know of a request that is accepted already."""
        serving = IncomingRequest(self._shared.mint(), key, r)
        serving.state, serving.accepted = IncomingState.ACCEPTED, True
        self.add(serving)

    def add(self, serving: IncomingRequest) -> None:
        """Take a request that the hub has heard of, or will."""
        self.by_key[serving.key] = self.by_backchannel[serving.a] = serving

    def store_answer(self, serving: IncomingRequest, expires_at: float) -> None:
        """Keep the answer, which is complete now."""
        serving.expires_at = expires_at
        self._shared.answer_budget.used += len(serving.payload)
        self.answered[serving.a] = serving
        if serving.receiver is not None:
            serving.receiver.close()
            serving.receiver = None

    def remove(self, serving: IncomingRequest) -> None:
        """Let a request and all that was kept for it go."""
        a, common = serving.a, self._shared
        del self.by_key[serving.key], self.by_backchannel[a]
        if self.answered.pop(a, None) is not None:
            common.answer_budget.release(len(serving.payload))
        serving.payload = b""
        common.retransmission.cancel(serving)
        if serving.sender is not None:
            serving.sender.close()
        if serving.receiver is not None:
            serving.receiver.close()

    def oldest_answered(self) -> IncomingRequest | None:
        """Return the answer that has been kept longest."""
        return next(iter(self.answered.values()), None)
