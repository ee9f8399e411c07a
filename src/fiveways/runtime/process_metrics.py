"""Metrics of the hub's process that the operating system provides."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_PROC_SELF: Final = Path("/proc/self")
_START_TIME_INDEX: Final = 19
"""The index of the start time in /proc/self/stat, counted after the process name."""


def process_metrics() -> dict[str, float]:
    """Return process metrics by their Prometheus names."""
    times = os.times()
    metrics = {"process_cpu_seconds_total": times.user + times.system}
    with suppress(OSError, ValueError, IndexError):  # Linux only
        metrics |= dict(_linux_metrics())
    return metrics


def _linux_metrics() -> Iterator[tuple[str, float]]:
    pages = int((_PROC_SELF / "statm").read_text(encoding="ascii").split()[1])
    yield "process_resident_memory_bytes", pages * resource.getpagesize()
    yield "process_open_fds", len(os.listdir(_PROC_SELF / "fd"))  # noqa: PTH208  it makes no path objects for thousands of entries
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_start_time_seconds", _started_at()


@cache
def _started_at() -> float:
    # The process name is in parentheses and may contain spaces.
    ticks = int((_PROC_SELF / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_START_TIME_INDEX])
    return _booted_at() + ticks / os.sysconf("SC_CLK_TCK")


def _booted_at() -> float:
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
