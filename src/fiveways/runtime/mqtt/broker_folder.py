"""Temporary folders of brokers, which a killed hub leaves behind and the next one removes."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "fiveways-broker-"
_LOCK: Final = "lock"


class Home:
    """A temporary folder. Its lock ends with this process, however that ends."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.path: Final = Path(tempfile.mkdtemp(prefix=_PREFIX))
        made = self.path / ".lock"
        self._lock = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self.path / _LOCK)  # other hubs find it locked, or not at all

    def remove(self) -> None:
        """Delete the folder and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it has no lock yet, is in use, or belongs to another user
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
