"""State shared by both halves of a conversation: identifiers, byte budgets, retransmission, subscriptions."""

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
"""The last two digits of a number with more digits."""


UNBORROWED_BYTES: Final = 1 << 14
"""Bytes of each budget of a peer that need no lender."""
BORROW_STEP: Final = 1 << 16
"""Bytes that are borrowed at once, so that few messages need the lender."""


def backoff_delays(first: float, maximum: float) -> tuple[float, ...]:
    """Return delays that double up to the maximum."""
    delays = [min(first, maximum)]
    while delays[-1] < maximum:
        delays.append(min(2 * delays[-1], maximum))
    return tuple(delays)


class MemoryPressure(Protocol):
    """A flag shared by the lenders of all peers."""

    is_tight: bool
    """Set if a lender may be exhausted."""


class _NoPressure:
    is_tight = False


_NO_PRESSURE: Final = _NoPressure()


class ByteLender(Protocol):
    """A memory limit shared by all peers."""

    @property
    def gauge(self) -> MemoryPressure:
        """The shared flag that avoids a call per message while there is enough memory."""

    def has_room(self) -> bool:
        """Return whether there is enough memory for another answer."""

    def acquire(self, amount: int, *, always: bool = False) -> bool:
        """Take bytes if there is room, or in any case with `always`; return whether they were taken."""

    def release(self, amount: int) -> None:
        """Return bytes."""


class ByteBudget:
    """Memory for messages of one peer: at most `maximum` bytes, up to `limit` without asking the lender."""

    __slots__ = ("_lender", "_unborrowed", "gauge", "limit", "maximum", "used")

    def __init__(self, maximum: int) -> None:
        self.maximum = self.limit = self._unborrowed = maximum
        self.used = 0
        self._lender: ByteLender | None = None
        self.gauge: MemoryPressure = _NO_PRESSURE

    def borrow_from(self, lender: ByteLender) -> None:
        """Set the lender and reduce the budget without it; used bytes are borrowed in any case."""
        self._lender, self.gauge = lender, lender.gauge
        self.limit = self._unborrowed = min(self.maximum, UNBORROWED_BYTES)
        if self.used > self.limit:
            lender.acquire(self.used - self.limit, always=True)
            self.limit = self.used

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes may be stored."""
        return self.used + size <= self.limit or self._try_borrow(size)

    def is_full(self) -> bool:
        """Return whether no more requests should be accepted."""
        return not self.has_room(1) or (
            self.gauge.is_tight and self._lender is not None and not self._lender.has_room()
        )

    def release(self, size: int) -> None:
        """Release bytes."""
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
    """The subscriptions of the peer, including requested ones: a name belongs to one subscription at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.grants: dict[str, str] = {}
        """The backchannel of the request that created each subscription, empty until it is granted.

        It distinguishes successive subscriptions of the same name.
        """

    def request(self, message: hub.HubMessage) -> tuple[str, str]:
        """Return the subscription that a message is about, and the grant that it ends.

        Raises:
            RequestRefused: the request is invalid.
        """
        if not isinstance(message, hub.Subscribe | hub.Unsubscribe):
            return "", ""
        name = message.subscription
        if len(name) > self._limits.max_name:
            raise RequestRefused(Reason.TOO_LARGE, "the id is too long")
        if isinstance(message, hub.Unsubscribe):
            if not self.grants.get(name):
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"no subscription {name} is open")
            return name, self.grants[name]
        if name in self.grants:
            raise RequestRefused(Reason.BAD_ARGUMENTS, f"the id {name} is in use")
        if len(self.grants) >= self._limits.max_subscriptions:
            raise RequestRefused(Reason.OVERLOADED, "too many subscriptions")
        self.grants[name] = ""
        return name, ""

    def apply_response(self, name: str, backchannel: str, ending: str, *, granted: bool) -> None:
        """Record the hub's response to a subscription, or to the unsubscription that ends a grant."""
        if ending:
            if granted:
                self.end(name, ending)
        elif granted:
            self.grants[name] = backchannel
        elif not self.grants.get(name):
            self.grants.pop(name, None)

    def end(self, name: str, grant: str) -> bool:
        """Remove a subscription unless another one has taken its name."""
        return self.grants.get(name) == grant and self.grants.pop(name) == grant


def _cannot_forget(_hub_id: str) -> bool:
    """Return false: without a handler, delivered parts cannot be revoked."""
    return False


class SessionState:
    """State shared by both halves of a conversation."""

    def __init__(self, options: Options, limits: Limits, random: Random) -> None:
        self.options = options
        self.limits = limits
        self.retransmission_delays = backoff_delays(options.first_wait, options.longest_wait)
        self.retransmission = RetransmissionQueue(
            limits.max_pending, _MAX_UNREAD_PACKETS * limits.max_text, self.retransmission_delays
        )
        self.hub_messages: list[hub.HubMessage] = []
        """Messages for the hub."""
        self.operation = ""
        """The hub's operation of the current message."""
        self.last_packet_requests: list[Retransmittable | None] = []
        """The request of each message in the last packet."""
        self._random = random
        self.last_number = 0
        self._set_prefix(options.id_prefix or self._random_prefix())
        self.past_prefixes: list[str] = []
        """The prefixes of the restored sessions before this one."""
        self.answer_budget = ByteBudget(options.max_kept_bytes)
        self.reorder_budget = ByteBudget(options.max_kept_bytes)
        self.request_budget = ByteBudget(options.max_kept_bytes)
        self.poll_delays = backoff_delays(options.first_poll, options.longest_wait)
        self.missing_part_delays = backoff_delays(options.first_ask, options.longest_wait)
        self.pending_stream_acks: dict[StreamReceiver[Any], None] = {}
        """Streams with parts in the current packet."""
        self.pending_acks: list[str] = []
        """Backchannels with a single answer in the current packet."""
        self.own_subscriptions: dict[str, OwnSubscription] = {}
        """Our subscriptions by the target of their events."""
        self.peer_subscriptions = PeerSubscriptions(limits)
        self.peer_run = ""
        """The prefix of the peer's ids, if known: a restarted peer uses another one."""
        self.try_forget_parts: Callable[[str], bool] = _cannot_forget

    def mint(self) -> str:
        """Return a new identifier from our unique prefix and a number."""
        self.last_number = number = self.last_number + 1
        low = number & 0xFF
        if not low:
            self._stem, self._endings = f"{self.prefix}-{number >> 8:x}", _ENDINGS
        return self._stem + self._endings[low]

    def mint_after(self, minted: int) -> None:
        """Skip the numbers up to this one, which were used with the same prefix before."""
        self.last_number = minted
        self._set_prefix(self.prefix)

    def _set_prefix(self, prefix: str) -> None:
        self.prefix = prefix
        # A lookup of the last digits is faster than formatting the number.
        high = self.last_number >> 8
        self._stem, self._endings = (f"{prefix}-{high:x}", _ENDINGS) if high else (f"{prefix}-", _SHORT_ENDINGS)

    def start_new_prefix(self, past_prefixes: list[str]) -> None:
        """Use a new prefix, because numbers minted after the session was saved are unknown."""
        self.past_prefixes = past_prefixes[-_MAX_PAST_PREFIXES:]
        self._set_prefix(self.options.id_prefix + self._random_prefix())

    def is_ours(self, identifier: str) -> bool:
        """Return whether we have minted an identifier, to tell late answers from stray ones."""
        prefix, _, digits = identifier.rpartition("-")
        if prefix in self.past_prefixes:
            return True
        try:
            return prefix == self.prefix and 0 < int(digits, 16) <= self.last_number
        except ValueError:
            return False

    def is_of_run(self, identifier: str) -> bool:
        """Return whether the peer has minted an identifier since its last restart."""
        return self.peer_run != "" and identifier.rpartition("-")[0] == self.peer_run

    def is_from_unknown_run(self, identifier: str) -> bool:
        """Return whether an identifier is from another run of a peer that has told its prefix."""
        return self.peer_run != "" and not self.is_of_run(identifier)

    def check_size(self, raw: bytes) -> bytes:
        """Return a message that fits into a packet; TooLarge if it does not."""
        if len(raw) > self.limits.max_text:
            raise TooLarge(f"a message of {len(raw)} bytes is too large for a packet")
        return raw

    def _random_prefix(self) -> str:
        return "".join(self._random.choices(_DIGITS, k=_PREFIX_LENGTH))
