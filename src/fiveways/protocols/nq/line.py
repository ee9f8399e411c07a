"""All that is said to one peer: in its order, and again until the peer has reacted (NQ-12).

`Line` knows nothing of what it says; what is repeated is a `Repeated`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

OUT: Final = 0
LISTED: Final = 1
"""It stands in the queue, but need not be said any more."""
QUEUED: Final = 2
"""It stands in the queue, and is to be said."""


class Repeated(msgspec.Struct, eq=False, kw_only=True):
    """Something that is said again, after a longer wait each time, until it is dropped."""

    always: bytes = b""
    """What it says each time, after the usual waits; nothing if both have to be asked for (`write`, `waits`)."""
    said: bool = False
    """That has gone out."""
    op: str = ""
    """The hub's operation that it belongs to."""
    at: float = 0.0
    place: int = OUT
    step: int = 0
    waiting: "OrderedDict[Repeated, None] | None" = None
    """Among those that wait as long."""

    def write(self) -> Sequence[bytes]:
        """Return what there is to say now, maybe nothing."""
        raise AssertionError("each kind says something else")

    @property
    def waits(self) -> Sequence[float]:
        """How long to wait before the first repeat, the second, and so on; empty if none is needed."""
        raise AssertionError("each kind waits in its own way")

    def late(self) -> None:
        """Take note that the wait is over and the peer has not reacted."""


class Once(msgspec.Struct, frozen=True, gc=False):
    """Something that is said once, and belongs to an operation."""

    raw: bytes
    op: str


class Line:
    """Everything to be said to one peer, in order, each repeated thing at most once at a time."""

    def __init__(self, most: int, most_bytes: int, waits: Sequence[float]) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._waits = waits
        self._once = 0
        self._once_bytes = 0
        self.queue: list[bytes | Once | Repeated] = []
        self.ops: list[str] = []
        """The operations of what was handed over last, one for each, empty where there is none."""
        # One queue for each length of wait: each is in order of time by itself, so nothing needs to be sorted.
        self._waiting: dict[float, OrderedDict[Repeated, None]] = {}

    def say(self, raw: bytes, op: str = "") -> None:
        """Say it once. When the peer does not read, it is dropped: all that is said so can be asked for again."""
        if self._once < self._most and self._once_bytes + len(raw) <= self._most_bytes:
            self.insist(raw, op)

    def insist(self, raw: bytes, op: str = "") -> None:
        """Say it once, though the peer may not read."""
        self._once += 1
        self._once_bytes += len(raw)
        self.queue.append(Once(raw, op) if op else raw)

    def begin(self, raw: bytes) -> None:
        """Say it before all else."""
        self.queue = [raw, *(item for item in self.queue if item != raw)]

    def push(self, item: Repeated) -> None:
        """Say it as soon as possible, and again until it is dropped."""
        if item.place == OUT:
            self.queue.append(item)
        item.place = QUEUED

    def rest(self, item: Repeated, now: float) -> None:
        """Say it again only after its first wait, whatever it was doing."""
        self.drop(item)
        item.step = 0
        if waits := item.waits:
            self._wait(item, waits, now)

    def drop(self, item: Repeated) -> None:
        """Never say it again."""
        if item.place == QUEUED:
            item.place = LISTED
        waiting = item.waiting
        if waiting is not None:
            del waiting[item]
            item.waiting = None

    def renew(self, item: Repeated) -> None:
        """Say it at once, as if for the first time: the link is a new one."""
        self.drop(item)
        item.step = 0
        item.late()
        self.push(item)

    def take(self, now: float) -> list[bytes]:
        """Hand over what is to be said, in order."""
        if not self.queue:
            return []
        queue, self.queue, self._once, self._once_bytes = self.queue, [], 0, 0
        said: list[bytes] = []
        ops = self.ops = []
        for item in queue:
            if isinstance(item, bytes):
                said.append(item)
                ops.append("")
                continue
            if isinstance(item, Once):
                said.append(item.raw)
                ops.append(item.op)
                continue
            is_due, item.place = item.place == QUEUED, OUT
            if not is_due:
                continue
            if item.always:
                item.said = True
                said.append(item.always)
            else:
                said += item.write()
            ops += [item.op] * (len(said) - len(ops))
            if item.waiting is None and (waits := self._waits if item.always else item.waits):
                self._wait(item, waits, now)
        return said

    def wake(self, now: float) -> None:
        """Say again what has waited long enough."""
        for waiting in self._waiting.values():
            while waiting and (item := next(iter(waiting))).at <= now:
                self.drop(item)
                item.step += 1
                item.late()
                self.push(item)

    def deadline(self) -> float | None:
        """Return when the first wait is over."""
        return min((next(iter(waiting)).at for waiting in self._waiting.values() if waiting), default=None)

    def _wait(self, item: Repeated, waits: Sequence[float], now: float) -> None:
        step = item.step
        wait = waits[step] if step < len(waits) else waits[-1]
        waiting = self._waiting.get(wait)
        if waiting is None:
            waiting = self._waiting[wait] = OrderedDict()
        waiting[item] = None
        item.waiting = waiting
        item.at = now + wait

    def __len__(self) -> int:
        """Return how much is kept, for tests that want to see nothing."""
        return len(self.queue) + sum(map(len, self._waiting.values()))
