"""Random plan of a run, reproducible by its seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

MAX_STEPS: Final = 1_000_000
"""Maximum steps of a plan."""
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
"""Kinds of steps and their weights."""
_BURST_SHARE: Final = 0.02
"""Share of steps that begin a burst of calls."""
_MAX_BURST: Final = 20
_BURST_KINDS: Final = ("quick", "quick", "busy")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a plan."""

    at: float
    """Seconds after the start."""
    caller: int
    """Index of the caller."""
    kind: str
    service: str
    """The service to call, or the prefix of its topics."""
    number: int
    """Number of the step, which determines its arguments."""
    wait: float
    """Duration of a slow method, in seconds."""


def make_plan(seed: int, rate: float, seconds: float, callers: int, services: Sequence[str]) -> list[Step]:
    """Return about `rate` steps per second, ordered by time; at most `rate * seconds`."""
    random = Random(seed)  # noqa: S311  reproducible, not for security
    max_steps = min(MAX_STEPS, max(1, round(rate * seconds)))
    kinds, weights = list(KIND_WEIGHTS), list(KIND_WEIGHTS.values())
    steps: list[Step] = []
    while len(steps) < max_steps:
        at, caller = random.uniform(0.0, seconds), random.randrange(callers)
        service, wait = random.choice(services), random.uniform(0.05, 0.3)
        kind = random.choices(kinds, weights)[0]
        repetitions = 1
        if random.random() < _BURST_SHARE:
            repetitions, kind = random.randint(5, _MAX_BURST), random.choice(_BURST_KINDS)
        numbers = range(len(steps), min(max_steps, len(steps) + repetitions))
        steps += [Step(at, caller, kind, service, number, wait) for number in numbers]
    return sorted(steps, key=lambda step: (step.at, step.number))
