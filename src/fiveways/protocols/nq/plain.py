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
from fiveways.protocols.base import Setup, Whole
from fiveways.protocols.holding import Waiting
from fiveways.protocols.nq.answering import SMALL
from fiveways.protocols.nq.bridge import CALLBACK, CLOSED
from fiveways.protocols.nq.common import Common, Lender
from fiveways.protocols.nq.frames import LONGEST_REMEMBERED, is_name
from fiveways.protocols.nq.incoming import Incoming
from fiveways.protocols.nq.line import OUT, QUEUED, Repeated
from fiveways.protocols.nq.messages import Request
from fiveways.protocols.nq.options import Options
from fiveways.protocols.nq.outbox import Outgoing
from fiveways.protocols.nq.requests import Serving
from fiveways.protocols.nq.states import Taken
from fiveways.protocols.nq.writing import WholeAnswer, to_json
from fiveways.wire.jsontext import check_trusted
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, join_ops
from fiveways.wire.payload import Json

_ODD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError)
_BATCH: Final = ord("[")
_RECEIVED, _ACCEPTED, _ANSWERED = Taken.RECEIVED, Taken.ACCEPTED, Taken.ANSWERED
_REMEMBERED: Final = 1024
_OWN: Final = ("hub.", f"{CALLBACK}.")
_NOTHING: Final = Raw()


class Plain(msgspec.Struct, gc=False, eq=False, forbid_unknown_fields=True):
    """A request or an acknowledgement, without anything else to it; what is there is not empty."""

    t: str = ""
    r: str = ""
    d: Raw = _NOTHING
    i: str = ""


@lru_cache
def _readers(limits: Limits) -> tuple[Callable[[bytes], Plain], Callable[[bytes], list[Plain]]]:
    """Return what reads one of them, and what reads a batch; more or longer ones than the limits allow are not read."""
    name = Annotated[str, Meta(min_length=1, max_length=min(limits.max_name, LONGEST_REMEMBERED))]
    identifier = Annotated[str, Meta(min_length=1, max_length=limits.max_id)]
    fields = [("t", name, ""), ("r", identifier, ""), ("d", Raw, _NOTHING), ("i", identifier, "")]
    bounded: Any = msgspec.defstruct("Bounded", fields, bases=(Plain,), gc=False)
    batch = Annotated[list[bounded], Meta(max_length=limits.max_batch)]
    return msgspec.json.Decoder(bounded).decode, msgspec.json.Decoder(batch).decode


@lru_cache(_REMEMBERED)
def _method_of(target: str) -> str | None:
    """Return the method that a target names; nothing if there is more to it, None if it is no target at all."""
    if not is_name(target):
        return None
    try:
        method = fold(target, names.NQ)
    except BadName:
        return ""
    return "" if method.startswith(_OWN) or "#" in target or target == CLOSED else method


class PlainNq(Whole):
    """The tables of a conversation, and the short way to them."""

    # The same once more, so that it need not be looked for each time; more than thirty attributes without a slot of
    # their own would make each of them slower.
    __slots__ = (
        "_about",
        "_accept_within",
        "_acknowledged",
        "_answered",
        "_by_backchannel",
        "_by_key",
        "_deepest",
        "_find_asking",
        "_following",
        "_held",
        "_is_simplex",
        "_kept",
        "_longest",
        "_mint",
        "_most",
        "_read",
        "_read_batch",
        "_refused",
        "_tombs",
        "_unsaid",
        "_upward",
    )

    def __init__(self, setup: Setup) -> None:
        try:
            options = msgspec.convert(setup.options or {}, Options)
        except msgspec.ValidationError as exc:
            raise LocalProtocolError(f"options of nq: {exc}") from exc
        self.closed = False
        self._now = 0.0
        self._complaints = 0
        self._is_renewed = False
        """All that the peer has not reacted to is said again, or was, since it was last heard."""
        self._common = common = Common(options, setup.limits, setup.random)
        self._line = common.line
        self._incoming = incoming = Incoming(common)
        self._waiting = Waiting(setup.limits)
        limits, requests = setup.limits, incoming.requests
        self._longest, self._most, self._deepest = limits.max_text, limits.max_pending, limits.max_depth
        self._accept_within, self._is_simplex = options.accept_within, options.simplex
        self._read, self._read_batch = _readers(limits)
        self._upward, self._following, self._kept, self._mint = common.words, common.following, common.kept, common.mint
        self._by_key, self._by_backchannel, self._answered = requests.by_key, requests.by_backchannel, requests.answered
        self._tombs, self._refused = incoming.tombs.tombs, incoming.finished.refused.tombs
        self._held, self._unsaid = self._waiting.held, incoming.unsaid
        self._outgoing = Outgoing(common, self._waiting)
        self._find_asking: Callable[[str], Repeated | None] = self._outgoing.find
        self._acknowledged, self._about = incoming.acknowledged, common.about

    def borrow_from(self, lender: Lender) -> None:
        """Ask a lender before more than a little is held for the peer."""
        for budget in (self._common.kept, self._common.held, self._common.asked):
            budget.borrow_from(lender)

    def receive(self, packet: Packet, now: float) -> Sequence[hub.Word]:
        """Take one packet of the peer."""
        payload = packet.payload
        if self.closed or not packet.is_text or len(payload) > self._longest:
            return self.hear(packet, now)
        try:
            if not payload.isascii():
                payload.decode()
            found = self._read_batch(payload) if payload[0] == _BATCH else (self._read(payload),)
        except _ODD:
            return self.hear(packet, now)
        self._now = now
        about = self._about
        about.clear()
        for each in found:
            i = each.i
            if not i:
                if not self._take(each, now):
                    return self.hear(packet, now, found.index(each))
                about.append(self._by_key.get(f"{each.t}#{each.r}"))
            elif each.r or each.d:
                return self.hear(packet, now, found.index(each))
            else:
                serving = self._by_backchannel.get(i)
                about.append(serving)
                if serving is not None and serving.said and serving.sender is None:
                    self._acknowledged(serving, now)
        self._is_renewed = False
        if self._is_simplex:
            self._line.wake(now)
        words = self._upward
        if not words:
            return ()
        heard = words.copy()
        words.clear()
        return heard

    def _take(self, each: Plain, now: float) -> bool:
        """Take a request; False, and nothing has happened, if it needs a closer look."""
        t, r, d = each.t, each.r, each.d
        if not (t and r and d):
            return False
        method, raw, key, by_key, kept = _method_of(t), bytes(d), f"{t}#{r}", self._by_key, self._kept
        try:
            check_trusted(raw, self._deepest)
        except Malformed:
            return False
        if (
            method
            and key not in by_key
            and key not in self._tombs
            and key not in self._refused
            and t not in self._following
            and len(by_key) < self._most
            and kept.used < kept.limit
            and not kept.gauge.is_tight
        ):
            a = self._mint()
            by_key[key] = self._by_backchannel[a] = Serving(a, key, r)
            self._upward.append(Call(key, method, Json(raw), t, (), False, None, False, True, True))
        elif method is None:
            return False
        else:
            self._incoming.on_request(Request(t, r, Json(raw)), now)
        return True

    def send(self, word: hub.Word, now: float) -> None:
        """Say a word to the peer."""
        if type(word) is Result:
            body = word.body
            if type(body) is Json and not (word.stream or word.attachments or word.extras or self._held):
                serving = self._by_key.get(word.id)
                if serving is not None and self._answer(serving, body.raw, now):
                    return
        elif type(word) is Accepted:
            serving, within = self._by_key.get(word.id), self._accept_within
            if within and serving is not None and serving.state is _RECEIVED:
                serving.state, serving.accepted, serving.op = _ACCEPTED, True, self._common.op
                self._unsaid.append((now + within, serving))
                self._now = now
                return
        self.say(word, now)

    def _answer(self, serving: Serving, body: bytes, now: float) -> bool:
        """Answer a request; False, and nothing has happened, if that needs a closer look."""
        if serving.state is _ANSWERED or serving.sender or serving.receiver or serving.topic:
            return False
        a, kept = serving.a, self._kept
        raw = to_json(WholeAnswer(a, serving.r, Raw(body)))
        size = len(raw)
        if size > self._longest or (size > SMALL and kept.used + size > kept.limit):
            return False
        serving.state, serving.always, serving.op = _ANSWERED, raw, self._common.op
        serving.expires_at = now + self._common.options.answer_ttl
        kept.used += size
        self._answered[a] = serving
        if serving.place == OUT:
            self._line.queue.append(serving)
        serving.place = QUEUED
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
        return not (self._by_key or len(self._outgoing) or self._held)

    @property
    def is_empty(self) -> bool:
        """Whether a new conversation that mints other numbers would behave like this one."""
        return self.is_idle and not (self._tombs or self._refused)

    @property
    def minted(self) -> int:
        """The number of the last identifier."""
        return self._common.minted

    def mint_after(self, minted: int) -> None:
        """Mint no number up to this one: it was used under the same prefix before."""
        self._common.mint_after(minted)

    # To which operations of the hub all of this belongs.

    def known(self, message: object) -> Repeated | None:
        """Return the request, of ours or of the peer's, that a message is about, or the first of several."""
        target: str = getattr(message, "t", "")
        asked = getattr(message, "r", "") or getattr(message, "p", "")
        if asked:
            return self._by_key.get(f"{target}#{asked}")
        ids = getattr(message, "i", ())
        if not ids:
            return None
        if getattr(message, "a", ""):
            return self._find_asking(ids[0])
        return self._by_backchannel.get(ids[0]) or self._by_key.get(f"{target}#{ids[0]}")

    def speak_of(self, op: str) -> None:
        """Know to which operation of the hub the next word belongs."""
        self._common.op = op

    def tie(self, request: str, op: str) -> None:
        """Know to which operation a request of the peer belongs, by the id that the hub knows it by."""
        serving = self._by_key.get(request)
        if serving is not None:
            serving.op = op

    def heard_op(self) -> str:
        """Return the operations that the messages of the last packet belong to, as a packet has them."""
        return join_ops([each.op if each is not None else "" for each in self._about])

    @abstractmethod
    def hear(self, packet: Packet, now: float, past: int = 0) -> Sequence[hub.Word]:
        """Take one packet the long way, but for so many of its messages, which have been heard."""

    @abstractmethod
    def say(self, word: hub.Word, now: float) -> None:
        """Say a word the long way."""
