"""What a function that follows a topic gets."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from fiveways.app.attachments import Attachments
from fiveways.app.conversion import decode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """One publication."""

    topic: str
    """Segments joined by dots; a dot within a segment is `%2E`."""
    data: Any = None
    missed: int = 0
    """How many before this one were dropped, since they came faster than they were handled."""
    attached: Attachments = field(default_factory=Attachments, repr=False, compare=False)

    def decode(self, kind: type[T]) -> T:
        """Return the data as a type of yours: `event.decode(Reading)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> Attachments:
        """Return what came with it: `await` it for a list of bytes, or read one by one with `async for`."""
        return self.attached
