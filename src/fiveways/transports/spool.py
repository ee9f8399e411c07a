"""Large and late attachments wait on disk, in files without a name."""

import errno
import os
import tempfile
from collections import Counter
from typing import BinaryIO, TypeAlias

from fiveways.transports.address import network_address
from fiveways.wire.blob import Blob


class DiskSpools:
    """Makes spools in `folder`, or where temporary files usually are, and bounds what they hold together."""

    def __init__(self, max_bytes: int, max_each: int, folder: str | None = None, share: float = 1.0) -> None:
        """Make it; the spools of one address may hold this part of `max_bytes`."""
        self._max_bytes = max_bytes
        self._max_per_address = int(max_bytes * share)
        self._max_each = max_each
        self._folder = folder
        self.used = 0
        self._by_address = Counter[str]()

    def for_remote(self, remote: str) -> "AddressSpools":
        """Return the spools of one connection; `remote` is where its other end is."""
        return AddressSpools(self, network_address(remote))

    def open(self, address: str = "") -> "DiskSpool":
        """Return an empty spool; where no file can be made, one that takes nothing."""
        try:
            return DiskSpool(self, tempfile.TemporaryFile(dir=self._folder, buffering=0), address)
        except OSError:
            return DiskSpool(self, None, address)

    def store(self, data: bytes, address: str = "") -> Blob:
        """Put all of it away at once."""
        spool = self.open(address)
        spool.write(data)
        return spool.finish()

    def refusal(self, held: int, more: int, address: str) -> str | None:
        """Return why a spool that holds so much cannot take more, if so."""
        if held + more > self._max_each:
            return f"larger than {self._max_each} bytes"
        if self.used + more > self._max_bytes:
            return "no room is left for attachments"
        if self._by_address[address] + more > self._max_per_address:
            return f"no room is left for attachments of {address}"
        return None

    def count(self, more: int, address: str) -> None:
        """Count so many bytes more, or fewer."""
        self.used += more
        self._by_address[address] += more
        if not self._by_address[address]:
            del self._by_address[address]


class AddressSpools:
    """The spools of one address."""

    __slots__ = ("_address", "_spools")

    def __init__(self, spools: DiskSpools, address: str) -> None:
        self._spools = spools
        self._address = address

    def open(self) -> "DiskSpool":
        """Return an empty spool."""
        return self._spools.open(self._address)

    def store(self, data: bytes) -> Blob:
        """Put all of it away at once."""
        return self._spools.store(data, self._address)


AttachmentSpools: TypeAlias = DiskSpools | AddressSpools


class DiskSpool:
    """One attachment while it is written. Its room is given back with the blob, or with the spool if it never ends."""

    def __init__(self, spools: DiskSpools, file: BinaryIO | None, address: str) -> None:
        self._spools = spools
        self._file = file
        self._address = address
        self._size = 0
        self._held = 0
        self._error = None if file is not None else "no file could be made for it"

    def write(self, piece: bytes) -> None:
        """Append, or count what finds no room."""
        self._size += len(piece)
        if self._file is None:
            return
        self._error = self._spools.refusal(self._held, len(piece), self._address) or self._written(self._file, piece)
        if self._error is not None:
            self._release()

    def _written(self, file: BinaryIO, piece: bytes) -> str | None:
        view = memoryview(piece)
        try:
            while view:
                view = view[file.write(view) :]
        except OSError as exc:
            return "no room is left on disk" if exc.errno == errno.ENOSPC else "it could not be kept on disk"
        self._held += len(piece)
        self._spools.count(len(piece), self._address)
        return None

    def finish(self) -> Blob:
        """Return what was written; the spool is not used any more."""
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
    """One attachment on disk; several receivers may read it, each at its own pace."""

    def __init__(self, spools: DiskSpools, file: BinaryIO | None, address: str, size: int, error: str | None) -> None:
        self._spools = spools
        self._file = file
        self._address = address
        self._size = size
        self.error = error

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """Return the bytes from `start` on."""
        if self._file is None:
            raise OSError(self.error)
        return os.pread(self._file.fileno(), size, start)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()
            self._spools.count(-self._size, self._address)
