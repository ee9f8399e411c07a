"""The queue of messages to one peer, in order, with retransmission until the peer reacts (NQ-12).

`RetransmissionQueue` does not know the content of messages; retransmitted ones are `Retransmittable`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

NOT_QUEUED: Final = 0
QUEUED_CANCELLED: Final = 1
"""In the queue, but not to be sent any more."""
QUEUED: Final = 2
"""In the queue, to be sent."""


class Retransmittable(msgspec.Struct, eq=False, kw_only=True):
    """A message that is sent again after growing delays until it is cancelled."""

    payload: bytes = b""
    """The bytes of each transmission with the default delays; if empty, `next_payloads` and `delays` apply."""
    said: bool = False
    """Whether it was sent."""
    operation: str = ""
    """The operation of the hub that it belongs to."""
    due_at: float = 0.0
    queue_state: int = NOT_QUEUED
    attempt: int = 0
    wait_queue: "OrderedDict[Retransmittable, None] | None" = None
    """The queue of items with the same delay."""

    def next_payloads(self) -> Sequence[bytes]:
        """Return the messages to send now, possibly none."""
        raise AssertionError("implemented by each subclass")

    @property
    def delays(self) -> Sequence[float]:
        """The delays before the first retransmission, the second, and so on; empty for none."""
        raise AssertionError("implemented by each subclass")

    def on_timeout(self) -> None:
        """Handle the end of a delay without a reaction of the peer."""


class OneShot(msgspec.Struct, frozen=True, gc=False):
    """A message that is sent once, with its operation."""

    raw: bytes
    operation: str


class RetransmissionQueue:
    """The queue of messages to one peer; a retransmitted message is in it at most once."""

    def __init__(self, max_once: int, max_once_bytes: int, default_delays: Sequence[float]) -> None:
        self._max_once = max_once
        self._max_once_bytes = max_once_bytes
        self._default_delays = default_delays
        self._once_count = 0
        self._once_bytes = 0
        self.queue: list[bytes | OneShot | Retransmittable] = []
        self.last_operations: list[str] = []
        """The operation of each message of the last `take_payloads`, empty for none."""
        # One queue for each delay: it is ordered by time without sorting.
        self._waiting: dict[float, OrderedDict[Retransmittable, None]] = {}

    def send_once(self, raw: bytes, op: str = "") -> None:
        """Queue a message without retransmission.

        It is dropped if the peer does not read, because the peer can ask again.
        """
        if self._once_count < self._max_once and self._once_bytes + len(raw) <= self._max_once_bytes:
            self.send_once_unbounded(raw, op)

    def send_once_unbounded(self, raw: bytes, op: str = "") -> None:
        """Queue a message without retransmission and without a limit."""
        self._once_count += 1
        self._once_bytes += len(raw)
        self.queue.append(OneShot(raw, op) if op else raw)

    def send_first(self, raw: bytes) -> None:
        """Queue a message before all others."""
        self.queue = [raw, *(item for item in self.queue if item != raw)]

    def send(self, item: Retransmittable) -> None:
        """Queue an item and retransmit it until it is cancelled."""
        if item.queue_state == NOT_QUEUED:
            self.queue.append(item)
        item.queue_state = QUEUED

    def restart_wait(self, item: Retransmittable, now: float) -> None:
        """Retransmit an item after its first delay at the earliest."""
        self.cancel(item)
        item.attempt = 0
        if waits := item.delays:
            self._schedule(item, waits, now)

    def cancel(self, item: Retransmittable) -> None:
        """Stop the retransmission of an item."""
        if item.queue_state == QUEUED:
            item.queue_state = QUEUED_CANCELLED
        waiting = item.wait_queue
        if waiting is not None:
            del waiting[item]
            item.wait_queue = None

    def resend_now(self, item: Retransmittable) -> None:
        """Send an item at once and restart its delays, on a new connection."""
        self.cancel(item)
        item.attempt = 0
        item.on_timeout()
        self.send(item)

    def take_payloads(self, now: float) -> list[bytes]:
        """Return the messages to send and remove them from the queue."""
        if not self.queue:
            return []
        queue, self.queue, self._once_count, self._once_bytes = self.queue, [], 0, 0
        payloads: list[bytes] = []
        ops = self.last_operations = []
        for item in queue:
            if isinstance(item, bytes):
                payloads.append(item)
                ops.append("")
                continue
            if isinstance(item, OneShot):
                payloads.append(item.raw)
                ops.append(item.operation)
                continue
            is_due, item.queue_state = item.queue_state == QUEUED, NOT_QUEUED
            if not is_due:
                continue
            if item.payload:
                item.said = True
                payloads.append(item.payload)
            else:
                payloads += item.next_payloads()
            ops += [item.operation] * (len(payloads) - len(ops))
            if item.wait_queue is None and (waits := self._default_delays if item.payload else item.delays):
                self._schedule(item, waits, now)
        return payloads

    def wake(self, now: float) -> None:
        """Queue the items whose delays have passed."""
        for waiting in self._waiting.values():
            while waiting and (item := next(iter(waiting))).due_at <= now:
                self.cancel(item)
                item.attempt += 1
                item.on_timeout()
                self.send(item)

    def deadline(self) -> float | None:
        """Return the end of the first delay."""
        return min((next(iter(waiting)).due_at for waiting in self._waiting.values() if waiting), default=None)

    def _schedule(self, item: Retransmittable, waits: Sequence[float], now: float) -> None:
        step = item.attempt
        wait = waits[step] if step < len(waits) else waits[-1]
        waiting = self._waiting.get(wait)
        if waiting is None:
            waiting = self._waiting[wait] = OrderedDict()
        waiting[item] = None
        item.wait_queue = waiting
        item.due_at = now + wait

    def __len__(self) -> int:
        """Return the number of queued and waiting items, for tests."""
        return len(self.queue) + sum(map(len, self._waiting.values()))
