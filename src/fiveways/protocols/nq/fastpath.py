"""The fast path of a conversation: plain requests, acknowledgements and answers are handled without message objects.

Packets and messages that are not plain take the general path, without side effects before.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from fiveways.errors import LocalProtocolError, Malformed
from fiveways.model import messages as hub
from fiveways.model import names
from fiveways.model.messages import Accepted, Call, Result
from fiveways.model.names import BadName, fold
from fiveways.protocols.base import ConversationSetup, InlineAttachmentsMixin
from fiveways.protocols.deferred_messages import DeferredMessages
from fiveways.protocols.nq.bridge import CALLBACK_PREFIX, CLOSED_TARGET
from fiveways.protocols.nq.frames import MAX_CACHED_LENGTH, is_name
from fiveways.protocols.nq.incoming import Incoming
from fiveways.protocols.nq.messages import Request
from fiveways.protocols.nq.options import Options
from fiveways.protocols.nq.outgoing import Outgoing
from fiveways.protocols.nq.requests import IncomingRequest
from fiveways.protocols.nq.responses import ALWAYS_KEPT_BYTES
from fiveways.protocols.nq.retransmission import NOT_QUEUED, QUEUED, Retransmittable
from fiveways.protocols.nq.serializer import FastAnswer, to_json
from fiveways.protocols.nq.session_state import ByteLender, SessionState
from fiveways.protocols.nq.states import IncomingState
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, join_operations
from fiveways.wire.payload import Json
from fiveways.wire.strict_json import check_numbers_and_depth

_NOT_FASTPATH: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError)
_BATCH: Final = ord("[")
_RECEIVED, _ACCEPTED, _ANSWERED = IncomingState.RECEIVED, IncomingState.ACCEPTED, IncomingState.ANSWERED
_CACHE_SIZE: Final = 1024
_HUB_PREFIXES: Final = ("hub.", f"{CALLBACK_PREFIX}.")
_NO_BODY: Final = Raw()


class FastMessage(msgspec.Struct, gc=False, eq=False, forbid_unknown_fields=True):
    """A request or an acknowledgement without other keys; an empty value means an absent key."""

    t: str = ""
    r: str = ""
    d: Raw = _NO_BODY
    i: str = ""


@lru_cache
def _bounded_decoders(limits: Limits) -> tuple[Callable[[bytes], FastMessage], Callable[[bytes], list[FastMessage]]]:
    """Return decoders for one message and for a batch that enforce the limits."""
    name = Annotated[str, Meta(min_length=1, max_length=min(limits.max_name, MAX_CACHED_LENGTH))]
    identifier = Annotated[str, Meta(min_length=1, max_length=limits.max_id)]
    fields = [("t", name, ""), ("r", identifier, ""), ("d", Raw, _NO_BODY), ("i", identifier, "")]
    bounded: Any = msgspec.defstruct("Bounded", fields, bases=(FastMessage,), gc=False)
    batch = Annotated[list[bounded], Meta(max_length=limits.max_batch)]
    return msgspec.json.Decoder(bounded).decode, msgspec.json.Decoder(batch).decode


@lru_cache(_CACHE_SIZE)
def _fastpath_method(target: str) -> str | None:
    """Return the method of a target; empty for the general path, None for an invalid target."""
    if not is_name(target):
        return None
    try:
        method = fold(target, names.NQ)
    except BadName:
        return ""
    return "" if method.startswith(_HUB_PREFIXES) or "#" in target or target == CLOSED_TARGET else method


class NqFastPath(InlineAttachmentsMixin):
    """The tables of a conversation, and the fast path that uses them."""

    # Copies of attributes of other objects, which are faster to access. They have slots because more than thirty
    # attributes without slots make each access slower.
    __slots__ = (
        "_accept_within",
        "_answer_budget",
        "_answered_requests",
        "_by_backchannel",
        "_by_key",
        "_decode_batch",
        "_decode_one",
        "_deferred_by_attachment",
        "_find_outgoing",
        "_hub_messages",
        "_is_simplex",
        "_last_packet_requests",
        "_max_depth",
        "_max_pending",
        "_max_text",
        "_mint",
        "_on_acknowledged",
        "_own_subscriptions",
        "_pending_acceptances",
        "_refusals",
        "_tombstones",
    )

    def __init__(self, setup: ConversationSetup) -> None:
        try:
            options = msgspec.convert(setup.options or {}, Options)
        except msgspec.ValidationError as exc:
            raise LocalProtocolError(f"options of nq: {exc}") from exc
        self.closed = False
        self._now = 0.0
        self._system_errors = 0
        self._is_renewed = False
        """Whether everything unacknowledged was retransmitted since the last packet of the peer."""
        self._shared = shared = SessionState(options, setup.limits, setup.random)
        self._retransmission = shared.retransmission
        self._incoming = incoming = Incoming(shared)
        self._deferred = DeferredMessages(setup.limits)
        limits, requests = setup.limits, incoming.requests
        self._max_text, self._max_pending, self._max_depth = limits.max_text, limits.max_pending, limits.max_depth
        self._accept_within, self._is_simplex = options.accept_within, options.simplex
        self._decode_one, self._decode_batch = _bounded_decoders(limits)
        self._hub_messages, self._own_subscriptions, self._answer_budget, self._mint = (
            shared.hub_messages,
            shared.own_subscriptions,
            shared.answer_budget,
            shared.mint,
        )
        self._by_key, self._by_backchannel, self._answered_requests = (
            requests.by_key,
            requests.by_backchannel,
            requests.answered,
        )
        self._tombstones, self._refusals = incoming.tombstones.entries, incoming.finished.refused.entries
        self._deferred_by_attachment, self._pending_acceptances = (
            self._deferred.by_attachment,
            incoming.pending_acceptances,
        )
        self._outgoing = Outgoing(shared, self._deferred)
        self._find_outgoing: Callable[[str], Retransmittable | None] = self._outgoing.find
        self._on_acknowledged, self._last_packet_requests = incoming.on_acknowledged, shared.last_packet_requests

    def borrow_from(self, lender: ByteLender) -> None:
        """Set the lender of the memory for this peer."""
        for budget in (self._shared.answer_budget, self._shared.reorder_budget, self._shared.request_budget):
            budget.borrow_from(lender)

    def receive(self, packet: Packet, now: float) -> Sequence[hub.HubMessage]:
        """Handle a packet of the peer."""
        payload = packet.payload
        if self.closed or not packet.is_text or len(payload) > self._max_text:
            return self.receive_general(packet, now)
        try:
            if not payload.isascii():
                payload.decode()
            messages = self._decode_batch(payload) if payload[0] == _BATCH else (self._decode_one(payload),)
        except _NOT_FASTPATH:
            return self.receive_general(packet, now)
        self._now = now
        packet_requests = self._last_packet_requests
        packet_requests.clear()
        for message in messages:
            i = message.i
            if not i:
                if not self._receive_request_fast(message, now):
                    return self.receive_general(packet, now, messages.index(message))
                packet_requests.append(self._by_key.get(f"{message.t}#{message.r}"))
            elif message.r or message.d:
                return self.receive_general(packet, now, messages.index(message))
            else:
                request = self._by_backchannel.get(i)
                packet_requests.append(request)
                if request is not None and request.said and request.sender is None:
                    self._on_acknowledged(request, now)
        self._is_renewed = False
        if self._is_simplex:
            self._retransmission.wake(now)
        hub_messages = self._hub_messages
        if not hub_messages:
            return ()
        received = hub_messages.copy()
        hub_messages.clear()
        return received

    def _receive_request_fast(self, message: FastMessage, now: float) -> bool:
        """Handle a plain request; return False without side effects if it is not plain."""
        t, r, d = message.t, message.r, message.d
        if not (t and r and d):
            return False
        method, raw, key, by_key, budget = _fastpath_method(t), bytes(d), f"{t}#{r}", self._by_key, self._answer_budget
        try:
            check_numbers_and_depth(raw, self._max_depth)
        except Malformed:
            return False
        if (
            method
            and key not in by_key
            and key not in self._tombstones
            and key not in self._refusals
            and t not in self._own_subscriptions
            and len(by_key) < self._max_pending
            and budget.used < budget.limit
            and not budget.gauge.is_tight
        ):
            a = self._mint()
            by_key[key] = self._by_backchannel[a] = IncomingRequest(a, key, r)
            self._hub_messages.append(Call(key, method, Json(raw), t, stream=True, progress=True))
        elif method is None:
            return False
        else:
            self._incoming.on_request(Request(t, r, Json(raw)), now)
        return True

    def send(self, message: hub.HubMessage, now: float) -> None:
        """Send a hub message to the peer."""
        if type(message) is Result:
            body = message.body
            if type(body) is Json and not (
                message.stream or message.attachments or message.extras or self._deferred_by_attachment
            ):
                request = self._by_key.get(message.id)
                if request is not None and self._send_result_fast(request, body.raw, now):
                    return
        elif type(message) is Accepted:
            request, within = self._by_key.get(message.id), self._accept_within
            if within and request is not None and request.state is _RECEIVED:
                request.state, request.accepted, request.operation = _ACCEPTED, True, self._shared.operation
                self._pending_acceptances.append((now + within, request))
                self._now = now
                return
        self.send_general(message, now)

    def _send_result_fast(self, request: IncomingRequest, body: bytes, now: float) -> bool:
        """Send a plain result; return False without side effects if it is not plain."""
        if request.state is _ANSWERED or request.sender or request.receiver or request.topic:
            return False
        a, budget = request.a, self._answer_budget
        raw = to_json(FastAnswer(a, request.r, Raw(body)))
        size = len(raw)
        if size > self._max_text or (size > ALWAYS_KEPT_BYTES and budget.used + size > budget.limit):
            return False
        request.state, request.payload, request.operation = _ANSWERED, raw, self._shared.operation
        request.expires_at = now + self._shared.options.answer_ttl
        budget.used += size
        self._answered_requests[a] = request
        if request.queue_state == NOT_QUEUED:
            self._retransmission.queue.append(request)
        request.queue_state = QUEUED
        self._now = now
        return True

    @property
    def unsent(self) -> Sequence[Packet]:
        """Always empty: packets are built by `take_packets`."""
        return ()

    # The lifetime of the conversation.

    @property
    def is_idle(self) -> bool:
        """Whether no request is open in either direction."""
        return not (self._by_key or len(self._outgoing) or self._deferred_by_attachment)

    @property
    def is_empty(self) -> bool:
        """Whether a new conversation with other identifiers would behave in the same way."""
        return self.is_idle and not (self._tombstones or self._refusals)

    @property
    def last_number(self) -> int:
        """The number of the last identifier."""
        return self._shared.last_number

    def mint_after(self, minted: int) -> None:
        """Skip the numbers up to this one, which were used with the same prefix before."""
        self._shared.mint_after(minted)

    # Operations of the hub, for the journal.

    def find_request(self, message: object) -> Retransmittable | None:
        """Return the request that a message is about, in either direction; the first if there are several."""
        target: str = getattr(message, "t", "")
        request_id = getattr(message, "r", "") or getattr(message, "p", "")
        if request_id:
            return self._by_key.get(f"{target}#{request_id}")
        ids = getattr(message, "i", ())
        if not ids:
            return None
        if getattr(message, "a", ""):
            return self._find_outgoing(ids[0])
        return self._by_backchannel.get(ids[0]) or self._by_key.get(f"{target}#{ids[0]}")

    def set_operation(self, op: str) -> None:
        """Set the operation of the next message."""
        self._shared.operation = op

    def set_request_operation(self, hub_id: str, op: str) -> None:
        """Set the operation of a request of the peer by its hub id."""
        request = self._by_key.get(hub_id)
        if request is not None:
            request.operation = op

    def received_operations(self) -> str:
        """Return the operations of the messages in the last packet, in the form of `Packet.op`."""
        return join_operations(
            [request.operation if request is not None else "" for request in self._last_packet_requests]
        )

    @abstractmethod
    def receive_general(self, packet: Packet, now: float, skip: int = 0) -> Sequence[hub.HubMessage]:
        """Handle a packet on the general path, except for its first `skip` messages, which were handled."""

    @abstractmethod
    def send_general(self, message: hub.HubMessage, now: float) -> None:
        """Send a message on the general path."""
