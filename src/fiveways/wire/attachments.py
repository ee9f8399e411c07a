"""Binary frames that belong to messages sent before them: one first-in-first-out queue per direction.

The frames carry no identifier, so their order is all there is. A slot, once announced, is never taken out of the queue
except by its own frame: whatever else happens, the queue must not shift.
"""

from collections import deque
from math import inf
from typing import Generic, TypeVar

from fiveways.wire.limits import Limits

Frame = TypeVar("Frame")


class IncomingAttachments:
    """Attachments that the peer announced and has not sent yet. Each has bounds, after which it fails by itself.

    These are a time without progress, a minimum rate and a total time. One that delays those of other senders has a
    shorter time without progress.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        too_slow = f"timed out: slower than {limits.min_attachment_rate} bytes a second"
        self._timeout_texts = (
            "timed out",
            too_slow,
            f"timed out: not complete after {limits.max_attachment_time:g} seconds",
        )
        delayed = "timed out: it delayed attachments of others"
        self._delay_timeout_texts = delayed, too_slow, f"{delayed} for {limits.max_attachment_delay:g} seconds"
        self.awaited: deque[tuple[str, float]] = deque()
        """Those that are not overdue: the name and when it was announced."""
        self._overdue = 0
        self._unwanted: set[str] = set()
        self._failed: set[str] = set()
        """Those in `open` that have failed because they delayed others."""
        self._delaying: dict[str, float] = {}
        """Those that delay others, and since when, in this order."""
        self._delay_started_at = 0.0
        """Since when there have been any,"""
        self._received_at_delay_start = 0
        """and how many bytes had come by then."""
        self._last_number = 0
        self._last_completed_at = 0.0
        """When the latest one came completely; from then on the next one is timed."""
        self._last_progress_at = 0.0
        self._partial_bytes = 0
        """Bytes of the next one,"""
        self._completed_bytes = 0
        """and of all complete ones."""

    def __len__(self) -> int:
        return self._overdue + len(self.awaited)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants the next one."""
        if self._overdue or not self.awaited:
            return False
        name = self.awaited[0][0]
        return name not in self._unwanted and name not in self._failed

    def announce(self, count: int, now: float) -> tuple[str, ...]:
        """Make room for `count` more; the names under which they will be known."""
        first = self._last_number + 1
        self._last_number += count
        names = tuple(map(str, range(first, first + count)))
        self.awaited.extend((name, now) for name in names)
        return names

    def ignore(self, names: tuple[str, ...]) -> None:
        """Nobody wants these: their frames are still expected, and dropped when they come."""
        self._unwanted.update(names)

    def take(self, now: float, size: int = 0) -> str | None:
        """The name of the attachment that has just come, None if it is to be dropped; LookupError if none was due."""
        self._last_progress_at = self._last_completed_at = now
        self._partial_bytes = 0
        if self._overdue:
            self._overdue -= 1
            return None
        if not self.awaited:
            raise LookupError
        self._completed_bytes += size
        name, _ = self.awaited.popleft()
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
            self._last_progress_at, self._partial_bytes = now, size
        return self.is_wanted

    def restart_timers(self, now: float) -> None:
        """None could come until now: all times begin anew."""
        self._last_progress_at = self._last_completed_at = self._delay_started_at = now
        self.awaited = deque((name, now) for name, _ in self.awaited)
        self._delaying = dict.fromkeys(self._delaying, now)

    def mark_delaying(self, name: str, now: float) -> None:
        """Attachments of other senders wait for this one."""
        if self.awaited and int(name) >= int(self.awaited[0][0]):
            if not self._delaying:
                self._delay_started_at, self._received_at_delay_start = now, self._completed_bytes + self._partial_bytes
            self._delaying.setdefault(name, now)

    def deadline(self) -> float | None:
        """When the next one fails if nothing more comes until then."""
        if not self.awaited:
            return None
        due = min(self._next_deadlines())
        return min(due, *self._delaying_deadlines()) if self._delaying else due

    def _next_deadlines(self) -> tuple[float, float, float]:
        """When the next one fails, by each of its bounds: progress, rate and time."""
        announced_at, limits, rate = self.awaited[0][1], self._limits, self._limits.min_attachment_rate
        timeout, begun_at = limits.attachment_timeout, max(announced_at, self._last_completed_at)
        return (
            max(begun_at, self._last_progress_at) + timeout,
            begun_at + timeout + self._partial_bytes / rate if rate else inf,
            announced_at + limits.max_attachment_time,
        )

    def _delaying_deadlines(self) -> tuple[float, float, float]:
        """The same for those that delay others."""
        limits, rate = self._limits, self._limits.min_attachment_rate
        # One whose bytes come behind those of a failed one has no time: that one must come first.
        hold = 0.0 if self._overdue or self._failed else limits.max_attachment_hold
        came = self._completed_bytes + self._partial_bytes - self._received_at_delay_start
        return (
            max(self._delay_started_at, self._last_progress_at) + hold,
            self._delay_started_at + hold + came / rate if rate else inf,
            next(iter(self._delaying.values())) + limits.max_attachment_delay,
        )

    def expire(self, now: float) -> list[tuple[str, str]]:
        """The names of those that fail by now, and why. Their slots stay in the queue."""
        late: list[tuple[str, str]] = []
        if self._delaying:
            dues = self._delaying_deadlines()
            if (due := min(dues)) <= now:
                why = self._delay_timeout_texts[dues.index(due)]
                late += [(name, why) for name in self._delaying]
                self._failed |= self._delaying.keys()
                self._delaying.clear()
        while self.awaited:
            dues = self._next_deadlines()
            if (due := min(dues)) > now:
                break
            name, _ = self.awaited.popleft()
            self._overdue += 1
            self._partial_bytes = 0
            if not self._forget(name):
                late.append((name, self._timeout_texts[dues.index(due)]))
        return late


class OutgoingAttachments(Generic[Frame]):
    """Attachments that we announced; each goes out when it is there and all before it have gone."""

    def __init__(self) -> None:
        self._announced: deque[str] = deque()
        self._awaited: set[str] = set()
        self._ready: dict[str, Frame] = {}

    def __len__(self) -> int:
        return len(self._announced)

    @property
    def blocking_name(self) -> str | None:
        """The one that all others wait for."""
        return self._announced[0] if self._announced else None

    def announce(self, names: tuple[str, ...]) -> None:
        """These will come, in this order; `can_announce` must hold."""
        self._announced.extend(names)
        self._awaited.update(names)

    def can_announce(self, names: tuple[str, ...]) -> bool:
        """Whether each of these can be told from all that are owed already, and from each other."""
        owed = self._awaited | self._ready.keys()
        return len(set(names)) == len(names) and owed.isdisjoint(names)

    def complete(self, name: str, frame: Frame) -> list[Frame]:
        """It is there (or has failed): what can go out now, in order. LookupError if it was never announced."""
        if name not in self._awaited:
            raise LookupError(name)
        self._awaited.remove(name)
        self._ready[name] = frame
        sendable = []
        while self._announced and self._announced[0] in self._ready:
            sendable.append(self._ready.pop(self._announced.popleft()))
        return sendable
