"""Return of free memory from the C library to the operating system."""

import ctypes
from contextlib import suppress


def release_memory() -> None:
    """Return free memory to the operating system, also below objects that are in use.

    This is a feature of glibc; with other C libraries the function does nothing.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
