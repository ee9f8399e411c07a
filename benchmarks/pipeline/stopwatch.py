"""Duration and CPU time of a job, and the load of other processes meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from benchmarks.hub.results import DISTURBED, Sample, Stopwatch

TRIES: Final = 2
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def timed(frames: int, run: Callable[[], None]) -> Sample:
    """Run a job once; the JVM and its workers are child processes, and count."""
    watch, cpu = Stopwatch(_children), process_time()
    started = perf_counter()
    run()
    seconds = perf_counter() - started
    children, others = watch.stop()
    return Sample(frames / seconds, (process_time() - cpu + children) / frames * 1e6, others=others)


def undisturbed(frames: int, run: Callable[[], None]) -> Sample:
    """Run a job; repeat it if other processes took much of the machine."""
    best = timed(frames, run)
    for _ in range(TRIES - 1):
        if best.others <= DISTURBED:
            break
        best = min(best, timed(frames, run), key=lambda sample: sample.others)
    return best


def _children() -> float:
    """Return the CPU seconds of all descendants of this process, including exited ones."""
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # the process has just exited
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = sum(map(int, fields[11:15])) / _TICKS
    return sum(time for pid, time in spent.items() if _descends(pid, parents))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    own = os.getpid()
    while pid in parents:
        pid = parents[pid]
        if pid == own:
            return True
    return False
