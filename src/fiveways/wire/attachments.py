"""Binary frames that belong to messages sent before them: one first-in-first-out queue per direction.

The frames carry no identifier, so their order is all there is. A slot, once announced, is never taken out of the queue
except by its own frame: whatever else happens, the queue must not shift.
"""

from collections import deque
from typing import Generic, TypeVar

Frame = TypeVar("Frame")


class Expected:
    """Attachments that the peer announced and has not sent yet."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.open: deque[tuple[str, float]] = deque()
        """Those that are not overdue: the name and when it was announced."""
        self._overdue = 0
        self._unwanted: set[str] = set()
        self._progress_at = 0.0
        self._announced = 0

    def __len__(self) -> int:
        return self._overdue + len(self.open)

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

    def take(self, now: float) -> str | None:
        """The name of the attachment that has just come, None if it is to be dropped; LookupError if none was due."""
        self._progress_at = now
        if self._overdue:
            self._overdue -= 1
            return None
        if not self.open:
            raise LookupError
        name, _ = self.open.popleft()
        if name in self._unwanted:
            self._unwanted.remove(name)
            return None
        return name

    def progress(self, now: float) -> None:
        """A part of the next one has come."""
        self._progress_at = now

    def deadline(self) -> float | None:
        """When the next one is overdue: counted from its announcement, or from the last sign of progress."""
        if not self.open:
            return None
        return max(self.open[0][1], self._progress_at) + self._timeout

    def expire(self, now: float) -> list[str]:
        """The names that are overdue by now. Their slots stay in the queue."""
        late = []
        while (deadline := self.deadline()) is not None and deadline <= now:
            name, _ = self.open.popleft()
            self._overdue += 1
            if name in self._unwanted:
                self._unwanted.remove(name)
            else:
                late.append(name)
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
