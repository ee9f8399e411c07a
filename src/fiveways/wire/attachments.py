"""Attachments in separate binary frames after their message: one first-in-first-out queue per direction.

The frames carry no identifier: only their order assigns them. An announced slot therefore leaves the queue only with
its own frame, even if the attachment failed or is not wanted: the queue must not shift.
"""

from collections import deque
from math import inf
from typing import Generic, TypeVar

from fiveways.wire.limits import Limits

Frame = TypeVar("Frame")


class IncomingAttachments:
    """Attachments that the peer announced and has not sent completely. Each fails when one of its limits is exceeded.

    The limits are a time without progress, a minimum rate and a total time. An attachment that delays those of other
    senders has a shorter time without progress.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        too_slow = f"timed out: slower than {limits.min_attachment_rate} bytes a second"
        self._timeout_texts = (
            "timed out",
            too_slow,
            f"timed out: not complete after {limits.max_attachment_time:g} seconds",
        )
        delayed = "timed out: it delayed attachments of other senders"
        self._delay_timeout_texts = delayed, too_slow, f"{delayed} for {limits.max_attachment_delay:g} seconds"
        self.awaited: deque[tuple[str, float]] = deque()
        """Attachments before their deadline: name, and time of the announcement."""
        self._overdue = 0
        self._unwanted: set[str] = set()
        self._failed: set[str] = set()
        """Announced attachments that failed because they delayed others."""
        self._delaying: dict[str, float] = {}
        """Attachments that delay others, in this order, and since when."""
        self._delay_started_at = 0.0
        """Start of the current delay."""
        self._received_at_delay_start = 0
        """Bytes received until then."""
        self._last_number = 0
        self._last_completed_at = 0.0
        """Time of the last completed attachment; the limits of the next one count from then."""
        self._last_progress_at = 0.0
        self._partial_bytes = 0
        """Received bytes of the next attachment."""
        self._completed_bytes = 0
        """Received bytes of all complete attachments."""

    def __len__(self) -> int:
        return self._overdue + len(self.awaited)

    @property
    def is_wanted(self) -> bool:
        """Whether a receiver needs the next attachment."""
        if self._overdue or not self.awaited:
            return False
        name = self.awaited[0][0]
        return name not in self._unwanted and name not in self._failed

    def announce(self, count: int, now: float) -> tuple[str, ...]:
        """Announce `count` attachments, and return the names that they get."""
        first = self._last_number + 1
        self._last_number += count
        names = tuple(map(str, range(first, first + count)))
        self.awaited.extend((name, now) for name in names)
        return names

    def ignore(self, names: tuple[str, ...]) -> None:
        """Mark attachments as unwanted: their frames are still expected, and dropped."""
        self._unwanted.update(names)

    def take(self, now: float, size: int = 0) -> str | None:
        """Return the name of the attachment that has arrived, or None to drop it; LookupError if none was announced."""
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
        """Forget an attachment that leaves `awaited`; return whether no receiver needs it."""
        if not (self._delaying or self._unwanted or self._failed):
            return False
        self._delaying.pop(name, None)
        is_unwanted = name in self._unwanted or name in self._failed
        self._unwanted.discard(name)
        self._failed.discard(name)
        return is_unwanted

    def progress(self, now: float, size: int) -> bool:
        """Handle progress of the next attachment to `size` bytes; return whether a receiver needs it."""
        if not self._overdue:  # else these bytes belong to a failed attachment
            self._last_progress_at, self._partial_bytes = now, size
        return self.is_wanted

    def restart_timers(self, now: float) -> None:
        """Restart all timers, because nothing could arrive until now."""
        self._last_progress_at = self._last_completed_at = self._delay_started_at = now
        self.awaited = deque((name, now) for name, _ in self.awaited)
        self._delaying = dict.fromkeys(self._delaying, now)

    def mark_delaying(self, name: str, now: float) -> None:
        """Mark an attachment that delays those of other senders."""
        if self.awaited and int(name) >= int(self.awaited[0][0]):
            if not self._delaying:
                self._delay_started_at, self._received_at_delay_start = now, self._completed_bytes + self._partial_bytes
            self._delaying.setdefault(name, now)

    def deadline(self) -> float | None:
        """Return when the next attachment fails without further progress, or None."""
        if not self.awaited:
            return None
        deadline = min(self._next_deadlines())
        return min(deadline, *self._delaying_deadlines()) if self._delaying else deadline

    def _next_deadlines(self) -> tuple[float, float, float]:
        """Return the deadlines of the next attachment: progress, rate and total time."""
        announced_at, limits, rate = self.awaited[0][1], self._limits, self._limits.min_attachment_rate
        timeout, started_at = limits.attachment_timeout, max(announced_at, self._last_completed_at)
        return (
            max(started_at, self._last_progress_at) + timeout,
            started_at + timeout + self._partial_bytes / rate if rate else inf,
            announced_at + limits.max_attachment_time,
        )

    def _delaying_deadlines(self) -> tuple[float, float, float]:
        """Return the deadlines of attachments that delay others: progress, rate and total time."""
        limits, rate = self._limits, self._limits.min_attachment_rate
        # If the bytes of a failed attachment come first, this one has no time left.
        hold = 0.0 if self._overdue or self._failed else limits.max_attachment_hold
        received = self._completed_bytes + self._partial_bytes - self._received_at_delay_start
        return (
            max(self._delay_started_at, self._last_progress_at) + hold,
            self._delay_started_at + hold + received / rate if rate else inf,
            next(iter(self._delaying.values())) + limits.max_attachment_delay,
        )

    def expire(self, now: float) -> list[tuple[str, str]]:
        """Fail overdue attachments; return names and reasons. Their slots stay in the queue."""
        failed: list[tuple[str, str]] = []
        if self._delaying:
            deadlines = self._delaying_deadlines()
            if (deadline := min(deadlines)) <= now:
                reason = self._delay_timeout_texts[deadlines.index(deadline)]
                failed += [(name, reason) for name in self._delaying]
                self._failed |= self._delaying.keys()
                self._delaying.clear()
        while self.awaited:
            deadlines = self._next_deadlines()
            if (deadline := min(deadlines)) > now:
                break
            name, _ = self.awaited.popleft()
            self._overdue += 1
            self._partial_bytes = 0
            if not self._forget(name):
                failed.append((name, self._timeout_texts[deadlines.index(deadline)]))
        return failed


class OutgoingAttachments(Generic[Frame]):
    """Announced outgoing attachments. Each is sent when it and all before it are complete."""

    def __init__(self) -> None:
        self._announced: deque[str] = deque()
        self._awaited: set[str] = set()
        self._ready: dict[str, Frame] = {}

    def __len__(self) -> int:
        return len(self._announced)

    @property
    def blocking_name(self) -> str | None:
        """Name of the attachment that all others wait for, or None."""
        return self._announced[0] if self._announced else None

    def announce(self, names: tuple[str, ...]) -> None:
        """Announce attachments in this order; `can_announce` must be true."""
        self._announced.extend(names)
        self._awaited.update(names)

    def can_announce(self, names: tuple[str, ...]) -> bool:
        """Return whether these names are unique among each other and among all announced attachments."""
        announced = self._awaited | self._ready.keys()
        return len(set(names)) == len(names) and announced.isdisjoint(names)

    def complete(self, name: str, frame: Frame) -> list[Frame]:
        """Add a complete or failed attachment; return the frames to send, in order. LookupError if not announced."""
        if name not in self._awaited:
            raise LookupError(name)
        self._awaited.remove(name)
        self._ready[name] = frame
        sendable = []
        while self._announced and self._announced[0] in self._ready:
            sendable.append(self._ready.pop(self._announced.popleft()))
        return sendable
