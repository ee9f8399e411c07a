"""Sources of attachments: bytes, files, streams and functions."""

import asyncio
import io
import os
from collections.abc import AsyncIterable, Awaitable
from pathlib import Path
from typing import Final, TypeAlias

from fiveways.app.attachments import AttachmentError
from fiveways.app.memory_budget import MemoryBudget
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits

Attachable: TypeAlias = bytes | bytearray | memoryview | Path
"""Attachment of a request: bytes, or the path of a file that is read while it is sent."""

BLOB_THRESHOLD: Final = 1 << 20
"""Larger attachments are sent in fragments, because peers limit the size of a frame."""


class _MemoryBlob(Blob):
    """A large attachment in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        """Return a part of the bytes."""
        return self._data[start : start + size]


class _FileBlob(Blob):
    """A file of the user, open until it is sent."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """Return a part of the file; OSError if it was truncated since it was opened."""
        chunk = os.pread(self._file.fileno(), min(size, self._size - start), start)
        if not chunk and start < self._size:
            raise OSError("the file was truncated while it was sent")
        return chunk

    def __del__(self) -> None:
        # Missing if the file could not be opened.
        if (file := getattr(self, "_file", None)) is not None:
            file.close()


def load_content(source: Attachable) -> bytes | Blob:
    """Return the content of an attachment.

    Raises:
        OSError: a file cannot be read.
        TypeError: the attachment is neither bytes nor a Path.
    """
    if isinstance(source, Path):
        blob = _FileBlob(source)
        return blob if len(blob) > BLOB_THRESHOLD else blob.read(0, len(blob))
    if not isinstance(source, bytes | bytearray | memoryview):
        raise TypeError(f"an attachment must be bytes or a pathlib.Path, not {type(source).__name__}")
    data = bytes(source)
    return _MemoryBlob(data) if len(data) > BLOB_THRESHOLD else data


AttachmentSource: TypeAlias = Path | io.IOBase | Awaitable[bytes] | AsyncIterable[bytes] | AttachmentError
"""Attachment of a result that is read after the response was sent. An error fails the attachment."""


class AttachmentReader:
    """Reads one late attachment within the limits."""

    def __init__(self, source: AttachmentSource, limits: Limits, budget: MemoryBudget) -> None:
        self._source = source
        self._limits = limits
        self._budget = budget
        self._held_bytes = 0

    async def read_all(self) -> bytes | Blob:
        """Return the content; AttachmentError, or any exception of the source, if that is impossible."""
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
        """Return the bytes that were read to the budget."""
        self._budget.release(self._held_bytes)
        self._held_bytes = 0

    async def _read_stream(self, source: AsyncIterable[bytes]) -> bytes:
        data = bytearray()
        chunks = aiter(source)
        try:
            while True:
                async with asyncio.timeout(self._limits.attachment_timeout):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return bytes(data)
                data += self._reserve(_to_bytes(chunk))
                self._check_size(data)
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()

    def _read_file(self, source: io.IOBase) -> bytes:
        with source:
            # One byte more than the limit reveals a file that is too large.
            return _to_bytes(getattr(source, "read")(self._limits.max_attachment + 1))  # noqa: B009  IOBase does not declare it

    def _check_size(self, data: object) -> bytes | Blob:
        content = data if isinstance(data, Blob) else _to_bytes(data)
        if len(content) > self._limits.max_attachment:
            raise AttachmentError(f"larger than {self._limits.max_attachment} bytes")
        return content if isinstance(content, Blob) or self._held_bytes else self._reserve(content)

    def _reserve(self, data: bytes) -> bytes:
        if not self._budget.acquire(len(data)):
            raise AttachmentError("too many bytes of attachments wait to be sent")
        self._held_bytes += len(data)
        return data


def _to_bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise AttachmentError(f"an attachment must be bytes, not {type(data).__name__}")
    return bytes(data)
