"""Progress of the demo, for the views."""

import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from fiveways.demo.stats import PROTOCOLS, DemoStats

_HISTORY_SECONDS: Final = 30
"""Seconds of call rates to keep."""
_AVERAGE_SECONDS: Final = 3
"""Seconds for the average of a rate."""


class DemoStep(Enum):
    """The steps of a run, with their descriptions."""

    HUB = "starting the hub"
    TRAFFIC = "traffic"
    JOURNAL = "closing the journal"
    TABLES = "Spark builds tables"
    REPORT = "Spark builds the report"

    @property
    def label(self) -> str:
        """The step in one word."""
        return self.name.lower()


@dataclass(slots=True)
class DemoProgress:
    """The plan of a run, and its current state."""

    seconds: float
    """The approximate duration of the run."""
    steps: tuple[DemoStep, ...]
    started_at: float = field(default_factory=time.monotonic)
    step: DemoStep = DemoStep.HUB
    dashboard: str = ""
    spark_status: str = ""
    """The status of Spark; empty without Spark."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, as sentences."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_at


class CallRate:
    """Calls per second, from samples of the total counts."""

    def __init__(self, stats: DemoStats) -> None:
        self._stats = stats
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=_HISTORY_SECONDS + 1)

    def sample(self, now: float) -> None:
        """Record the current totals; to be called about once per second."""
        self._samples.append((now, {protocol: self._stats.calls_of(protocol) for protocol in PROTOCOLS}))

    def rate(self, protocol: str) -> float:
        """Return the recent calls per second of one protocol."""
        samples = list(self._samples)[-_AVERAGE_SECONDS - 1 :]
        if len(samples) < 2:
            return 0.0
        (first, before), (last, after) = samples[0], samples[-1]
        return (after[protocol] - before[protocol]) / max(last - first, 1e-3)

    def total_rate(self) -> float:
        """Return the recent calls per second of all protocols."""
        return sum(map(self.rate, PROTOCOLS))

    def history(self, protocol: str) -> list[float]:
        """Return the call rate between consecutive samples, oldest first."""
        samples = list(self._samples)
        return [
            (after[protocol] - before[protocol]) / max(last - first, 1e-3)
            for (first, before), (last, after) in pairwise(samples)
        ]
