"""Events of topics."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from fiveways.app.attachments import Attachments
from fiveways.app.conversion import decode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a topic."""

    topic: str
    """Topic with dots between its segments; a dot within a segment is `%2E`."""
    data: Any = None
    missed: int = 0
    """Events that were dropped before this one because the reader was too slow."""
    attached: Attachments = field(default_factory=Attachments, repr=False, compare=False)

    def decode(self, kind: type[T]) -> T:
        """Return the data converted to a type: `event.decode(Reading)`.

        Raises:
            BadValue: the data does not fit.
            TypeError: no value can be converted to this type.
        """
        return decode(self.data, kind)

    def attachments(self) -> Attachments:
        """Return the attachments of the event: `await` them for a list of bytes, or read them with `async for`."""
        return self.attached
