"""The rules of a soak: memory that does not grow, and as many descriptors and threads as before."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SLOPE: Final = 0.1
"""MiB per minute by which resident memory may grow in a run of an hour or more."""
_HOUR: Final = 60.0
_LEAST: Final = 3.0
"""Minutes after warm-up below which a slope says nothing."""
_SPARE: Final = {"descriptors": 8.0, "threads": 2.0}
"""By how much the median of the last third may exceed that of the first."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements of one moment."""

    minute: float
    rss: float
    """MiB of the hub."""
    writer: float
    """MiB of the journal writer."""
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
    """Return how many minutes of a run are not judged: a fifth, at least five, at most half."""
    return min(max(5.0, minutes * 0.2), minutes / 2)


def slope_bound(minutes: float) -> float:
    """Return the allowed growth in MiB per minute; the shorter a run, the more of it is noise."""
    return SLOPE * max(1.0, _HOUR / minutes)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all points (Theil-Sen), which outliers hardly move."""
    slopes = [
        (there[1] - here[1]) / (there[0] - here[0])
        for number, here in enumerate(points)
        for there in points[number + 1 :]
        if there[0] > here[0]
    ]
    return median(slopes) if slopes else 0.0


def judge(samples: Sequence[Sample], minutes: float) -> list[Rule]:
    """Apply the rules to the samples after warm-up."""
    judged = [each for each in samples if each.minute >= warm_up(minutes)]
    if len(judged) < 3:
        return [Rule("there are samples after warm-up", holds=False)]
    rules = []
    if judged[-1].minute - judged[0].minute >= _LEAST:
        bound = slope_bound(minutes)
        for name, points in (
            ("hub", [(each.minute, each.rss) for each in judged]),
            ("journal writer", [(each.minute, each.writer) for each in judged]),
        ):
            found = slope(points)
            rules.append(Rule(f"RSS of the {name}: {found:+.3f} MiB/min, below {bound:.2f}", holds=found < bound))
    for name in ("descriptors", "threads"):
        numbers = [float(getattr(each, name)) for each in judged]
        third = max(1, len(numbers) // 3)
        first, last = median(numbers[:third]), median(numbers[-third:])
        text = f"{name}: {first:g} in the first third, {last:g} in the last"
        rules.append(Rule(text, holds=last - first <= max(_SPARE[name], first * 0.1)))
    return rules


def at_rest(before: Sample, after: Sample, bounds: dict[str, float]) -> list[Rule]:
    """Compare a hub without peers before and after the traffic; `bounds` are what each size may exceed by."""
    rules = [
        Rule(f"{name} at rest: {before.sizes.get(name, 0):g} before, {after.sizes.get(name, 0):g} after", holds=holds)
        for name, bound in bounds.items()
        for holds in [after.sizes.get(name, 0) - before.sizes.get(name, 0) <= bound]
    ]
    more = after.descriptors - before.descriptors
    text = f"descriptors at rest: {before.descriptors} before, {after.descriptors} after"
    return [*rules, Rule(text, holds=more <= _SPARE["descriptors"])]
