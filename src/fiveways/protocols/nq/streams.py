"""Streamed requests and answers (NQ-a04, NQ-a05): `StreamSender` and `StreamReceiver` are the two ends of a stream.

Parts are counted from 1. The last part has `f` 0 and may contain an element, nothing, or an error. The total is
therefore n + f, and the stream is complete with its last part.
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
"""Limit for the missing parts that are requested at once."""


class StreamSender(Retransmittable):
    """The unacknowledged parts of a stream to the peer; at most `window` of them are in flight."""

    shared: "SessionState"
    parts: deque[bytes] = msgspec.field(default_factory=deque)
    """All unacknowledged parts, sent or not."""
    base: int = 1
    """The number of the first of `parts`."""
    sent: int = 0
    """The number of the last part that was sent."""
    ended: bool = False
    is_overdue: bool = False
    requested_parts: set[int] = msgspec.field(default_factory=set)

    @property
    def last(self) -> int:
        """The number of the last part."""
        return self.base + len(self.parts) - 1

    def add(self, part: bytes, *, end: bool) -> None:
        """Append a part."""
        self.parts.append(part)
        self.shared.answer_budget.used += len(part)
        self.ended = end

    def is_full(self, size: int) -> bool:
        """Return whether the peer must acknowledge parts before one of this size fits."""
        return len(self.parts) >= self.shared.limits.max_pending or not self.shared.answer_budget.has_room(size)

    def acknowledge(self, number: int) -> bool:
        """Remove all parts below `number` that were sent; return whether there were any."""
        old_base = self.base
        while self.base < number and self.base <= self.sent:
            self.shared.answer_budget.release(len(self.parts.popleft()))
            self.base += 1
        return self.base > old_base

    @property
    def is_done(self) -> bool:
        """Whether the last part is acknowledged."""
        return self.ended and not self.parts

    def can_send(self) -> bool:
        """Return whether the window allows sending another part."""
        return self.sent < min(self.last, self.base + self.shared.options.window - 1)

    def request_parts(self, numbers: AbstractSet[int]) -> bool:
        """Record parts that the peer misses; return whether there are any to send."""
        available = range(self.base, self.sent + 1)
        if len(available) < len(numbers):
            self.requested_parts.update(number for number in available if number in numbers)
        else:
            self.requested_parts.update(number for number in numbers if number in available)
        return bool(self.requested_parts)

    def on_timeout(self) -> None:
        """Resend the first unacknowledged part and the last one, which shows the peer the gap between them."""
        self.is_overdue = True

    def next_payloads(self) -> Sequence[bytes]:
        """Return the parts that are requested, overdue or new."""
        numbers = {number for number in self.requested_parts if number >= self.base}
        self.requested_parts.clear()
        if self.is_overdue and self.sent >= self.base:
            numbers |= {self.base, self.sent}
        self.is_overdue = False
        first_new, self.sent = self.sent + 1, min(self.last, self.base + self.shared.options.window - 1)
        payloads = [self.parts[number - self.base] for number in sorted(numbers)]
        return payloads + [self.parts[number - self.base] for number in range(first_new, self.sent + 1)]

    @property
    def delays(self) -> Sequence[float]:
        """The delays while there are unacknowledged parts."""
        return self.shared.retransmission_delays if self.parts else ()

    def export(self) -> dict[str, object]:
        """Return the state for `restore`."""
        parts = [part.decode() for part in self.parts]
        return {"base": self.base, "sent": self.sent, "ended": self.ended, "parts": parts}

    @classmethod
    def restore(cls, shared: "SessionState", saved: dict[str, Any]) -> Self:
        """Restore a sender from an exported state."""
        sender = cls(shared)
        for part in saved["parts"]:
            sender.add(part.encode(), end=False)
        sender.base, sender.sent, sender.ended = saved["base"], saved["sent"], saved["ended"]
        return sender

    def close(self) -> None:
        """Drop the remaining parts."""
        self.shared.retransmission.cancel(self)
        self.shared.answer_budget.release(sum(map(len, self.parts)))
        self.base += len(self.parts)
        self.sent = self.base - 1
        self.parts.clear()


class InconsistentPart(Exception):
    """A part that contradicts its stream."""


class StreamReceiver(Retransmittable, Generic[PartT]):
    """The parts of a stream from the peer, delivered in order and once each; missing ones are requested."""

    shared: "SessionState"
    a: str
    """For a streamed request its backchannel, equal to `i`; empty for an answer, whose backchannel is `i`."""
    i: str
    next: int = 1
    total: int | None = None
    ended: bool = False
    """Whether the hub has received the end."""
    ends_with_error: bool = False
    """Whether the last part contains an error."""
    out_of_order: dict[int, PartT] = msgspec.field(default_factory=dict)
    current_delays: Sequence[float] = ()
    """The delays in use."""

    def add_part(self, part: PartT) -> list[PartT]:
        """Return the parts that can be delivered now; InconsistentPart if the part contradicts the stream."""
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
        ready = [part]
        self.next += 1
        while self.next in self.out_of_order:
            ready.append(self._pop_held(self.next))
            self.next += 1
        return ready

    def _is_consistent(self, part: PartT) -> bool:
        """Record the total number of parts; return false if it contradicts earlier parts."""
        total = self.total if part.f is None else part.n + part.f
        if self.a and part.d is None and part.n <= 1:
            return False  # a request needs a first element
        if total is None:
            return True
        if isinstance(part, AnswerPart) and part.e is not None:
            self.ends_with_error = True  # an error ends the stream before the announced end
        elif total != (self.total or total):
            return False
        self.total = total
        return max(self.out_of_order, default=self.next - 1) <= total and part.n <= total

    @property
    def is_done(self) -> bool:
        """Whether all parts have arrived."""
        return self.total is not None and self.next > self.total

    def acknowledge(self, now: float, *, progress: bool) -> None:
        """Acknowledge the received parts after the current packet, and start the timer for missing ones."""
        self.shared.pending_stream_acks[self] = None
        delays = self.delays
        if not delays:
            self.shared.retransmission.cancel(self)
        elif progress or delays is not self.current_delays or (self.wait_queue is None and self.queue_state != QUEUED):
            self.shared.retransmission.restart_wait(self, now)
        self.current_delays = delays

    def next_payloads(self) -> Sequence[bytes]:
        """Return a request for missing parts, or without gaps the next expected number.

        A peer that has dropped its request answers this with a cancellation; otherwise the receiver would wait for
        ever.
        """
        if not self.delays:
            return ()
        if not self.out_of_order:
            return (write(Next(self.a, (self.i,), self.next)),)
        missing = [number for number in range(self.next, max(self.out_of_order)) if number not in self.out_of_order]
        return (write(Missing(self.a, (self.i,), tuple(missing[:MAX_MISSING_LISTED]))),)

    @property
    def delays(self) -> Sequence[float]:
        """The delays while there is a gap or a request is incomplete. Answers are polled by their request."""
        if self.out_of_order:
            return self.shared.missing_part_delays
        return self.shared.poll_delays if self.a and not self.is_done else ()

    def close(self) -> None:
        """Drop the stored parts."""
        self.shared.retransmission.cancel(self)
        for number in list(self.out_of_order):
            self._pop_held(number)

    def export(self) -> dict[str, object]:
        """Return the state for `restore`; parts out of order are not included, because the peer sends them again."""
        total = None if self.ends_with_error else self.total
        return {"a": self.a, "i": self.i, "next": self.next, "total": total, "ended": self.ended}

    @classmethod
    def restore(cls, shared: "SessionState", saved: dict[str, Any]) -> Self:
        """Restore a receiver from an exported state."""
        receiver = cls(shared, saved["a"], saved["i"])
        receiver.next, receiver.total, receiver.ended = saved["next"], saved["total"], saved["ended"]
        return receiver

    def _pop_held(self, number: int) -> PartT:
        part = self.out_of_order.pop(number)
        self.shared.reorder_budget.release(part_size(part))
        return part


def part_size(part: RequestPart | AnswerPart) -> int:
    """Return the approximate memory of a part."""
    body = 0 if part.d is None else len(part.d.nq())
    return body + sum(map(len, part.extra.values())) if part.extra else body


def acknowledge_parts(sender: StreamSender | None, number: int, now: float) -> bool:
    """Remove acknowledged parts and send further ones; return whether the whole stream is acknowledged."""
    if sender is None or not sender.acknowledge(number):
        return False
    queue = sender.shared.retransmission
    queue.restart_wait(sender, now)
    if sender.can_send():
        queue.send(sender)
    return sender.is_done


def resend_parts(sender: StreamSender | None, numbers: AbstractSet[int]) -> None:
    """Send these parts again."""
    if sender is not None and sender.request_parts(numbers):
        sender.shared.retransmission.send(sender)
