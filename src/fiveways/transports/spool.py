"""Spools for large and delayed attachments on disk, in unnamed temporary files."""

import errno
import os
import tempfile
from collections import Counter
from typing import BinaryIO, TypeAlias

from fiveways.transports.address import network_address
from fiveways.wire.blob import Blob


class DiskSpools:
    """Spools in `folder`, or in the system's temporary directory, with common size limits."""

    def __init__(self, max_bytes: int, max_attachment: int, folder: str | None = None, share: float = 1.0) -> None:
        """Initialize. The spools of one address may use the part `share` of `max_bytes`."""
        self._max_bytes = max_bytes
        self._max_per_address = int(max_bytes * share)
        self._max_attachment = max_attachment
        self._folder = folder
        self.used = 0
        self._by_address = Counter[str]()

    def for_remote(self, remote: str) -> "AddressSpools":
        """Return the spools of the connection with this peer address."""
        return AddressSpools(self, network_address(remote))

    def open(self, address: str = "") -> "DiskSpool":
        """Return an empty spool. If no file can be created, it rejects all data."""
        try:
            return DiskSpool(self, tempfile.TemporaryFile(dir=self._folder, buffering=0), address)
        except OSError:
            return DiskSpool(self, None, address)

    def store(self, data: bytes, address: str = "") -> Blob:
        """Write data to a new spool and return its blob."""
        spool = self.open(address)
        spool.write(data)
        return spool.finish()

    def refusal(self, stored: int, more: int, address: str) -> str | None:
        """Return the reason why a spool with `stored` bytes cannot take `more` bytes, or None."""
        if stored + more > self._max_attachment:
            return f"larger than {self._max_attachment} bytes"
        if self.used + more > self._max_bytes:
            return "the limit for attachments on disk is reached"
        if self._by_address[address] + more > self._max_per_address:
            return f"the limit for attachments on disk is reached for {address}"
        return None

    def count(self, more: int, address: str) -> None:
        """Add `more` bytes, which may be negative, to the usage."""
        self.used += more
        self._by_address[address] += more
        if not self._by_address[address]:
            del self._by_address[address]


class AddressSpools:
    """Spools of one address."""

    __slots__ = ("_address", "_spools")

    def __init__(self, spools: DiskSpools, address: str) -> None:
        self._spools = spools
        self._address = address

    def open(self) -> "DiskSpool":
        """Return an empty spool."""
        return self._spools.open(self._address)

    def store(self, data: bytes) -> Blob:
        """Write data to a new spool and return its blob."""
        return self._spools.store(data, self._address)


AttachmentSpools: TypeAlias = DiskSpools | AddressSpools


class DiskSpool:
    """Spool for one attachment. Its space is released with the blob, or with the spool if it is never finished."""

    def __init__(self, spools: DiskSpools, file: BinaryIO | None, address: str) -> None:
        self._spools = spools
        self._file = file
        self._address = address
        self._size = 0
        self._held = 0
        self._error = None if file is not None else "cannot create a temporary file"

    def write(self, piece: bytes) -> None:
        """Append data; after an error, only count its size."""
        self._size += len(piece)
        if self._file is None:
            return
        self._error = self._spools.refusal(self._held, len(piece), self._address) or self._write_to(self._file, piece)
        if self._error is not None:
            self._release()

    def _write_to(self, file: BinaryIO, piece: bytes) -> str | None:
        view = memoryview(piece)
        try:
            while view:
                view = view[file.write(view) :]
        except OSError as exc:
            return "the disk is full" if exc.errno == errno.ENOSPC else "cannot write it to disk"
        self._held += len(piece)
        self._spools.count(len(piece), self._address)
        return None

    def finish(self) -> Blob:
        """Return the content as a blob; the spool must not be used any more."""
        blob = DiskBlob(self._spools, self._file, self._address, self._size, self._error)
        self._file, self._held = None, 0
        return blob

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._held:
            self._spools.count(-self._held, self._address)
            self._held = 0

    def __del__(self) -> None:
        self._release()


class DiskBlob(Blob):
    """Attachment on disk. Several receivers may read it, each at its own pace."""

    def __init__(self, spools: DiskSpools, file: BinaryIO | None, address: str, size: int, error: str | None) -> None:
        self._spools = spools
        self._file = file
        self._address = address
        self._size = size
        self.error = error

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start` on."""
        if self._file is None:
            raise OSError(self.error)
        return os.pread(self._file.fileno(), size, start)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()
            self._spools.count(-self._size, self._address)
