"""Who does what and when: the same for the same seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

MAX_STEPS: Final = 1_000_000
"""Steps of one plan."""
KIND_WEIGHTS: Final = {
    "quick": 40,
    "slow": 8,
    "failing": 8,
    "streaming": 6,
    "busy": 5,
    "impatient": 3,
    "cancelled": 3,
    "unknown": 3,
    "wrong": 3,
    "publication": 14,
    "flood": 3,
    "variable": 3,
    "discovery": 1,
    "callback": 1,
}
"""What is done, and how often beside the others."""
_BURST: Final = 0.02
"""The share of steps that begin a burst of calls."""
_LONGEST_BURST: Final = 20
_BURSTS: Final = ("quick", "quick", "busy")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    at: float
    """Seconds after the beginning."""
    caller: int
    """Which of the callers does it."""
    kind: str
    service: str
    """Whose method, or on whose topic."""
    number: int
    """Which step it is; its arguments are made from that."""
    wait: float
    """Seconds, where a method is to take its time."""


def make_plan(seed: int, rate: float, seconds: float, callers: int, services: Sequence[str]) -> list[Step]:
    """Return about `rate` steps for each second, in order of time; not one more than `rate * seconds`."""
    random = Random(seed)  # noqa: S311  it is to be repeated, not to be kept secret
    most = min(MAX_STEPS, max(1, round(rate * seconds)))
    kinds, weights = list(KIND_WEIGHTS), list(KIND_WEIGHTS.values())
    steps: list[Step] = []
    while len(steps) < most:
        at, caller = random.uniform(0.0, seconds), random.randrange(callers)
        service, wait = random.choice(services), random.uniform(0.05, 0.3)
        kind = random.choices(kinds, weights)[0]
        times = 1
        if random.random() < _BURST:
            times, kind = random.randint(5, _LONGEST_BURST), random.choice(_BURSTS)
        numbers = range(len(steps), min(most, len(steps) + times))
        steps += [Step(at, caller, kind, service, number, wait) for number in numbers]
    return sorted(steps, key=lambda step: (step.at, step.number))
