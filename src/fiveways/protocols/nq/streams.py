"""What is said in parts (NQ-a04, NQ-a05): `Sender` and `Receiver` are the two ends of one stream.

Its parts are counted from 1. The end is a part like the others, with `f` 0, and may carry an element, nothing, or an
error: so the total is n + f, and who has the last part has the end.
"""

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import msgspec

from fiveways.protocols.nq.line import QUEUED, Repeated
from fiveways.protocols.nq.messages import AnswerPart, Missing, Next, RequestPart
from fiveways.protocols.nq.writing import write

if TYPE_CHECKING:
    from fiveways.protocols.nq.common import Common

PartT = TypeVar("PartT", RequestPart, AnswerPart)
LONGEST_LIST: Final = 64
"""Missing parts that are asked for at once."""


class Sender(Repeated):
    """The parts of a stream on their way to the peer; no more than a window of them at once."""

    common: "Common"
    parts: deque[bytes] = msgspec.field(default_factory=deque)
    """All that is not acknowledged, sent or not."""
    base: int = 1
    """The number of the first of them."""
    sent: int = 0
    """The number of the last that was sent."""
    ended: bool = False
    again: bool = False
    wanted: set[int] = msgspec.field(default_factory=set)

    @property
    def last(self) -> int:
        """The number of the last part there is."""
        return self.base + len(self.parts) - 1

    def add(self, part: bytes, *, end: bool) -> None:
        """Append one part."""
        self.parts.append(part)
        self.common.kept.used += len(part)
        self.ended = end

    def is_full(self, size: int) -> bool:
        """Whether the peer must take some parts before there is room for one of this size."""
        return len(self.parts) >= self.common.limits.max_pending or not self.common.kept.has(size)

    def acknowledge(self, number: int) -> bool:
        """Forget all parts below `number`; False if none was left to forget. What was never sent cannot have come."""
        before = self.base
        while self.base < number and self.base <= self.sent:
            self.common.kept.free(len(self.parts.popleft()))
            self.base += 1
        return self.base > before

    @property
    def is_done(self) -> bool:
        """Whether the end has been acknowledged."""
        return self.ended and not self.parts

    def has_more(self) -> bool:
        """Whether the window allows another part to be sent."""
        return self.sent < min(self.last, self.base + self.common.options.window - 1)

    def want(self, numbers: AbstractSet[int]) -> bool:
        """Take note of parts that the peer misses; False if it can miss none of these."""
        there = range(self.base, self.sent + 1)
        if len(there) < len(numbers):
            self.wanted.update(number for number in there if number in numbers)
        else:
            self.wanted.update(number for number in numbers if number in there)
        return bool(self.wanted)

    def late(self) -> None:
        """Say the first unacknowledged part again, and the last, from which the peer can tell what lies between."""
        self.again = True

    def write(self) -> Sequence[bytes]:
        """Return the parts that are wanted, overdue or new."""
        numbers = {number for number in self.wanted if number >= self.base}
        self.wanted.clear()
        if self.again and self.sent >= self.base:
            numbers |= {self.base, self.sent}
        self.again = False
        first_new, self.sent = self.sent + 1, min(self.last, self.base + self.common.options.window - 1)
        said = [self.parts[number - self.base] for number in sorted(numbers)]
        return said + [self.parts[number - self.base] for number in range(first_new, self.sent + 1)]

    @property
    def waits(self) -> Sequence[float]:
        """The waits while there is something to acknowledge."""
        return self.common.repeats if self.parts else ()

    def export(self) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        parts = [part.decode() for part in self.parts]
        return {"base": self.base, "sent": self.sent, "ended": self.ended, "parts": parts}

    @classmethod
    def restore(cls, common: "Common", saved: dict[str, Any]) -> Self:
        """Go on where another has stopped."""
        sender = cls(common)
        for part in saved["parts"]:
            sender.add(part.encode(), end=False)
        sender.base, sender.sent, sender.ended = saved["base"], saved["sent"], saved["ended"]
        return sender

    def close(self) -> None:
        """Forget what is left."""
        self.common.line.drop(self)
        self.common.kept.free(sum(map(len, self.parts)))
        self.base += len(self.parts)
        self.sent = self.base - 1
        self.parts.clear()


class Contradiction(Exception):
    """A part that cannot belong to its stream."""


class Receiver(Repeated, Generic[PartT]):
    """The parts of a stream from the peer: given on in order, once each, the missing ones asked for."""

    common: "Common"
    a: str
    """Empty for an answer, whose backchannel is `i`; the backchannel of a streamed request, which is `i`."""
    i: str
    next: int = 1
    total: int | None = None
    ended: bool = False
    """The hub has heard the end."""
    broken: bool = False
    """It ends by an error."""
    held: dict[int, PartT] = msgspec.field(default_factory=dict)
    waited: Sequence[float] = ()
    """The waits that were last begun."""

    def take(self, part: PartT) -> list[PartT]:
        """Return the parts whose turn it is; Contradiction if the part cannot belong to what is known of the stream."""
        number = part.n
        if self.broken:
            if number > (self.total or 0):
                return []
        elif not self._fits(part):
            raise Contradiction
        if number < self.next or number in self.held:
            return []
        if number > self.next:
            size = size_of(part)
            if number < self.next + self.common.options.window and self.common.held.has(size):
                self.common.held.used += size
                self.held[number] = part
            return []
        turn = [part]
        self.next += 1
        while self.next in self.held:
            turn.append(self._let_go(self.next))
            self.next += 1
        return turn

    def _fits(self, part: PartT) -> bool:
        """Take note of the end, if the part tells of it; False if it lies before what has come, or is another one."""
        total = self.total if part.f is None else part.n + part.f
        if self.a and part.d is None and part.n <= 1:
            return False  # a request begins with an element
        if total is None:
            return True
        if isinstance(part, AnswerPart) and part.e is not None:
            self.broken = True  # whatever was announced before
        elif total != (self.total or total):
            return False
        self.total = total
        return max(self.held, default=self.next - 1) <= total and part.n <= total

    @property
    def is_done(self) -> bool:
        """Whether all parts have come."""
        return self.total is not None and self.next > self.total

    def acknowledge(self, now: float, *, progress: bool) -> None:
        """Say how far we are as soon as the packet has been read, and watch over what is missing."""
        self.common.heard[self] = None
        waits = self.waits
        if not waits:
            self.common.line.drop(self)
        elif progress or waits is not self.waited or (self.waiting is None and self.place != QUEUED):
            self.common.line.rest(self, now)
        self.waited = waits

    def write(self) -> Sequence[bytes]:
        """Return the request for what is missing; where nothing is, say once more how far we are.

        A peer that has given its request up answers that with a cancellation, or we would wait for the rest for ever.
        """
        if not self.waits:
            return ()
        if not self.held:
            return (write(Next(self.a, (self.i,), self.next)),)
        missing = [number for number in range(self.next, max(self.held)) if number not in self.held]
        return (write(Missing(self.a, (self.i,), tuple(missing[:LONGEST_LIST]))),)

    @property
    def waits(self) -> Sequence[float]:
        """The waits while there is a gap, or a request that is not whole. Answers are polled for elsewhere."""
        if self.held:
            return self.common.asks
        return self.common.polls if self.a and not self.is_done else ()

    def close(self) -> None:
        """Forget what is left."""
        self.common.line.drop(self)
        for number in list(self.held):
            self._let_go(number)

    def export(self) -> dict[str, object]:
        """Return all that is needed to go on elsewhere; parts that came too early will come again."""
        total = None if self.broken else self.total
        return {"a": self.a, "i": self.i, "next": self.next, "total": total, "ended": self.ended}

    @classmethod
    def restore(cls, common: "Common", saved: dict[str, Any]) -> Self:
        """Go on where another has stopped."""
        receiver = cls(common, saved["a"], saved["i"])
        receiver.next, receiver.total, receiver.ended = saved["next"], saved["total"], saved["ended"]
        return receiver

    def _let_go(self, number: int) -> PartT:
        part = self.held.pop(number)
        self.common.held.free(size_of(part))
        return part


def size_of(part: RequestPart | AnswerPart) -> int:
    """Return about how many bytes a part makes us hold."""
    body = 0 if part.d is None else len(part.d.nq())
    return body + sum(map(len, part.extra.values())) if part.extra else body


def acknowledge(sender: Sender | None, number: int, now: float) -> bool:
    """Let go what has come and send what the window allows now; say whether the end of the stream has come."""
    if sender is None or not sender.acknowledge(number):
        return False
    line = sender.common.line
    line.rest(sender, now)
    if sender.has_more():
        line.push(sender)
    return sender.is_done


def resend(sender: Sender | None, numbers: AbstractSet[int]) -> None:
    """Send these parts again."""
    if sender is not None and sender.want(numbers):
        sender.common.line.push(sender)
