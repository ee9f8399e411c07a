"""What the system tells about this very process; where it tells nothing, there is nothing."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_SELF: Final = Path("/proc/self")
_STARTED: Final = 19
"""The field of /proc/self/stat that says when it was started, counted from behind its name."""


def numbers() -> dict[str, float]:
    """Return them by the names that Prometheus has for them."""
    times = os.times()
    found = {"process_cpu_seconds_total": times.user + times.system}
    with suppress(OSError, ValueError, IndexError):  # no other system than Linux has these
        found |= dict(_of_linux())
    return found


def _of_linux() -> Iterator[tuple[str, float]]:
    pages = int((_SELF / "statm").read_text(encoding="ascii").split()[1])
    yield "process_resident_memory_bytes", pages * resource.getpagesize()
    yield "process_open_fds", len(os.listdir(_SELF / "fd"))  # noqa: PTH208  thousands of paths are much work
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_start_time_seconds", _started_at()


@cache
def _started_at() -> float:
    # The name stands in brackets and may hold blanks.
    ticks = int((_SELF / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_STARTED])
    return _booted_at() + ticks / os.sysconf("SC_CLK_TCK")


def _booted_at() -> float:
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
