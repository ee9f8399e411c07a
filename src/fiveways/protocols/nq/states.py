"""The states of a link, which are few, and of each request on it, which is where NQ has its states.

A conversation belongs to its peer, not to its link: `CLOSED` only lasts until the peer comes back on another one.
"""

from collections import deque
from enum import Enum
from random import Random
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from fiveways.errors import Fault, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.nq.bridge import Following, Refused
from fiveways.protocols.nq.messages import MESSAGES, Farewell, Message
from fiveways.protocols.nq.streams import Line, Receiver
from fiveways.wire.limits import Limits


class _Plain(Enum):
    """Members are compared by identity, so they may be hashed by it, which is much faster in the tables below."""

    __hash__ = object.__hash__


class State(_Plain):
    """Where a link stands. There is no handshake: it is open from the start."""

    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: {**dict.fromkeys(MESSAGES.values(), State.OPEN), Farewell: State.CLOSED},
    State.CLOSED: {},
}


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's message; RemoteProtocolError if it may not come now."""
    after = TRANSITIONS[state].get(type(message))
    if after is None:
        raise RemoteProtocolError(Fault.UNEXPECTED, f"{type(message).__name__} in state '{state.value}'", "NQ-01")
    return after


T = TypeVar("T")
DAY: Final = 24 * 3600.0
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protocol's section of the configuration: how long the states below last. Times are seconds."""

    first_wait: Seconds = 1.0
    """Before a request, an answer, a part is said again; then twice as long each time."""
    first_poll: Seconds = 5.0
    """Before an accepted request is polled; then twice as long each time."""
    first_ask: Seconds = 0.5
    """Before a missing part is asked for; then twice as long each time."""
    longest_wait: Seconds = 60.0
    request_ttl: Seconds = 7 * DAY
    answer_ttl: Seconds = DAY
    duplicate_window: Seconds = 3600.0
    """How long the key of a finished request is remembered."""
    max_tombs: Count = 1 << 16
    """How many such keys; beyond that, the oldest are forgotten early, and a late repeat of one is run again."""
    refusal_window: Seconds = 60.0
    """How long a request that was refused at once is remembered, so that a repeat is not run after all."""
    window: Count = 64
    """Parts of a stream that are on their way, or held for the sake of their order, at once."""
    max_kept_bytes: Count = 1 << 26
    """Answers and parts that wait for their acknowledgement; as much again for parts that came out of order, and for
    requests of ours that are not answered."""
    simplex: bool = False
    """The peer hears us only in answer to what it says: what is overdue goes with every answer."""
    announce: bool = False
    """Tell the peer its id first, on this link and on each that follows."""
    verbose: bool | str = False
    """The `v` of our requests."""
    default_method: str = "hub.echo"
    """What a request without t calls, folded: the hub itself is asked (NQ-a07)."""
    id_prefix: str = ""
    """What our identifiers begin with; random if empty, as it must be wherever chance is real."""


class Step(_Plain):
    """What can happen to a request, at either end of it."""

    ACCEPT = "accept"
    """`{a, i}`"""
    PART = "part"
    """`{a, i, d, n}`, not the last one"""
    END = "end"
    """the single answer, the last part, or a fatal error"""
    ACK = "ack"
    """`{i}`, or for a stream `{i, o}`, for all of the answer"""
    UNKNOWN = "unknown"
    """a poll was answered so"""
    CANCEL = "cancel"
    """`{i, e}` with e.fatal"""
    EXPIRE = "expire"
    """its time to live is over"""


class Asked(_Plain):
    """Where a request of ours stands."""

    SENT = "sent"
    """said again and again until accepted"""
    ACCEPTED = "accepted"
    """polled now and then until answered"""
    STREAMING = "streaming"
    """parts are coming"""
    CANCELLED = "cancelled"
    """the cancellation is said again and again; what comes in is acknowledged and dropped"""
    DONE = "done"
    """forgotten"""


class Taken(_Plain):
    """Where a request of the peer stands."""

    RECEIVED = "received"
    """not safe yet: the peer says it again"""
    ACCEPTED = "accepted"
    """safe; the hub owes an answer"""
    STREAMING = "streaming"
    """parts are going out"""
    ANSWERED = "answered"
    """the answer is complete, kept, and said again until acknowledged"""
    ACKNOWLEDGED = "acknowledged"
    """only the key is kept, so that a late repeat is not run again"""


ASKED: Final[dict[Asked, dict[Step, Asked]]] = {
    Asked.SENT: {
        Step.ACCEPT: Asked.ACCEPTED,
        Step.PART: Asked.STREAMING,
        Step.END: Asked.DONE,
        Step.UNKNOWN: Asked.SENT,
        Step.CANCEL: Asked.CANCELLED,
        Step.EXPIRE: Asked.DONE,
    },
    Asked.ACCEPTED: {
        Step.PART: Asked.STREAMING,
        Step.END: Asked.DONE,
        Step.UNKNOWN: Asked.SENT,
        Step.CANCEL: Asked.CANCELLED,
        Step.EXPIRE: Asked.DONE,
    },
    Asked.STREAMING: {
        Step.PART: Asked.STREAMING,
        Step.END: Asked.DONE,
        Step.CANCEL: Asked.CANCELLED,
        Step.EXPIRE: Asked.DONE,
    },
    Asked.CANCELLED: {Step.PART: Asked.CANCELLED, Step.END: Asked.DONE, Step.EXPIRE: Asked.DONE},
    Asked.DONE: {},
}

TAKEN: Final[dict[Taken, dict[Step, Taken]]] = {
    Taken.RECEIVED: {Step.ACCEPT: Taken.ACCEPTED, Step.PART: Taken.STREAMING, Step.END: Taken.ANSWERED},
    Taken.ACCEPTED: {Step.PART: Taken.STREAMING, Step.END: Taken.ANSWERED},
    Taken.STREAMING: {Step.PART: Taken.STREAMING, Step.END: Taken.ANSWERED},
    Taken.ANSWERED: {Step.ACK: Taken.ACKNOWLEDGED, Step.EXPIRE: Taken.ACKNOWLEDGED},
    Taken.ACKNOWLEDGED: {},
}


class Tomb(Enum):
    """What is left of a finished request."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    """The peer never took its answer."""
    EVENT = "event"
    """It was an event, which we answer ourselves, and always alike."""


class Tombstones(Generic[T]):
    """The keys of finished requests, for as long as a copy of one may still be under way."""

    def __init__(self, window: float, room: int) -> None:
        self._window = window
        self._room = room
        self._tombs: dict[str, T] = {}
        self._ages: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._tombs)

    def add(self, key: str, tomb: T, now: float) -> None:
        """Remember a key; the oldest makes room, so that the memory has its bound."""
        self.restore(key, tomb, now + self._window)
        if len(self._ages) > self._room:
            self._remove_oldest()

    def restore(self, key: str, tomb: T, until: float) -> None:
        """Remember a key until then."""
        if key not in self._tombs:
            self._ages.append((until, key))
        self._tombs[key] = tomb

    def get(self, key: str, now: float) -> T | None:
        """Return what became of the request, None if nothing is known of it."""
        if self._ages and self._ages[0][0] <= now:
            self.expire(now)
        return self._tombs.get(key)

    def expire(self, now: float) -> None:
        """Forget what is old enough."""
        while self._ages and self._ages[0][0] <= now:
            self._remove_oldest()

    def all(self) -> list[tuple[str, T, float]]:
        """Return them all, the oldest first, each with its end."""
        return [(key, self._tombs[key], until) for until, key in self._ages]

    def _remove_oldest(self) -> None:
        _, key = self._ages.popleft()
        del self._tombs[key]


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_PREFIX_LENGTH: Final = 12
_MOST_PREFIXES: Final = 16
_SAID_PACKETS: Final = 4


def ladder(first: float, longest: float) -> tuple[float, ...]:
    """Return waits that double up to the longest."""
    waits = [min(first, longest)]
    while waits[-1] < longest:
        waits.append(min(2 * waits[-1], longest))
    return tuple(waits)


class Budget:
    """Bytes that a peer may make us hold."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has(self, size: int) -> bool:
        """Whether so much more may be held."""
        return self.used + size <= self.limit


class Published:
    """The peer's subscriptions, those that it has asked for among them: a name belongs to one at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.grants: dict[str, str] = {}
        """By name, the backchannel on which it was granted, so that it is told from others of its name; or nothing."""

    def ask(self, word: hub.Word) -> tuple[str, str]:
        """Return what the word is about, and the grant that it would end; Refused if it makes no sense."""
        if not isinstance(word, hub.Subscribe | hub.Unsubscribe):
            return "", ""
        name = word.subscription
        if len(name) > self._limits.max_name:
            raise Refused(Reason.TOO_LARGE, "the id is too long")
        if isinstance(word, hub.Unsubscribe):
            if not self.grants.get(name):
                raise Refused(Reason.BAD_ARGUMENTS, f"there is no subscription {name}")
            return name, self.grants[name]
        if name in self.grants:
            raise Refused(Reason.BAD_ARGUMENTS, f"the id {name} is in use")
        if len(self.grants) >= self._limits.max_subscriptions:
            raise Refused(Reason.BUSY, "too many subscriptions")
        self.grants[name] = ""
        return name, ""

    def settle(self, name: str, backchannel: str, ending: str, *, granted: bool) -> None:
        """Take note of what the hub has said to a subscription, or to the unsubscription that ends a grant."""
        if ending:
            if granted:
                self.end(name, ending)
        elif granted:
            self.grants[name] = backchannel
        elif not self.grants.get(name):
            self.grants.pop(name, None)

    def end(self, name: str, grant: str) -> bool:
        """Forget a subscription, unless another has taken its place."""
        return self.grants.get(name) == grant and self.grants.pop(name) == grant


class Common:
    """What both halves of a conversation, the asking and the answering one, have in common."""

    def __init__(self, options: Options, limits: Limits, random: Random) -> None:
        self.options = options
        self.limits = limits
        self.line = Line(limits.max_pending, _SAID_PACKETS * limits.max_text)
        self.words: list[hub.Word] = []
        """For the hub to hear."""
        self._random = random
        self.prefix = options.id_prefix or self._chance()
        self.past: list[str] = []
        """The prefixes of those in whose place we go on."""
        self.minted = 0
        self.kept = Budget(options.max_kept_bytes)
        self.held = Budget(options.max_kept_bytes)
        self.asked = Budget(options.max_kept_bytes)
        self.repeats = ladder(options.first_wait, options.longest_wait)
        self.polls = ladder(options.first_poll, options.longest_wait)
        self.asks = ladder(options.first_ask, options.longest_wait)
        self.heard: dict[Receiver[Any], None] = {}
        """Streams of which a part has come in this packet."""
        self.thanks: list[str] = []
        """Backchannels whose single answer has come in this packet."""
        self.following: dict[str, Following] = {}
        """Our subscriptions, by the target of their events."""
        self.published = Published(limits)

    def mint(self) -> str:
        """Return a fresh identifier: a prefix that nobody else has, and a number that we use once."""
        self.minted += 1
        return f"{self.prefix}-{self.minted:x}"

    def succeed(self, past: list[str]) -> None:
        """Mint under a new prefix: what the other one has minted since it was saved is not known here."""
        self.past = past[-_MOST_PREFIXES:]
        self.prefix = self.options.id_prefix + self._chance()

    def is_ours(self, identifier: str) -> bool:
        """Whether we have minted it, whatever became of it: so a late answer is told from a stray one."""
        prefix, _, digits = identifier.rpartition("-")
        if prefix in self.past:
            return True
        try:
            return prefix == self.prefix and 0 < int(digits, 16) <= self.minted
        except ValueError:
            return False

    def fitting(self, raw: bytes) -> bytes:
        """Return a message that fits into a packet; Unrepresentable if it does not."""
        if len(raw) > self.limits.max_text:
            raise Unrepresentable(f"{len(raw)} bytes are too many for one packet")
        return raw

    def _chance(self) -> str:
        return "".join(self._random.choices(_DIGITS, k=_PREFIX_LENGTH))
