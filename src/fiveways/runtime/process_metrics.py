"""The hub's own process: what the system tells about it, and its garbage collector."""

import asyncio
import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_PROC_SELF: Final = Path("/proc/self")
_STARTED: Final = 19
"""The field of /proc/self/stat that says when it was started, counted from behind its name."""
_MIN_ENDED: Final = 4096
"""Ended sessions before a full collection, at least."""


class GarbageCollector:
    """Runs a full garbage collection for every so many ended sessions.

    A collection takes time in proportion to the open sessions, and finds at most what the ended ones have left. So
    one is due when as many sessions have ended as are open: its cost for each ended session stays the same.
    """

    def __init__(self, sessions: Callable[[], int]) -> None:
        """Begin; `sessions` returns how many are open."""
        self._sessions = sessions
        self._ended = 0
        # Objects that exist now stay. Messages leave no cycles, so that collections of young objects find little, and
        # those of all objects, which the interpreter runs by the number of new ones, would come too rarely.
        gc.freeze()
        gc.set_threshold(20_000, 50, 1_000_000)

    def count_ended(self, _peer: str) -> None:
        """Count a session that has ended."""
        self._ended += 1
        if self._ended >= max(_MIN_ENDED, self._sessions()):
            self._ended = 0
            asyncio.get_running_loop().call_soon(gc.collect)


def process_metrics() -> dict[str, float]:
    """Return them by the names that Prometheus has for them."""
    times = os.times()
    found = {"process_cpu_seconds_total": times.user + times.system}
    with suppress(OSError, ValueError, IndexError):  # no other system than Linux has these
        found |= dict(_linux_metrics())
    return found


def _linux_metrics() -> Iterator[tuple[str, float]]:
    pages = int((_PROC_SELF / "statm").read_text(encoding="ascii").split()[1])
    yield "process_resident_memory_bytes", pages * resource.getpagesize()
    yield "process_open_fds", len(os.listdir(_PROC_SELF / "fd"))  # noqa: PTH208  thousands of paths are much work
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_start_time_seconds", _started_at()


@cache
def _started_at() -> float:
    # The name stands in brackets and may hold blanks.
    ticks = int((_PROC_SELF / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_STARTED])
    return _booted_at() + ticks / os.sysconf("SC_CLK_TCK")


def _booted_at() -> float:
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
