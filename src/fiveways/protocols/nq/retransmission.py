"""All that is said to one peer: in its order, and again until the peer has reacted (NQ-12).

`Line` knows nothing of what it says; what is repeated is a `Repeated`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

NOT_QUEUED: Final = 0
QUEUED_CANCELLED: Final = 1
"""It stands in the queue, but need not be said any more."""
QUEUED: Final = 2
"""It stands in the queue, and is to be said."""


class Retransmittable(msgspec.Struct, eq=False, kw_only=True):
    """Something that is said again, after a longer wait each time, until it is dropped."""

    payload: bytes = b""
    """What it says each time, after the usual waits; nothing if both have to be asked for (`write`, `waits`)."""
    said: bool = False
    """That has gone out."""
    operation: str = ""
    """The hub's operation that it belongs to."""
    due_at: float = 0.0
    queue_state: int = NOT_QUEUED
    attempt: int = 0
    wait_queue: "OrderedDict[Retransmittable, None] | None" = None
    """Among those that wait as long."""

    def next_payloads(self) -> Sequence[bytes]:
        """Return what there is to say now, maybe nothing."""
        raise AssertionError("each kind says something else")

    @property
    def delays(self) -> Sequence[float]:
        """How long to wait before the first repeat, the second, and so on; empty if none is needed."""
        raise AssertionError("each kind waits in its own way")

    def on_timeout(self) -> None:
        """Take note that the wait is over and the peer has not reacted."""


class OneShot(msgspec.Struct, frozen=True, gc=False):
    """Something that is said once, and belongs to an operation."""

    raw: bytes
    operation: str


class RetransmissionQueue:
    """Everything to be said to one peer, in order, each repeated thing at most once at a time."""

    def __init__(self, most: int, most_bytes: int, waits: Sequence[float]) -> None:
        self._max_once = most
        self._max_once_bytes = most_bytes
        self._default_delays = waits
        self._once_count = 0
        self._once_bytes = 0
        self.queue: list[bytes | OneShot | Retransmittable] = []
        self.last_operations: list[str] = []
        """The operations of what was handed over last, one for each, empty where there is none."""
        # One queue for each length of wait: each is in order of time by itself, so nothing needs to be sorted.
        self._waiting: dict[float, OrderedDict[Retransmittable, None]] = {}

    def send_once(self, raw: bytes, op: str = "") -> None:
        """Say it once. When the peer does not read, it is dropped: all that is said so can be asked for again."""
        if self._once_count < self._max_once and self._once_bytes + len(raw) <= self._max_once_bytes:
            self.send_once_unbounded(raw, op)

    def send_once_unbounded(self, raw: bytes, op: str = "") -> None:
        """Say it once, though the peer may not read."""
        self._once_count += 1
        self._once_bytes += len(raw)
        self.queue.append(OneShot(raw, op) if op else raw)

    def send_first(self, raw: bytes) -> None:
        """Say it before all else."""
        self.queue = [raw, *(item for item in self.queue if item != raw)]

    def send(self, item: Retransmittable) -> None:
        """Say it as soon as possible, and again until it is dropped."""
        if item.queue_state == NOT_QUEUED:
            self.queue.append(item)
        item.queue_state = QUEUED

    def restart_wait(self, item: Retransmittable, now: float) -> None:
        """Say it again only after its first wait, whatever it was doing."""
        self.cancel(item)
        item.attempt = 0
        if waits := item.delays:
            self._schedule(item, waits, now)

    def cancel(self, item: Retransmittable) -> None:
        """Never say it again."""
        if item.queue_state == QUEUED:
            item.queue_state = QUEUED_CANCELLED
        waiting = item.wait_queue
        if waiting is not None:
            del waiting[item]
            item.wait_queue = None

    def resend_now(self, item: Retransmittable) -> None:
        """Say it at once, as if for the first time: the link is a new one."""
        self.cancel(item)
        item.attempt = 0
        item.on_timeout()
        self.send(item)

    def take_payloads(self, now: float) -> list[bytes]:
        """Hand over what is to be said, in order."""
        if not self.queue:
            return []
        queue, self.queue, self._once_count, self._once_bytes = self.queue, [], 0, 0
        said: list[bytes] = []
        ops = self.last_operations = []
        for item in queue:
            if isinstance(item, bytes):
                said.append(item)
                ops.append("")
                continue
            if isinstance(item, OneShot):
                said.append(item.raw)
                ops.append(item.operation)
                continue
            is_due, item.queue_state = item.queue_state == QUEUED, NOT_QUEUED
            if not is_due:
                continue
            if item.payload:
                item.said = True
                said.append(item.payload)
            else:
                said += item.next_payloads()
            ops += [item.operation] * (len(said) - len(ops))
            if item.wait_queue is None and (waits := self._default_delays if item.payload else item.delays):
                self._schedule(item, waits, now)
        return said

    def wake(self, now: float) -> None:
        """Say again what has waited long enough."""
        for waiting in self._waiting.values():
            while waiting and (item := next(iter(waiting))).due_at <= now:
                self.cancel(item)
                item.attempt += 1
                item.on_timeout()
                self.send(item)

    def deadline(self) -> float | None:
        """Return when the first wait is over."""
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
        """Return how much is kept, for tests that want to see nothing."""
        return len(self.queue) + sum(map(len, self._waiting.values()))
