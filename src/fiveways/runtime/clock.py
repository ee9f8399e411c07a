"""The one place where time is asked for, besides the event loop's own."""

import time
from functools import partial
from pathlib import Path
from typing import Final

steady_clock = time.monotonic
"""Return the seconds of the event loop's clock: uvloop tells them in whole milliseconds, too coarse for a call."""
wall_clock = time.time
"""Return the seconds since 1970."""
wall_clock_ns = time.time_ns
"""Return the ns since 1970."""
boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Return seconds that nobody can set, and that go on while the machine sleeps where the system can tell that."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return which start of the machine `boot_clock` counts from; empty if the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
