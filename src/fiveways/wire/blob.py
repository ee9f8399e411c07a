"""Content that is too large to hold in memory."""

from abc import ABC, abstractmethod


class Blob(ABC):
    """Content of one large attachment. It is immutable and freed with its last reference."""

    error: str | None = None
    """Reason why it cannot be read: it was too large, or there was no space."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start` on; OSError if they are not available."""

    def __bytes__(self) -> bytes:
        return self.read(0, len(self))
