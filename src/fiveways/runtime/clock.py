"""The clocks of the runtime, besides the event loop's own."""

import time
from functools import partial
from pathlib import Path
from typing import Final

steady_clock = time.monotonic
"""Return the time of the event loop's clock; uvloop's own rounds to milliseconds, too coarse for one call."""
wall_clock = time.time
"""Return Unix time in seconds."""
wall_clock_ns = time.time_ns
"""Return Unix time in ns."""
boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Return seconds of a clock that cannot be set and, on Linux, also counts while the machine is suspended."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of the machine's current boot, to which `boot_clock` belongs; empty if unknown."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
