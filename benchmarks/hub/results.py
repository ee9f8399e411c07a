"""Samples of measurements, and the tables that show them."""

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
"""A measurement is repeated if other processes took more than this fraction of the machine."""
_CORES: Final = os.cpu_count() or 1


@dataclass(frozen=True)
class Sample:
    """One measurement of one contestant."""

    rate: float
    """Operations per second."""
    cpu: float
    """CPU seconds of the router per million operations."""
    p50: float = 0.0
    """Microseconds from call to response."""
    p99: float = 0.0
    ends: float = 0.0
    """CPU seconds of caller and callee per million operations, if these are measured."""
    others: float = 0.0
    """Fraction of the machine that other processes took, from 0 to 1."""


class Stopwatch:
    """CPU time of a router, and of other processes on the machine."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self._start = self._now()

    def stop(self) -> tuple[float, float]:
        """Return the router's CPU seconds since the start, and the fraction of the machine that others took."""
        wall, busy, own, cpu = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return cpu, max(0.0, busy - own - cpu) / (wall * _CORES)

    def _now(self) -> tuple[float, float, float, float]:
        # User, nice, system and steal time. Interrupts are left out: they are mostly our own packets.
        times = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = process_time() + children.ru_utime + children.ru_stime
        return perf_counter(), (sum(times[:3]) + times[7]) / _TICKS, own, self._cpu()


@dataclass
class Table:
    """Samples of several contestants per round, and the reference for ratios."""

    title: str
    unit: str
    reference: str
    _samples: dict[str, dict[int, Sample]] = field(default_factory=dict)

    def add(self, name: str, turn: int, sample: Sample) -> None:
        """Add a sample."""
        self._samples.setdefault(name, {})[turn] = sample

    def all(self) -> list[Sample]:
        """Return the samples of all contestants."""
        return [sample for samples in self._samples.values() for sample in samples.values()]

    def ratios(self, name: str, beside: str, of: Callable[[Sample], float]) -> list[float]:
        """Return one contestant's values divided by another's, for each round that has both."""
        ours, theirs = self._samples.get(name, {}), self._samples.get(beside, {})
        return [of(ours[turn]) / of(theirs[turn]) for turn in ours if turn in theirs and of(theirs[turn])]

    def __str__(self) -> str:
        has_latencies = any(sample.p50 for sample in self.all())
        has_ends = any(sample.ends for sample in self.all())
        head = f"{self.title:32} {self.unit:>12} {'spread':>7} {'CPU-s/M':>8}"
        head += f" {'of ends':>8}" * has_ends + f" {'p50 us':>8} {'p99 us':>8}" * has_latencies
        head += f" {'x ' + self.reference:>10} {'spread':>7}"
        rows = (self._row(name, has_latencies=has_latencies, has_ends=has_ends) for name in self._samples)
        return "\n".join([head, *rows])

    def _row(self, name: str, *, has_latencies: bool, has_ends: bool) -> str:
        samples = list(self._samples[name].values())
        rates = [sample.rate for sample in samples]
        row = f"  {name:30} {median(rates):12,.0f} {spread(rates):7.0%} {median(sample.cpu for sample in samples):8.2f}"
        if has_ends:
            row += f" {median(sample.ends for sample in samples):8.2f}"
        if has_latencies:
            row += f" {median(sample.p50 for sample in samples):8.0f} {median(sample.p99 for sample in samples):8.0f}"
        if ratios := self.ratios(name, self.reference, lambda sample: sample.rate):
            row += f" {median(ratios):10.2f} {spread(ratios):7.0%}"
        return row


def spread(values: Sequence[float]) -> float:
    """Return the interquartile range as a fraction of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
