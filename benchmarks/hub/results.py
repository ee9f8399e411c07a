"""What was measured, and how it is shown."""

import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
DISTURBED: Final = 0.1
"""A measurement is repeated if others took more than this part of the machine."""
_CORES: Final = os.cpu_count() or 1


@dataclass(frozen=True)
class Sample:
    """One measurement of one contestant."""

    rate: float
    """Operations in a second."""
    cpu: float
    """Seconds of the router's processor time for a million operations."""
    p50: float = 0.0
    """Microseconds from call to answer."""
    p99: float = 0.0
    ends: float = 0.0
    """Seconds of processor time, for a million operations, of caller and callee, where these are what is measured."""
    others: float = 0.0
    """How much of the machine was taken by what does not belong to the measurement, from 0 to 1."""


class Stopwatch:
    """Processor time of a router, and of what else runs on the machine."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self._start = self._now()

    def stop(self) -> tuple[float, float]:
        """Return the router's seconds since the start, and the share of the machine that others took."""
        wall, busy, mine, cpu = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return cpu, max(0.0, busy - mine - cpu) / (wall * _CORES)

    def _now(self) -> tuple[float, float, float, float]:
        # user, nice and system time, and what the machine's host took away; interrupts are mostly our own packets.
        times = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        mine = process_time() + ended.ru_utime + ended.ru_stime
        return perf_counter(), (sum(times[:3]) + times[7]) / _TICKS, mine, self._cpu()


@dataclass
class Table:
    """Samples of several contestants, round by round, and the one that the others are compared with."""

    title: str
    unit: str
    reference: str
    _samples: dict[str, dict[int, Sample]] = field(default_factory=dict)

    def add(self, name: str, turn: int, sample: Sample) -> None:
        """Keep a sample."""
        self._samples.setdefault(name, {})[turn] = sample

    def all(self) -> list[Sample]:
        """Return everybody's samples."""
        return [sample for samples in self._samples.values() for sample in samples.values()]

    def ratios(self, name: str, beside: str, of: Callable[[Sample], float]) -> list[float]:
        """Return one contestant's numbers divided by another's, for each round that has both."""
        ours, theirs = self._samples.get(name, {}), self._samples.get(beside, {})
        return [of(ours[turn]) / of(theirs[turn]) for turn in ours if turn in theirs and of(theirs[turn])]

    def __str__(self) -> str:
        has_waits = any(sample.p50 for sample in self.all())
        has_ends = any(sample.ends for sample in self.all())
        head = f"{self.title:32} {self.unit:>12} {'spread':>7} {'CPU-s/M':>8}"
        head += f" {'of ends':>8}" * has_ends + f" {'p50 us':>8} {'p99 us':>8}" * has_waits
        head += f" {'x ' + self.reference:>10} {'spread':>7}"
        rows = (self._row(name, has_waits=has_waits, has_ends=has_ends) for name in self._samples)
        return "\n".join([head, *rows])

    def _row(self, name: str, *, has_waits: bool, has_ends: bool) -> str:
        samples = list(self._samples[name].values())
        rates = [each.rate for each in samples]
        row = f"  {name:30} {median(rates):12,.0f} {spread(rates):7.0%} {median(each.cpu for each in samples):8.2f}"
        if has_ends:
            row += f" {median(each.ends for each in samples):8.2f}"
        if has_waits:
            row += f" {median(each.p50 for each in samples):8.0f} {median(each.p99 for each in samples):8.0f}"
        if ratios := self.ratios(name, self.reference, lambda sample: sample.rate):
            row += f" {median(ratios):10.2f} {spread(ratios):7.0%}"
        return row


def spread(values: Sequence[float]) -> float:
    """Return the distance between the quartiles, as a part of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
