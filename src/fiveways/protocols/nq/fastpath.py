"""The short way through a conversation: plain requests, acknowledgements and answers need not become messages.

Whatever is not plain about a packet, or a word, is left to the long way, as if nobody had looked at it.
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
    """A request or an acknowledgement, without anything else to it; what is there is not empty."""

    t: str = ""
    r: str = ""
    d: Raw = _NO_BODY
    i: str = ""


@lru_cache
def _bounded_decoders(limits: Limits) -> tuple[Callable[[bytes], FastMessage], Callable[[bytes], list[FastMessage]]]:
    """Return what reads one of them, and what reads a batch; more or longer ones than the limits allow are not read."""
    name = Annotated[str, Meta(min_length=1, max_length=min(limits.max_name, MAX_CACHED_LENGTH))]
    identifier = Annotated[str, Meta(min_length=1, max_length=limits.max_id)]
    fields = [("t", name, ""), ("r", identifier, ""), ("d", Raw, _NO_BODY), ("i", identifier, "")]
    bounded: Any = msgspec.defstruct("Bounded", fields, bases=(FastMessage,), gc=False)
    batch = Annotated[list[bounded], Meta(max_length=limits.max_batch)]
    return msgspec.json.Decoder(bounded).decode, msgspec.json.Decoder(batch).decode


@lru_cache(_CACHE_SIZE)
def _fastpath_method(target: str) -> str | None:
    """Return the method that a target names; nothing if there is more to it, None if it is no target at all."""
    if not is_name(target):
        return None
    try:
        method = fold(target, names.NQ)
    except BadName:
        return ""
    return "" if method.startswith(_HUB_PREFIXES) or "#" in target or target == CLOSED_TARGET else method


class NqFastPath(InlineAttachmentsMixin):
    """The tables of a conversation, and the short way to them."""

    # The same once more, so that it need not be looked for each time; more than thirty attributes without a slot of
    # their own would make each of them slower.
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
        """All that the peer has not reacted to is said again, or was, since it was last heard."""
        self._shared = common = SessionState(options, setup.limits, setup.random)
        self._retransmission = common.retransmission
        self._incoming = incoming = Incoming(common)
        self._deferred = DeferredMessages(setup.limits)
        limits, requests = setup.limits, incoming.requests
        self._max_text, self._max_pending, self._max_depth = limits.max_text, limits.max_pending, limits.max_depth
        self._accept_within, self._is_simplex = options.accept_within, options.simplex
        self._decode_one, self._decode_batch = _bounded_decoders(limits)
        self._hub_messages, self._own_subscriptions, self._answer_budget, self._mint = (
            common.hub_messages,
            common.own_subscriptions,
            common.answer_budget,
            common.mint,
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
        self._outgoing = Outgoing(common, self._deferred)
        self._find_outgoing: Callable[[str], Retransmittable | None] = self._outgoing.find
        self._on_acknowledged, self._last_packet_requests = incoming.on_acknowledged, common.last_packet_requests

    def borrow_from(self, lender: ByteLender) -> None:
        """Ask a lender before more than a little is held for the peer."""
        for budget in (self._shared.answer_budget, self._shared.reorder_budget, self._shared.request_budget):
            budget.borrow_from(lender)

    def receive(self, packet: Packet, now: float) -> Sequence[hub.HubMessage]:
        """Take one packet of the peer."""
        payload = packet.payload
        if self.closed or not packet.is_text or len(payload) > self._max_text:
            return self.receive_general(packet, now)
        try:
            if not payload.isascii():
                payload.decode()
            found = self._decode_batch(payload) if payload[0] == _BATCH else (self._decode_one(payload),)
        except _NOT_FASTPATH:
            return self.receive_general(packet, now)
        self._now = now
        about = self._last_packet_requests
        about.clear()
        for each in found:
            i = each.i
            if not i:
                if not self._receive_request_fast(each, now):
                    return self.receive_general(packet, now, found.index(each))
                about.append(self._by_key.get(f"{each.t}#{each.r}"))
            elif each.r or each.d:
                return self.receive_general(packet, now, found.index(each))
            else:
                serving = self._by_backchannel.get(i)
                about.append(serving)
                if serving is not None and serving.said and serving.sender is None:
                    self._on_acknowledged(serving, now)
        self._is_renewed = False
        if self._is_simplex:
            self._retransmission.wake(now)
        messages = self._hub_messages
        if not messages:
            return ()
        heard = messages.copy()
        messages.clear()
        return heard

    def _receive_request_fast(self, each: FastMessage, now: float) -> bool:
        """Take a request; False, and nothing has happened, if it needs a closer look."""
        t, r, d = each.t, each.r, each.d
        if not (t and r and d):
            return False
        method, raw, key, by_key, kept = _fastpath_method(t), bytes(d), f"{t}#{r}", self._by_key, self._answer_budget
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
            and kept.used < kept.limit
            and not kept.gauge.is_tight
        ):
            a = self._mint()
            by_key[key] = self._by_backchannel[a] = IncomingRequest(a, key, r)
            self._hub_messages.append(Call(key, method, Json(raw), t, (), False, None, False, True, True))
        elif method is None:
            return False
        else:
            self._incoming.on_request(Request(t, r, Json(raw)), now)
        return True

    def send(self, message: hub.HubMessage, now: float) -> None:
        """Say a word to the peer."""
        if type(message) is Result:
            body = message.body
            if type(body) is Json and not (
                message.stream or message.attachments or message.extras or self._deferred_by_attachment
            ):
                serving = self._by_key.get(message.id)
                if serving is not None and self._send_result_fast(serving, body.raw, now):
                    return
        elif type(message) is Accepted:
            serving, within = self._by_key.get(message.id), self._accept_within
            if within and serving is not None and serving.state is _RECEIVED:
                serving.state, serving.accepted, serving.operation = _ACCEPTED, True, self._shared.operation
                self._pending_acceptances.append((now + within, serving))
                self._now = now
                return
        self.send_general(message, now)

    def _send_result_fast(self, serving: IncomingRequest, body: bytes, now: float) -> bool:
        """Answer a request; False, and nothing has happened, if that needs a closer look."""
        if serving.state is _ANSWERED or serving.sender or serving.receiver or serving.topic:
            return False
        a, kept = serving.a, self._answer_budget
        raw = to_json(FastAnswer(a, serving.r, Raw(body)))
        size = len(raw)
        if size > self._max_text or (size > ALWAYS_KEPT_BYTES and kept.used + size > kept.limit):
            return False
        serving.state, serving.payload, serving.operation = _ANSWERED, raw, self._shared.operation
        serving.expires_at = now + self._shared.options.answer_ttl
        kept.used += size
        self._answered_requests[a] = serving
        if serving.queue_state == NOT_QUEUED:
            self._retransmission.queue.append(serving)
        serving.queue_state = QUEUED
        self._now = now
        return True

    @property
    def unsent(self) -> Sequence[Packet]:
        """Nobody knows before it is asked."""
        return ()

    # State that ends with the conversation.

    @property
    def is_idle(self) -> bool:
        """Whether nobody owes anybody an answer."""
        return not (self._by_key or len(self._outgoing) or self._deferred_by_attachment)

    @property
    def is_empty(self) -> bool:
        """Whether a new conversation that mints other numbers would behave like this one."""
        return self.is_idle and not (self._tombstones or self._refusals)

    @property
    def last_number(self) -> int:
        """The number of the last identifier."""
        return self._shared.last_number

    def mint_after(self, minted: int) -> None:
        """Mint no number up to this one: it was used under the same prefix before."""
        self._shared.mint_after(minted)

    # To which operations of the hub all of this belongs.

    def find_request(self, message: object) -> Retransmittable | None:
        """Return the request, of ours or of the peer's, that a message is about, or the first of several."""
        target: str = getattr(message, "t", "")
        asked = getattr(message, "r", "") or getattr(message, "p", "")
        if asked:
            return self._by_key.get(f"{target}#{asked}")
        ids = getattr(message, "i", ())
        if not ids:
            return None
        if getattr(message, "a", ""):
            return self._find_outgoing(ids[0])
        return self._by_backchannel.get(ids[0]) or self._by_key.get(f"{target}#{ids[0]}")

    def set_operation(self, op: str) -> None:
        """Know to which operation of the hub the next word belongs."""
        self._shared.operation = op

    def set_request_operation(self, request: str, op: str) -> None:
        """Know to which operation a request of the peer belongs, by the id that the hub knows it by."""
        serving = self._by_key.get(request)
        if serving is not None:
            serving.operation = op

    def received_operations(self) -> str:
        """Return the operations that the messages of the last packet belong to, as a packet has them."""
        return join_operations([each.operation if each is not None else "" for each in self._last_packet_requests])

    @abstractmethod
    def receive_general(self, packet: Packet, now: float, past: int = 0) -> Sequence[hub.HubMessage]:
        """Take one packet the long way, but for so many of its messages, which have been heard."""

    @abstractmethod
    def send_general(self, message: hub.HubMessage, now: float) -> None:
        """Say a word the long way."""
