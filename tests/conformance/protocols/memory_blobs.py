"""Blobs in memory for tests of large attachments."""

from fiveways.wire.blob import Blob


class FakeBlob(Blob):
    """A blob that counts the calls of `read`."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def __len__(self) -> int:
        return len(self.content)

    def read(self, start: int, size: int) -> bytes:
        self.reads += 1
        return self.content[start : start + size]


class HugeBlob(FakeBlob):
    """A blob that must not be read."""

    def __init__(self, size: int) -> None:
        super().__init__(b"")
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, start: int, size: int) -> bytes:
        raise AssertionError(f"read {size} bytes at {start}")


class LostBlob(HugeBlob):
    """A blob that cannot be read any more."""

    def read(self, start: int, size: int) -> bytes:
        raise OSError(f"no {size} bytes at {start}")
