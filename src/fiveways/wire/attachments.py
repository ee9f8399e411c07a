"""Binary frames that belong to messages sent before them: one first-in-first-out queue per direction.

The frames carry no identifier, so their order is all there is. A slot, once announced, is never taken out of the queue
except by its own frame: whatever else happens, the queue must not shift.
"""

from collections import deque
from math import inf
from typing import Generic, TypeVar

from fiveways.wire.limits import Limits

Frame = TypeVar("Frame")


class Expected:
    """Attachments that the peer announced and has not sent yet. Each has bounds, after which it fails by itself.

    These are a time without progress, a minimum rate and a total time. One that delays those of other senders has a
    shorter time without progress.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        too_slow = f"timed out: slower than {limits.min_attachment_rate} bytes a second"
        self._texts = "timed out", too_slow, f"timed out: not complete after {limits.max_attachment_time:g} seconds"
        delayed = "timed out: it delayed attachments of others"
        self._delaying_texts = delayed, too_slow, f"{delayed} for {limits.max_attachment_delay:g} seconds"
        self.open: deque[tuple[str, float]] = deque()
        """Those that are not overdue: the name and when it was announced."""
        self._overdue = 0
        self._unwanted: set[str] = set()
        self._failed: set[str] = set()
        """Those in `open` that have failed because they delayed others."""
        self._delaying: dict[str, float] = {}
        """Those that delay others, and since when, in this order."""
        self._delaying_since = 0.0
        """Since when there have been any,"""
        self._received_then = 0
        """and how many bytes had come by then."""
        self._announced = 0
        self._turn_at = 0.0
        """When the latest one came completely; from then on the next one is timed."""
        self._progress_at = 0.0
        self._came = 0
        """Bytes of the next one,"""
        self._received = 0
        """and of all complete ones."""

    def __len__(self) -> int:
        return self._overdue + len(self.open)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants the next one."""
        if self._overdue or not self.open:
            return False
        name = self.open[0][0]
        return name not in self._unwanted and name not in self._failed

    def announce(self, count: int, now: float) -> tuple[str, ...]:
        """Make room for `count` more; the names under which they will be known."""
        first = self._announced + 1
        self._announced += count
        names = tuple(map(str, range(first, first + count)))
        self.open.extend((name, now) for name in names)
        return names

    def ignore(self, names: tuple[str, ...]) -> None:
        """Nobody wants these: their frames are still expected, and dropped when they come."""
        self._unwanted.update(names)

    def take(self, now: float, size: int = 0) -> str | None:
        """The name of the attachment that has just come, None if it is to be dropped; LookupError if none was due."""
        self._progress_at = self._turn_at = now
        self._came = 0
        if self._overdue:
            self._overdue -= 1
            return None
        if not self.open:
            raise LookupError
        self._received += size
        name, _ = self.open.popleft()
        return None if self._forget(name) else name

    def _forget(self, name: str) -> bool:
        """Forget what is known of one that leaves `open`; return whether nobody waits for it."""
        if not (self._delaying or self._unwanted or self._failed):
            return False
        self._delaying.pop(name, None)
        is_unwanted = name in self._unwanted or name in self._failed
        self._unwanted.discard(name)
        self._failed.discard(name)
        return is_unwanted

    def progress(self, now: float, size: int) -> bool:
        """So many bytes of the next one have come; return whether anybody wants it."""
        if not self._overdue:  # otherwise it is one that has failed
            self._progress_at, self._came = now, size
        return self.is_wanted

    def excuse(self, now: float) -> None:
        """None could come until now: all times begin anew."""
        self._progress_at = self._turn_at = self._delaying_since = now
        self.open = deque((name, now) for name, _ in self.open)
        self._delaying = dict.fromkeys(self._delaying, now)

    def hurry(self, name: str, now: float) -> None:
        """Attachments of other senders wait for this one."""
        if self.open and int(name) >= int(self.open[0][0]):
            if not self._delaying:
                self._delaying_since, self._received_then = now, self._received + self._came
            self._delaying.setdefault(name, now)

    def deadline(self) -> float | None:
        """When the next one fails if nothing more comes until then."""
        if not self.open:
            return None
        due = min(self._next_due())
        return min(due, *self._delaying_due()) if self._delaying else due

    def _next_due(self) -> tuple[float, float, float]:
        """When the next one fails, by each of its bounds: progress, rate and time."""
        announced_at, limits, rate = self.open[0][1], self._limits, self._limits.min_attachment_rate
        timeout, begun_at = limits.attachment_timeout, max(announced_at, self._turn_at)
        return (
            max(begun_at, self._progress_at) + timeout,
            begun_at + timeout + self._came / rate if rate else inf,
            announced_at + limits.max_attachment_time,
        )

    def _delaying_due(self) -> tuple[float, float, float]:
        """The same for those that delay others."""
        limits, rate = self._limits, self._limits.min_attachment_rate
        # One whose bytes come behind those of a failed one has no time: that one must come first.
        hold = 0.0 if self._overdue or self._failed else limits.max_attachment_hold
        came = self._received + self._came - self._received_then
        return (
            max(self._delaying_since, self._progress_at) + hold,
            self._delaying_since + hold + came / rate if rate else inf,
            next(iter(self._delaying.values())) + limits.max_attachment_delay,
        )

    def expire(self, now: float) -> list[tuple[str, str]]:
        """The names of those that fail by now, and why. Their slots stay in the queue."""
        late: list[tuple[str, str]] = []
        if self._delaying:
            dues = self._delaying_due()
            if (due := min(dues)) <= now:
                why = self._delaying_texts[dues.index(due)]
                late += [(name, why) for name in self._delaying]
                self._failed |= self._delaying.keys()
                self._delaying.clear()
        while self.open:
            dues = self._next_due()
            if (due := min(dues)) > now:
                break
            name, _ = self.open.popleft()
            self._overdue += 1
            self._came = 0
            if not self._forget(name):
                late.append((name, self._texts[dues.index(due)]))
        return late


class Owed(Generic[Frame]):
    """Attachments that we announced; each goes out when it is there and all before it have gone."""

    def __init__(self) -> None:
        self._order: deque[str] = deque()
        self._missing: set[str] = set()
        self._ready: dict[str, Frame] = {}

    def __len__(self) -> int:
        return len(self._order)

    @property
    def next(self) -> str | None:
        """The one that all others wait for."""
        return self._order[0] if self._order else None

    def announce(self, names: tuple[str, ...]) -> None:
        """These will come, in this order; `can_announce` must hold."""
        self._order.extend(names)
        self._missing.update(names)

    def can_announce(self, names: tuple[str, ...]) -> bool:
        """Whether each of these can be told from all that are owed already, and from each other."""
        owed = self._missing | self._ready.keys()
        return len(set(names)) == len(names) and owed.isdisjoint(names)

    def offer(self, name: str, frame: Frame) -> list[Frame]:
        """It is there (or has failed): what can go out now, in order. LookupError if it was never announced."""
        if name not in self._missing:
            raise LookupError(name)
        self._missing.remove(name)
        self._ready[name] = frame
        sendable = []
        while self._order and self._order[0] in self._ready:
            sendable.append(self._ready.pop(self._order.popleft()))
        return sendable
