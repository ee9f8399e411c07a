"""Where attachments come from: memory, files, streams, and functions that make them."""

import asyncio
import io
import os
from collections.abc import AsyncIterable, Awaitable
from pathlib import Path
from typing import Final, TypeAlias

from fiveways.app.attachments import AttachmentError
from fiveways.app.values import MemoryBudget
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits

Attachable: TypeAlias = bytes | bytearray | memoryview | Path
"""What a user may attach: bytes, or the path of a file that is read while it is sent."""

BLOB_THRESHOLD: Final = 1 << 20
"""From here on an attachment goes out in pieces: others take a frame only up to a bound."""


class _MemoryBlob(Blob):
    """Many bytes that are at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        """Return a part of them."""
        return self._data[start : start + size]


class _FileBlob(Blob):
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


def load_content(given: Attachable) -> bytes | Blob:
    """Return what goes on the way; OSError if a file cannot be read.

    Raises:
        TypeError: neither bytes nor a Path.
    """
    if isinstance(given, Path):
        blob = _FileBlob(given)
        return blob if len(blob) > BLOB_THRESHOLD else blob.read(0, len(blob))
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"an attachment is bytes or a pathlib.Path, not {type(given).__name__}")
    data = bytes(given)
    return _MemoryBlob(data) if len(data) > BLOB_THRESHOLD else data


AttachmentSource: TypeAlias = Path | io.IOBase | Awaitable[bytes] | AsyncIterable[bytes] | AttachmentError
"""What an application may attach besides bytes: its answer leaves before that is read. An error stands for itself."""


class AttachmentReader:
    """One late attachment while it is read, within the limits."""

    def __init__(self, source: AttachmentSource, limits: Limits, budget: MemoryBudget) -> None:
        self._source = source
        self._limits = limits
        self._budget = budget
        self._held_bytes = 0

    async def read_all(self) -> bytes | Blob:
        """Return all of it; AttachmentError, or whatever the source raises, if that is impossible."""
        source, wait = self._source, self._limits.attachment_timeout
        try:
            if isinstance(source, AttachmentError):
                raise source
            if isinstance(source, AsyncIterable):
                return await self._read_stream(source)
            async with asyncio.timeout(wait):
                if isinstance(source, Path):
                    return self._check_size(await asyncio.to_thread(load_content, source))
                if isinstance(source, io.IOBase):
                    return self._check_size(await asyncio.to_thread(self._read_file, source))
                return self._check_size(await source)
        except TimeoutError:
            raise AttachmentError(f"no progress for {wait:g} seconds") from None

    def release(self) -> None:
        """Count what was read as gone."""
        self._budget.release(self._held_bytes)
        self._held_bytes = 0

    async def _read_stream(self, source: AsyncIterable[bytes]) -> bytes:
        data = bytearray()
        pieces = aiter(source)
        try:
            while True:
                async with asyncio.timeout(self._limits.attachment_timeout):
                    piece = await anext(pieces, None)
                if piece is None:
                    return bytes(data)
                data += self._reserve(_to_bytes(piece))
                self._check_size(data)
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()

    def _read_file(self, source: io.IOBase) -> bytes:
        with source:
            # One more than there may be shows that there are too many.
            return _to_bytes(getattr(source, "read")(self._limits.max_attachment + 1))  # noqa: B009  no IOBase has it

    def _check_size(self, data: object) -> bytes | Blob:
        found = data if isinstance(data, Blob) else _to_bytes(data)
        if len(found) > self._limits.max_attachment:
            raise AttachmentError(f"larger than {self._limits.max_attachment} bytes")
        return found if isinstance(found, Blob) or self._held_bytes else self._reserve(found)

    def _reserve(self, data: bytes) -> bytes:
        if not self._budget.acquire(len(data)):
            raise AttachmentError("too much waits to be sent")
        self._held_bytes += len(data)
        return data


def _to_bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise AttachmentError(f"an attachment is bytes, not {type(data).__name__}")
    return bytes(data)
