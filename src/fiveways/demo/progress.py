"""How far the demo is, for those who show it."""

import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from fiveways.demo.stats import PROTOCOLS, DemoStats

_HISTORY_SECONDS: Final = 30
"""Seconds of which the pace is remembered."""
_AVERAGE_SECONDS: Final = 3
"""Seconds over which it is taken."""


class DemoStep(Enum):
    """What is done now, as it is told."""

    HUB = "starting the hub"
    TRAFFIC = "traffic"
    JOURNAL = "closing the journal"
    TABLES = "Spark makes tables"
    REPORT = "Spark's tables become a report"

    @property
    def label(self) -> str:
        """The same in a word."""
        return self.name.lower()


@dataclass(slots=True)
class DemoProgress:
    """The plan of one run, and where it stands."""

    seconds: float
    """How long all of it takes, about."""
    steps: tuple[DemoStep, ...]
    started_at: float = field(default_factory=time.monotonic)
    step: DemoStep = DemoStep.HUB
    dashboard: str = ""
    spark_status: str = ""
    """What Spark does, in a word or two; nothing without it."""
    notes: list[str] = field(default_factory=list)
    """What is not as usual, in sentences."""

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started_at


class CallRate:
    """Calls a second, made from the ledger's totals."""

    def __init__(self, ledger: DemoStats) -> None:
        self._stats = ledger
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=_HISTORY_SECONDS + 1)

    def sample(self, now: float) -> None:
        """Take the totals, once a second or so."""
        self._samples.append((now, {protocol: self._stats.calls_of(protocol) for protocol in PROTOCOLS}))

    def rate(self, protocol: str) -> float:
        """Return how many calls a second one protocol made in the latest seconds."""
        samples = list(self._samples)[-_AVERAGE_SECONDS - 1 :]
        if len(samples) < 2:
            return 0.0
        (first, before), (last, after) = samples[0], samples[-1]
        return (after[protocol] - before[protocol]) / max(last - first, 1e-3)

    def total_rate(self) -> float:
        """Return how many all of them made."""
        return sum(map(self.rate, PROTOCOLS))

    def history(self, protocol: str) -> list[float]:
        """Return the pace from look to look, the latest at the end."""
        samples = list(self._samples)
        return [
            (after[protocol] - before[protocol]) / max(last - first, 1e-3)
            for (first, before), (last, after) in pairwise(samples)
        ]
