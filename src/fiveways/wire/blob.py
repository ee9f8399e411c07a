"""Bytes that are too many to hold in memory."""

from abc import ABC, abstractmethod


class Blob(ABC):
    """The content of one large attachment, wherever it lies. Never changed; freed when nobody holds it any more."""

    error: str | None = None
    """Why it cannot be read, where it was too large or found no room."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, start: int, size: int) -> bytes:
        """Return the bytes from `start` on, `size` of them or as many as there are; OSError if they are lost."""

    def __bytes__(self) -> bytes:
        return self.read(0, len(self))
