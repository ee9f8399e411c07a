"""Attachments on their way: out of memory or files, and in, one by one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from fiveways.app.attached import AttachmentError, Attachments
from fiveways.model.messages import Attachment
from fiveways.wire.blob import Blob

Attachable: TypeAlias = bytes | bytearray | memoryview | Path
"""What a user may attach: bytes, or the path of a file that is read while it is sent."""

LARGE: Final = 1 << 20
"""From here on an attachment goes out in pieces: others take a frame only up to a bound."""


class _InMemory(Blob):
    """Many bytes that are at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        """Return a part of them."""
        return self._data[start : start + size]


class _OnDisk(Blob):
    """A file of the user's, which stays open until it is sent."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """Return a part of it; OSError if the file has become shorter meanwhile."""
        piece = os.pread(self._file.fileno(), min(size, self._size - start), start)
        if not piece and start < self._size:
            raise OSError("the file has become shorter while it was sent")
        return piece

    def __del__(self) -> None:
        # Not there if the file could not be opened.
        if (file := getattr(self, "_file", None)) is not None:
            file.close()


def content(given: Attachable) -> bytes | Blob:
    """Return what goes on the way; OSError if a file cannot be read.

    Raises:
        TypeError: neither bytes nor a Path.
    """
    if isinstance(given, Path):
        blob = _OnDisk(given)
        return blob if len(blob) > LARGE else blob.read(0, len(blob))
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"an attachment is bytes or a pathlib.Path, not {type(given).__name__}")
    data = bytes(given)
    return _InMemory(data) if len(data) > LARGE else data


class Arrivals:
    """The attachments that were announced to us and have not come; the conversation bounds how many these may be."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[Attachments, int]] = {}

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for what a message named."""
        attachments = Attachments(len(names))
        for index, name in enumerate(names):
            self._expected[name] = attachments, index
        return attachments

    def put(self, attachment: Attachment) -> bool:
        """Take one; say whether it was expected here."""
        place = self._expected.pop(attachment.name, None)
        if place is None:
            return False
        attachments, index = place
        attachments.put(index, attachment.data if attachment.error is None else AttachmentError(attachment.error))
        return True

    def fail_all(self, why: str) -> None:
        """Nothing more will come."""
        for name in list(self._expected):
            self.put(Attachment(name, error=why))
