"""What is said in parts (NQ-a04, NQ-a05): `Sender` and `Receiver` are the two ends of one stream.

Its parts are counted from 1. The end is a part like the others, with `f` 0, and may carry an element, nothing, or an
error: so the total is n + f, and who has the last part has the end.
"""

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import msgspec

from fiveways.protocols.nq.messages import AnswerPart, Missing, Next, RequestPart
from fiveways.protocols.nq.retransmission import QUEUED, Retransmittable
from fiveways.protocols.nq.serializer import write

if TYPE_CHECKING:
    from fiveways.protocols.nq.session_state import SessionState

PartT = TypeVar("PartT", RequestPart, AnswerPart)
MAX_MISSING_LISTED: Final = 64
"""Missing parts that are asked for at once."""


class StreamSender(Retransmittable):
    """The parts of a stream on their way to the peer; no more than a window of them at once."""

    shared: "SessionState"
    parts: deque[bytes] = msgspec.field(default_factory=deque)
    """All that is not acknowledged, sent or not."""
    base: int = 1
    """The number of the first of them."""
    sent: int = 0
    """The number of the last that was sent."""
    ended: bool = False
    is_overdue: bool = False
    requested_parts: set[int] = msgspec.field(default_factory=set)

    @property
    def last(self) -> int:
        """The number of the last part there is."""
        return self.base + len(self.parts) - 1

    def add(self, part: bytes, *, end: bool) -> None:
        """Append one part."""
        self.parts.append(part)
        self.shared.answer_budget.used += len(part)
        self.ended = end

    def is_full(self, size: int) -> bool:
        """Whether the peer must take some parts before there is room for one of this size."""
        return len(self.parts) >= self.shared.limits.max_pending or not self.shared.answer_budget.has_room(size)

    def acknowledge(self, number: int) -> bool:
        """Forget all parts below `number`; False if none was left to forget. What was never sent cannot have come."""
        before = self.base
        while self.base < number and self.base <= self.sent:
            self.shared.answer_budget.release(len(self.parts.popleft()))
            self.base += 1
        return self.base > before

    @property
    def is_done(self) -> bool:
        """Whether the end has been acknowledged."""
        return self.ended and not self.parts

    def can_send(self) -> bool:
        """Whether the window allows another part to be sent."""
        return self.sent < min(self.last, self.base + self.shared.options.window - 1)

    def request_parts(self, numbers: AbstractSet[int]) -> bool:
        """Take note of parts that the peer misses; False if it can miss none of these."""
        there = range(self.base, self.sent + 1)
        if len(there) < len(numbers):
            self.requested_parts.update(number for number in there if number in numbers)
        else:
            self.requested_parts.update(number for number in numbers if number in there)
        return bool(self.requested_parts)

    def on_timeout(self) -> None:
        """Say the first unacknowledged part again, and the last, from which the peer can tell what lies between."""
        self.is_overdue = True

    def next_payloads(self) -> Sequence[bytes]:
        """Return the parts that are wanted, overdue or new."""
        numbers = {number for number in self.requested_parts if number >= self.base}
        self.requested_parts.clear()
        if self.is_overdue and self.sent >= self.base:
            numbers |= {self.base, self.sent}
        self.is_overdue = False
        first_new, self.sent = self.sent + 1, min(self.last, self.base + self.shared.options.window - 1)
        said = [self.parts[number - self.base] for number in sorted(numbers)]
        return said + [self.parts[number - self.base] for number in range(first_new, self.sent + 1)]

    @property
    def delays(self) -> Sequence[float]:
        """The waits while there is something to acknowledge."""
        return self.shared.retransmission_delays if self.parts else ()

    def export(self) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        parts = [part.decode() for part in self.parts]
        return {"base": self.base, "sent": self.sent, "ended": self.ended, "parts": parts}

    @classmethod
    def restore(cls, common: "SessionState", saved: dict[str, Any]) -> Self:
        """Go on where another has stopped."""
        sender = cls(common)
        for part in saved["parts"]:
            sender.add(part.encode(), end=False)
        sender.base, sender.sent, sender.ended = saved["base"], saved["sent"], saved["ended"]
        return sender

    def close(self) -> None:
        """Forget what is left."""
        self.shared.retransmission.cancel(self)
        self.shared.answer_budget.release(sum(map(len, self.parts)))
        self.base += len(self.parts)
        self.sent = self.base - 1
        self.parts.clear()


class InconsistentPart(Exception):
    """A part that cannot belong to its stream."""


class StreamReceiver(Retransmittable, Generic[PartT]):
    """The parts of a stream from the peer: given on in order, once each, the missing ones asked for."""

    shared: "SessionState"
    a: str
    """Empty for an answer, whose backchannel is `i`; the backchannel of a streamed request, which is `i`."""
    i: str
    next: int = 1
    total: int | None = None
    ended: bool = False
    """The hub has heard the end."""
    ends_with_error: bool = False
    """It ends by an error."""
    out_of_order: dict[int, PartT] = msgspec.field(default_factory=dict)
    current_delays: Sequence[float] = ()
    """The waits that were last begun."""

    def add_part(self, part: PartT) -> list[PartT]:
        """Return the parts whose turn it is; Contradiction if the part cannot belong to what is known of the stream."""
        number = part.n
        if self.ends_with_error:
            if number > (self.total or 0):
                return []
        elif not self._is_consistent(part):
            raise InconsistentPart
        if number < self.next or number in self.out_of_order:
            return []
        if number > self.next:
            size = part_size(part)
            if number < self.next + self.shared.options.window and self.shared.reorder_budget.has_room(size):
                self.shared.reorder_budget.used += size
                self.out_of_order[number] = part
            return []
        turn = [part]
        self.next += 1
        while self.next in self.out_of_order:
            turn.append(self._pop_held(self.next))
            self.next += 1
        return turn

    def _is_consistent(self, part: PartT) -> bool:
        """Take note of the end, if the part tells of it; False if it lies before what has come, or is another one."""
        total = self.total if part.f is None else part.n + part.f
        if self.a and part.d is None and part.n <= 1:
            return False  # a request begins with an element
        if total is None:
            return True
        if isinstance(part, AnswerPart) and part.e is not None:
            self.ends_with_error = True  # whatever was announced before
        elif total != (self.total or total):
            return False
        self.total = total
        return max(self.out_of_order, default=self.next - 1) <= total and part.n <= total

    @property
    def is_done(self) -> bool:
        """Whether all parts have come."""
        return self.total is not None and self.next > self.total

    def acknowledge(self, now: float, *, progress: bool) -> None:
        """Say how far we are as soon as the packet has been read, and watch over what is missing."""
        self.shared.pending_stream_acks[self] = None
        waits = self.delays
        if not waits:
            self.shared.retransmission.cancel(self)
        elif progress or waits is not self.current_delays or (self.wait_queue is None and self.queue_state != QUEUED):
            self.shared.retransmission.restart_wait(self, now)
        self.current_delays = waits

    def next_payloads(self) -> Sequence[bytes]:
        """Return the request for what is missing; where nothing is, say once more how far we are.

        A peer that has given its request up answers that with a cancellation, or we would wait for the rest for ever.
        """
        if not self.delays:
            return ()
        if not self.out_of_order:
            return (write(Next(self.a, (self.i,), self.next)),)
        missing = [number for number in range(self.next, max(self.out_of_order)) if number not in self.out_of_order]
        return (write(Missing(self.a, (self.i,), tuple(missing[:MAX_MISSING_LISTED]))),)

    @property
    def delays(self) -> Sequence[float]:
        """The waits while there is a gap, or a request that is not whole. Answers are polled for elsewhere."""
        if self.out_of_order:
            return self.shared.missing_part_delays
        return self.shared.poll_delays if self.a and not self.is_done else ()

    def close(self) -> None:
        """Forget what is left."""
        self.shared.retransmission.cancel(self)
        for number in list(self.out_of_order):
            self._pop_held(number)

    def export(self) -> dict[str, object]:
        """Return all that is needed to go on elsewhere; parts that came too early will come again."""
        total = None if self.ends_with_error else self.total
        return {"a": self.a, "i": self.i, "next": self.next, "total": total, "ended": self.ended}

    @classmethod
    def restore(cls, common: "SessionState", saved: dict[str, Any]) -> Self:
        """Go on where another has stopped."""
        receiver = cls(common, saved["a"], saved["i"])
        receiver.next, receiver.total, receiver.ended = saved["next"], saved["total"], saved["ended"]
        return receiver

    def _pop_held(self, number: int) -> PartT:
        part = self.out_of_order.pop(number)
        self.shared.reorder_budget.release(part_size(part))
        return part


def part_size(part: RequestPart | AnswerPart) -> int:
    """Return about how many bytes a part makes us hold."""
    body = 0 if part.d is None else len(part.d.nq())
    return body + sum(map(len, part.extra.values())) if part.extra else body


def acknowledge_parts(sender: StreamSender | None, number: int, now: float) -> bool:
    """Let go what has come and send what the window allows now; say whether the end of the stream has come."""
    if sender is None or not sender.acknowledge(number):
        return False
    line = sender.shared.retransmission
    line.restart_wait(sender, now)
    if sender.can_send():
        line.send(sender)
    return sender.is_done


def resend_parts(sender: StreamSender | None, numbers: AbstractSet[int]) -> None:
    """Send these parts again."""
    if sender is not None and sender.request_parts(numbers):
        sender.shared.retransmission.send(sender)
