"""What is on its way to the peer: said once, or said again after growing waits until the peer has reacted (NQ-12).

`Line` keeps the order and the waits and knows nothing of what is said. `Asking` is one request of ours.
"""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.messages import AnswerPart, CancelRequest, Poll, write
from fiveways.protocols.nq.states import ASKED, Asked, Step
from fiveways.wire.limits import Limits

if TYPE_CHECKING:
    from fiveways.protocols.nq.streams import Receiver, Sender

DAY: Final = 24 * 3600.0
_PREFIX_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_PREFIX_LENGTH: Final = 12


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protocol's section of the configuration. Times are seconds."""

    first_wait: float = 1.0
    """Before a request, an answer, a part is said again; then twice as long each time."""
    first_poll: float = 5.0
    """Before an accepted request is polled; then twice as long each time."""
    first_ask: float = 0.5
    """Before a missing part is asked for; then twice as long each time."""
    longest_wait: float = 60.0
    request_ttl: float = 7 * DAY
    answer_ttl: float = DAY
    duplicate_window: float = 3600.0
    """How long the key of a finished request is remembered."""
    window: int = 64
    """Parts of a stream that are on their way, or held for the sake of their order, at once."""
    max_kept_bytes: int = 1 << 26
    """Answers and parts that wait for their acknowledgement; as much again for parts that came out of order."""
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


class Repeated:
    """Something that is said again, after a longer wait each time, until it is dropped."""

    __slots__ = ("at", "queued", "step")

    def __init__(self) -> None:
        self.at: float | None = None
        self.queued = False
        self.step = 0

    def write(self) -> Sequence[bytes]:
        """Return what there is to say now, maybe nothing."""
        raise NotImplementedError

    def waits(self) -> Sequence[float]:
        """Return how long to wait before the first repeat, the second, and so on; empty if none is needed."""
        raise NotImplementedError

    def late(self) -> None:
        """Take note that the wait is over and the peer has not reacted."""


class Line:
    """Everything to be said to one peer, in order, each repeated thing at most once at a time."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._once = 0
        self._queue: list[bytes | Repeated] = []
        # One queue for each length of wait: each is in order of time by itself, so nothing needs to be sorted.
        # What was dropped or restarted is passed over when its turn comes.
        self._waiting: dict[float, deque[tuple[float, Repeated]]] = {}

    def say(self, raw: bytes) -> None:
        """Say it once. When the peer does not read, it is dropped: all that is said so can be asked for again."""
        if self._once < self._room:
            self._once += 1
            self._queue.append(raw)

    def push(self, item: Repeated) -> None:
        """Say it as soon as possible, and again until it is dropped."""
        if not item.queued:
            item.queued = True
            self._queue.append(item)

    def rest(self, item: Repeated, now: float) -> None:
        """Say it again only after its first wait, whatever it was doing."""
        item.queued = False
        item.step = 0
        self._start(item, now)

    def drop(self, item: Repeated) -> None:
        """Never say it again."""
        item.queued = False
        item.at = None

    def renew(self, item: Repeated) -> None:
        """Say it at once, as if for the first time: the link is a new one."""
        item.at = None
        item.step = 0
        item.late()
        self.push(item)

    def take(self, now: float) -> list[bytes]:
        """Hand over what is to be said, in order."""
        if not self._queue:
            return []
        queue, self._queue, self._once = self._queue, [], 0
        said: list[bytes] = []
        for item in queue:
            if isinstance(item, bytes):
                said.append(item)
            elif item.queued:
                item.queued = False
                said += item.write()
                if item.at is None:
                    self._start(item, now)
        return said

    def wake(self, now: float) -> None:
        """Say again what has waited long enough."""
        for waiting in self._waiting.values():
            while waiting and (waiting[0][0] <= now or waiting[0][1].at != waiting[0][0]):
                at, item = waiting.popleft()
                if item.at == at:
                    item.at = None
                    item.step += 1
                    item.late()
                    self.push(item)

    def deadline(self) -> float | None:
        """Return when the first wait is over."""
        first: float | None = None
        for waiting in self._waiting.values():
            while waiting and waiting[0][1].at != waiting[0][0]:
                waiting.popleft()
            if waiting and (first is None or waiting[0][0] < first):
                first = waiting[0][0]
        return first

    def _start(self, item: Repeated, now: float) -> None:
        waits = item.waits()
        if not waits:
            item.at = None
            return
        wait = waits[item.step] if item.step < len(waits) else waits[-1]
        item.at = now + wait
        waiting = self._waiting.get(wait)
        if waiting is None:
            waiting = self._waiting[wait] = deque()
        waiting.append((item.at, item))

    def __len__(self) -> int:
        """Return how much is kept, for tests that want to see nothing."""
        return len(self._queue) + sum(map(len, self._waiting.values()))


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


class Common:
    """What both halves of a conversation, the asking and the answering one, have in common."""

    def __init__(self, options: Options, limits: Limits, random: Random) -> None:
        self.options = options
        self.limits = limits
        self.line = Line(limits.max_pending)
        self.words: list[hub.Word] = []
        """For the hub to hear."""
        self.prefix = options.id_prefix or "".join(random.choices(_PREFIX_DIGITS, k=_PREFIX_LENGTH))
        self.minted = 0
        self.kept = Budget(options.max_kept_bytes)
        self.held = Budget(options.max_kept_bytes)
        self.repeats = ladder(options.first_wait, options.longest_wait)
        self.polls = ladder(options.first_poll, options.longest_wait)
        self.asks = ladder(options.first_ask, options.longest_wait)
        self.heard: dict[Receiver[Any], None] = {}
        """Streams of which a part has come that is not acknowledged yet."""

    def mint(self) -> str:
        """Return a fresh identifier: a prefix that nobody else has, and a number that we use once."""
        self.minted += 1
        return f"{self.prefix}-{self.minted:x}"

    def is_ours(self, identifier: str) -> bool:
        """Whether we have minted it, whatever became of it: so a late answer is told from a stray one."""
        prefix, _, digits = identifier.rpartition("-")
        try:
            return prefix == self.prefix and 0 < int(digits, 16) <= self.minted
        except ValueError:
            return False


class Asking(Repeated):
    """A request of ours: repeated until accepted, then polled until answered, or cancelled until the peer is silent."""

    __slots__ = (
        *("a", "common", "data", "expires_at", "fresh", "hub_id"),
        *("r", "receiver", "sender", "state", "t", "topic", "word"),
    )

    def __init__(self, common: Common, r: str, target: str, word: type[hub.Word], hub_id: str | None) -> None:
        super().__init__()
        self.common = common
        self.r = r
        self.t = target
        self.word = word
        self.hub_id = hub_id
        """None if nobody waits for the answer."""
        self.topic = ""
        """The subscription of ours that it asks for."""
        self.state = Asked.SENT
        self.data = b""
        self.a = ""
        """The peer's backchannel, once known."""
        self.fresh = False
        """A part has come since the last wait began, so there is no need to poll."""
        self.expires_at = 0.0
        self.sender: Sender | None = None
        self.receiver: Receiver[AnswerPart] | None = None

    def advance(self, step: Step) -> bool:
        """Go where the step leads; False if it leads nowhere from here."""
        after = ASKED[self.state].get(step)
        if after is None:
            return False
        self.state = after
        return True

    def write(self) -> Sequence[bytes]:
        """Return the request, the poll or the cancellation."""
        if self.state is Asked.SENT and self.sender is None:
            return (self.data,)
        if self.state is Asked.CANCELLED:
            return (write(self._cancellation()),)
        # The parts of a streamed request are repeated by their own stream, until none is left but still no word came.
        if self.fresh or (self.state is Asked.SENT and self.sender is not None and self.sender.parts):
            self.fresh = False
            return ()
        return (write(Poll(self.t, self.r)),)

    def waits(self) -> Sequence[float]:
        """Return the waits between repeats, or between polls."""
        return self.common.polls if self.state in _POLLED else self.common.repeats

    def close(self) -> None:
        """Let go what is kept for it, except what a cancellation needs."""
        self.common.line.drop(self)
        self.data = b""
        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()

    def export(self, now: float) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        saved = {field: getattr(self, field) for field in ("r", "t", "hub_id", "topic", "a")}
        saved |= {"word": self.word.__name__, "state": self.state.name, "data": self.data.decode()}
        saved |= {"ttl": self.expires_at - now}
        saved |= {"sender": None if self.sender is None else self.sender.export()}
        return saved | {"receiver": None if self.receiver is None else self.receiver.export()}

    def restore(self, saved: dict[str, Any], now: float) -> None:
        """Go on where another has stopped."""
        self.topic, self.a, self.data = saved["topic"], saved["a"], saved["data"].encode()
        self.state = Asked[saved["state"]]
        self.expires_at = now + saved["ttl"]

    def _cancellation(self) -> CancelRequest:
        error = Err("local", True, "cancelled")
        return CancelRequest("", (self.a,), error) if self.a else CancelRequest(self.t, (self.r,), error)


_POLLED: Final = frozenset({Asked.ACCEPTED, Asked.STREAMING})


Carrier = hub.Call | hub.Result | hub.Publish | hub.Event | hub.SetVariable
"""The words that may have attachments."""


class Held:
    """A word that waits for its attachments, since NQ carries them within the message."""

    __slots__ = ("given", "missing", "room", "word")

    def __init__(self, word: Carrier, room: int) -> None:
        self.word: Carrier | None = word
        """None if it is not wanted any more; its attachments come nevertheless."""
        self.missing = set(word.attachments)
        self.given: dict[str, hub.Attachment] = {}
        self.room = room

    def attachments(self) -> list[hub.Attachment]:
        """Return them in the order in which the word names them."""
        return [] if self.word is None else [self.given[name] for name in self.word.attachments]


class Waiting:
    """All words that wait for their attachments, by the names of these."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[str, Held] = {}
        self._by_id: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def hold(self, word: Carrier) -> None:
        """Let a word wait; LocalProtocolError if it cannot."""
        names = word.attachments
        if len(set(names)) != len(names) or not self._held.keys().isdisjoint(names):
            raise LocalProtocolError("an attachment is named twice")
        if len(self._held) + len(names) > self._limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are awaited")
        held = Held(word, self._limits.max_text)
        self._held.update(dict.fromkeys(names, held))
        if not isinstance(word, hub.Event) and word.id is not None:
            self._by_id[word.id] = held

    def drop(self, hub_id: str) -> bool:
        """Forget a word; its attachments will be swallowed. False if no such word waits."""
        held = self._by_id.pop(hub_id, None)
        if held is None:
            return False
        held.word = None
        held.given.clear()
        return True

    def give(self, attachment: hub.Attachment) -> Held | None:
        """Take an attachment; return what is complete now, or (`room` below 0) too large for one packet."""
        held = self._held.pop(attachment.name, None)
        if held is None:
            raise LocalProtocolError(f"no attachment {attachment.name} is awaited")
        held.missing.remove(attachment.name)
        held.room -= len(attachment.data)
        if held.word is None:
            return None
        held.given[attachment.name] = attachment
        if held.missing and held.room >= 0:
            return None
        if not isinstance(held.word, hub.Event) and held.word.id is not None:
            del self._by_id[held.word.id]
        return held
