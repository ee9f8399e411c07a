"""The base class of all participants, and the report of each."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from chaos.hubs import HubAddress


@dataclass
class Report:
    """The result of one kind of participant."""

    kind: str
    figures: Counter[str] = field(default_factory=Counter)
    """Counts for the outcome line, by name."""
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether the report has no loss, duplicate, wrong result or hub error."""
        return not (self.lost or self.doubled or self.wrong or self.failures)

    def __str__(self) -> str:
        faults = {"lost": self.lost, "doubled": self.doubled, "wrong": len(self.wrong), "failures": len(self.failures)}
        return f"{self.kind}: " + ", ".join(f"{name} {number}" for name, number in (self.figures | faults).items())


def merged(reports: Iterable[Report]) -> list[Report]:
    """Return one report per kind, in the order of the first reports."""
    totals: dict[str, Report] = {}
    for report in reports:
        total = totals.setdefault(report.kind, Report(report.kind))
        for name, number in report.figures.items():
            total.figures[name] += number
        total.lost += report.lost
        total.doubled += report.doubled
        total.wrong += report.wrong
        total.failures += report.failures
    return list(totals.values())


class Participant(ABC):
    """A program that talks to the hub from the first start to the end of the run."""

    is_background = False
    """Whether it runs until it is cancelled, because other participants need it."""

    def __init__(self, hub: HubAddress, random: Random) -> None:
        self.hub = hub
        self.random = random
        self.finishing = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Work until `finish` was called and all is complete; background participants work until cancelled."""

    def __str__(self) -> str:
        return type(self).__name__

    def finish(self) -> None:
        """Start nothing new and complete the rest; the hub is not killed any more."""
        self.finishing.set()

    @property
    def is_finishing(self) -> bool:
        """Whether `finish` was called."""
        return self.finishing.is_set()

    @abstractmethod
    def report(self) -> Report:
        """Return the result."""
