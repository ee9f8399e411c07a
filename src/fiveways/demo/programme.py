"""How far the demo is, for those who show it."""

import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from fiveways.demo.ledger import PROTOCOLS, Ledger

_KEPT: Final = 30
"""Seconds of which the pace is remembered."""
_OVER: Final = 3
"""Seconds over which it is taken."""


class Step(Enum):
    """What is done now, as it is told."""

    HUB = "starting the hub"
    TRAFFIC = "traffic"
    JOURNAL = "closing the journal"
    TABLES = "Spark makes tables"
    REPORT = "Spark's tables become a report"

    @property
    def short(self) -> str:
        """The same in a word."""
        return self.name.lower()


@dataclass(slots=True)
class Programme:
    """The plan of one run, and where it stands."""

    seconds: float
    """How long all of it takes, about."""
    steps: tuple[Step, ...]
    began_at: float = field(default_factory=time.monotonic)
    step: Step = Step.HUB
    dashboard: str = ""
    spark: str = ""
    """What Spark does, in a word or two; nothing without it."""
    notes: list[str] = field(default_factory=list)
    """What is not as usual, in sentences."""

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began_at


class Pace:
    """Calls a second, made from the ledger's totals."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=_KEPT + 1)

    def look(self, now: float) -> None:
        """Take the totals, once a second or so."""
        self._samples.append((now, {protocol: self._ledger.calls_of(protocol) for protocol in PROTOCOLS}))

    def rate(self, protocol: str) -> float:
        """Return how many calls a second one protocol made in the latest seconds."""
        samples = list(self._samples)[-_OVER - 1 :]
        if len(samples) < 2:
            return 0.0
        (first, before), (last, after) = samples[0], samples[-1]
        return (after[protocol] - before[protocol]) / max(last - first, 1e-3)

    def total(self) -> float:
        """Return how many all of them made."""
        return sum(map(self.rate, PROTOCOLS))

    def history(self, protocol: str) -> list[float]:
        """Return the pace from look to look, the latest at the end."""
        samples = list(self._samples)
        return [
            (after[protocol] - before[protocol]) / max(last - first, 1e-3)
            for (first, before), (last, after) in pairwise(samples)
        ]
