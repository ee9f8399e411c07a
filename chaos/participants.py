"""The base of all participants, and what each of them reports in the end."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from chaos.hubs import HubAddress


@dataclass
class Report:
    """The result of one kind of participants."""

    kind: str
    figures: Counter[str] = field(default_factory=Counter)
    """Numbers for the outcome line, by their names."""
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, wrong, or refused by the hub."""
        return not (self.lost or self.doubled or self.wrong or self.failures)

    def __str__(self) -> str:
        faults = {"lost": self.lost, "doubled": self.doubled, "wrong": len(self.wrong), "failures": len(self.failures)}
        return f"{self.kind}: " + ", ".join(f"{name} {number}" for name, number in (self.figures | faults).items())


def merged(reports: Iterable[Report]) -> list[Report]:
    """Return one report for each kind, in the order of the first ones."""
    found: dict[str, Report] = {}
    for each in reports:
        total = found.setdefault(each.kind, Report(each.kind))
        for name, number in each.figures.items():
            total.figures[name] += number
        total.lost += each.lost
        total.doubled += each.doubled
        total.wrong += each.wrong
        total.failures += each.failures
    return list(found.values())


class Participant(ABC):
    """A program that talks to the hub from the first start to the end of the run."""

    is_background = False
    """Whether it runs until it is cancelled, because others need it, and has no work of its own to complete."""

    def __init__(self, hub: HubAddress, random: Random) -> None:
        self.hub = hub
        self.random = random
        self.finishing = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Work until `finish` was called and all is complete; in the background until it is cancelled."""

    def __str__(self) -> str:
        return type(self).__name__

    def finish(self) -> None:
        """Begin nothing new, and complete the rest: the hub is not killed any more."""
        self.finishing.set()

    @property
    def is_finishing(self) -> bool:
        """Whether nothing new is to begin."""
        return self.finishing.is_set()

    @abstractmethod
    def report(self) -> Report:
        """Return the result."""
