"""The rules of a soak: memory must not grow, and descriptors and threads must stay constant."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SLOPE: Final = 0.1
"""Allowed growth of resident memory in MiB per minute, in a run of an hour or more."""
_HOUR: Final = 60.0
_MIN_MINUTES: Final = 3.0
"""Minutes after warm-up that a meaningful slope needs."""
_SPARE: Final = {"descriptors": 8.0, "threads": 2.0}
"""Allowed difference between the medians of the last third and of the first third."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements at one moment."""

    minute: float
    rss: float
    """Resident memory of the hub in MiB."""
    writer: float
    """Resident memory of the writer process in MiB."""
    descriptors: int
    threads: int
    sizes: dict[str, float] = field(default_factory=dict)
    """Gauges of `/metrics`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, and whether it holds."""

    text: str
    holds: bool

    def __str__(self) -> str:
        return f"{'pass' if self.holds else 'FAIL'}  {self.text}"


def warm_up(minutes: float) -> float:
    """Return the minutes of warm-up: a fifth of the run, at least five minutes, at most half of the run."""
    return min(max(5.0, minutes * 0.2), minutes / 2)


def slope_bound(minutes: float) -> float:
    """Return the allowed growth in MiB per minute; shorter runs have more noise."""
    return SLOPE * max(1.0, _HOUR / minutes)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all points (Theil-Sen), which is robust against outliers."""
    slopes = [
        (there[1] - here[1]) / (there[0] - here[0])
        for number, here in enumerate(points)
        for there in points[number + 1 :]
        if there[0] > here[0]
    ]
    return median(slopes) if slopes else 0.0


def judge(samples: Sequence[Sample], minutes: float) -> list[Rule]:
    """Apply the rules to the samples after warm-up."""
    judged = [sample for sample in samples if sample.minute >= warm_up(minutes)]
    if len(judged) < 3:
        return [Rule("there are samples after warm-up", holds=False)]
    rules = []
    if judged[-1].minute - judged[0].minute >= _MIN_MINUTES:
        bound = slope_bound(minutes)
        for name, points in (
            ("hub", [(sample.minute, sample.rss) for sample in judged]),
            ("journal writer", [(sample.minute, sample.writer) for sample in judged]),
        ):
            growth = slope(points)
            rules.append(Rule(f"RSS of the {name}: {growth:+.3f} MiB/min, below {bound:.2f}", holds=growth < bound))
    for name in ("descriptors", "threads"):
        numbers = [float(getattr(sample, name)) for sample in judged]
        third = max(1, len(numbers) // 3)
        first, last = median(numbers[:third]), median(numbers[-third:])
        text = f"{name}: {first:g} in the first third, {last:g} in the last"
        rules.append(Rule(text, holds=last - first <= max(_SPARE[name], first * 0.1)))
    return rules


def at_rest(before: Sample, after: Sample, bounds: dict[str, float]) -> list[Rule]:
    """Compare a hub without peers before and after the traffic; `bounds` has the allowed growth of each gauge."""
    rules = [
        Rule(f"{name} at rest: {before.sizes.get(name, 0):g} before, {after.sizes.get(name, 0):g} after", holds=holds)
        for name, bound in bounds.items()
        for holds in [after.sizes.get(name, 0) - before.sizes.get(name, 0) <= bound]
    ]
    more = after.descriptors - before.descriptors
    text = f"descriptors at rest: {before.descriptors} before, {after.descriptors} after"
    return [*rules, Rule(text, holds=more <= _SPARE["descriptors"])]
