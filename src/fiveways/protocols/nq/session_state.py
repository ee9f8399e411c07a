"""What both halves of a conversation share: identifiers, bounds in bytes, the line to the peer, subscriptions."""

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from fiveways.errors import Reason, TooLarge
from fiveways.model import messages as hub
from fiveways.protocols.nq.bridge import OwnSubscription, RequestRefused
from fiveways.protocols.nq.options import Options
from fiveways.protocols.nq.retransmission import RetransmissionQueue, Retransmittable
from fiveways.protocols.nq.streams import StreamReceiver
from fiveways.wire.limits import Limits

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_PREFIX_LENGTH: Final = 12
_MAX_PAST_PREFIXES: Final = 16
_MAX_UNREAD_PACKETS: Final = 4
_SHORT_ENDINGS: Final = tuple(f"{number:x}" for number in range(256))
_ENDINGS: Final = tuple(f"{number:02x}" for number in range(256))
"""The last two digits of a number that has more of them."""


UNBORROWED_BYTES: Final = 1 << 14
"""Bytes that each budget of a peer has without asking a lender."""
BORROW_STEP: Final = 1 << 16
"""Bytes that are borrowed at once, so that few messages have to ask."""


def backoff_delays(first: float, longest: float) -> tuple[float, ...]:
    """Return waits that double up to the longest."""
    waits = [min(first, longest)]
    while waits[-1] < longest:
        waits.append(min(2 * waits[-1], longest))
    return tuple(waits)


class MemoryPressure(Protocol):
    """What the lenders of all peers have in common."""

    is_tight: bool
    """Some lender may have nothing left."""


class _NoPressure:
    is_tight = False


_NO_PRESSURE: Final = _NoPressure()


class ByteLender(Protocol):
    """Who has bytes for all peers together."""

    @property
    def gauge(self) -> MemoryPressure:
        """What tells without a question that there is enough for everybody."""

    def has_room(self) -> bool:
        """Whether there is enough for another answer."""

    def acquire(self, amount: int, *, always: bool = False) -> bool:
        """Take so much, if there is room or it must be; say whether it was taken."""

    def release(self, amount: int) -> None:
        """Give so much back."""


class ByteBudget:
    """Bytes that a peer may make us hold: up to `most`, and up to `limit` without asking a lender."""

    __slots__ = ("_lender", "_unborrowed", "gauge", "limit", "maximum", "used")

    def __init__(self, most: int) -> None:
        self.maximum = self.limit = self._unborrowed = most
        self.used = 0
        self._lender: ByteLender | None = None
        self.gauge: MemoryPressure = _NO_PRESSURE

    def borrow_from(self, lender: ByteLender) -> None:
        """Hold only a little without asking the lender; what is held already is borrowed in any case."""
        self._lender, self.gauge = lender, lender.gauge
        self.limit = self._unborrowed = min(self.maximum, UNBORROWED_BYTES)
        if self.used > self.limit:
            lender.acquire(self.used - self.limit, always=True)
            self.limit = self.used

    def has_room(self, size: int) -> bool:
        """Whether so much more may be held."""
        return self.used + size <= self.limit or self._try_borrow(size)

    def is_full(self) -> bool:
        """Whether nothing should be asked for that would have to be held."""
        return not self.has_room(1) or (
            self.gauge.is_tight and self._lender is not None and not self._lender.has_room()
        )

    def release(self, size: int) -> None:
        """Hold so much less."""
        self.used -= size
        if self.limit > self._unborrowed and self.limit - self.used > 2 * BORROW_STEP:
            self._return_surplus()

    def _try_borrow(self, size: int) -> bool:
        needed = self.used + size - self.limit
        if self._lender is None or self.limit + needed > self.maximum:
            return False
        portion = min(self.maximum - self.limit, -(-needed // BORROW_STEP) * BORROW_STEP)
        if not self._lender.acquire(portion):
            return False
        self.limit += portion
        return True

    def _return_surplus(self) -> None:
        limit = max(self._unborrowed, self.used + BORROW_STEP)
        if self._lender is not None and limit < self.limit:
            self._lender.release(self.limit - limit)
            self.limit = limit


class PeerSubscriptions:
    """The peer's subscriptions, those that it has asked for among them: a name belongs to one at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.grants: dict[str, str] = {}
        """By name, the backchannel on which it was granted, so that it is told from others of its name; or nothing."""

    def request(self, message: hub.HubMessage) -> tuple[str, str]:
        """Return what the word is about, and the grant that it would end; Refused if it makes no sense."""
        if not isinstance(message, hub.Subscribe | hub.Unsubscribe):
            return "", ""
        name = message.subscription
        if len(name) > self._limits.max_name:
            raise RequestRefused(Reason.TOO_LARGE, "the id is too long")
        if isinstance(message, hub.Unsubscribe):
            if not self.grants.get(name):
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"there is no subscription {name}")
            return name, self.grants[name]
        if name in self.grants:
            raise RequestRefused(Reason.BAD_ARGUMENTS, f"the id {name} is in use")
        if len(self.grants) >= self._limits.max_subscriptions:
            raise RequestRefused(Reason.OVERLOADED, "too many subscriptions")
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


def _cannot_forget(_hub_id: str) -> bool:
    """Nobody can forget what was given on, unless somebody says so."""
    return False


class SessionState:
    """What both halves of a conversation, the asking and the answering one, have in common."""

    def __init__(self, options: Options, limits: Limits, random: Random) -> None:
        self.options = options
        self.limits = limits
        self.retransmission_delays = backoff_delays(options.first_wait, options.longest_wait)
        self.retransmission = RetransmissionQueue(
            limits.max_pending, _MAX_UNREAD_PACKETS * limits.max_text, self.retransmission_delays
        )
        self.hub_messages: list[hub.HubMessage] = []
        """For the hub to hear."""
        self.operation = ""
        """The hub's operation that the word at hand belongs to."""
        self.last_packet_requests: list[Retransmittable | None] = []
        """What the messages of the last packet were about, one for each."""
        self._random = random
        self.last_number = 0
        self._set_prefix(options.id_prefix or self._random_prefix())
        self.past_prefixes: list[str] = []
        """The prefixes of those in whose place we go on."""
        self.answer_budget = ByteBudget(options.max_kept_bytes)
        self.reorder_budget = ByteBudget(options.max_kept_bytes)
        self.request_budget = ByteBudget(options.max_kept_bytes)
        self.poll_delays = backoff_delays(options.first_poll, options.longest_wait)
        self.missing_part_delays = backoff_delays(options.first_ask, options.longest_wait)
        self.pending_stream_acks: dict[StreamReceiver[Any], None] = {}
        """Streams of which a part has come in this packet."""
        self.pending_acks: list[str] = []
        """Backchannels whose single answer has come in this packet."""
        self.own_subscriptions: dict[str, OwnSubscription] = {}
        """Our subscriptions, by the target of their events."""
        self.peer_subscriptions = PeerSubscriptions(limits)
        self.peer_run = ""
        """What the ids of the peer begin with, where it told: a peer that has begun anew mints others."""
        self.try_forget_parts: Callable[[str], bool] = _cannot_forget

    def mint(self) -> str:
        """Return a fresh identifier: a prefix that nobody else has, and a number that we use once."""
        self.last_number = number = self.last_number + 1
        low = number & 0xFF
        if not low:
            self._stem, self._endings = f"{self.prefix}-{number >> 8:x}", _ENDINGS
        return self._stem + self._endings[low]

    def mint_after(self, minted: int) -> None:
        """Mint no number up to this one: it was used under the same prefix before."""
        self.last_number = minted
        self._set_prefix(self.prefix)

    def _set_prefix(self, prefix: str) -> None:
        self.prefix = prefix
        # To write a number costs more than to look up how its last digits are written.
        high = self.last_number >> 8
        self._stem, self._endings = (f"{prefix}-{high:x}", _ENDINGS) if high else (f"{prefix}-", _SHORT_ENDINGS)

    def start_new_prefix(self, past: list[str]) -> None:
        """Mint under a new prefix: what the other one has minted since it was saved is not known here."""
        self.past_prefixes = past[-_MAX_PAST_PREFIXES:]
        self._set_prefix(self.options.id_prefix + self._random_prefix())

    def is_ours(self, identifier: str) -> bool:
        """Whether we have minted it, whatever became of it: so a late answer is told from a stray one."""
        prefix, _, digits = identifier.rpartition("-")
        if prefix in self.past_prefixes:
            return True
        try:
            return prefix == self.prefix and 0 < int(digits, 16) <= self.last_number
        except ValueError:
            return False

    def is_of_run(self, identifier: str) -> bool:
        """Whether the peer has minted it since it last told who it is."""
        return self.peer_run != "" and identifier.rpartition("-")[0] == self.peer_run

    def is_from_unknown_run(self, identifier: str) -> bool:
        """Whether a peer that tells who it is has minted it before that, or without having told yet."""
        return self.peer_run != "" and not self.is_of_run(identifier)

    def check_size(self, raw: bytes) -> bytes:
        """Return a message that fits into a packet; TooLarge if it does not."""
        if len(raw) > self.limits.max_text:
            raise TooLarge(f"{len(raw)} bytes are too many for one packet")
        return raw

    def _random_prefix(self) -> str:
        return "".join(self._random.choices(_DIGITS, k=_PREFIX_LENGTH))
