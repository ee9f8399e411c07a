"""Axes of charts: scales, ticks and time buckets."""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fiveways.pipeline.report import units
from fiveways.pipeline.report.units import DAY, HOUR, MINUTE

_TIME_STEPS: Final = (
    *(MINUTE * factor for factor in (1, 2, 5, 10, 15, 30)),
    *(HOUR * factor for factor in (1, 2, 3, 6, 12)),
    *(DAY * factor for factor in (1, 2, 5, 10, 30, 90, 365)),
)
_ROUND_DURATIONS_NS: Final = (
    *(10**power for power in range(11)),
    *(seconds * 10**9 for seconds in (MINUTE, 10 * MINUTE, HOUR, 10 * HOUR)),
    *(DAY * 10**9 * 10**power for power in range(7)),
)
"""Round durations, from a nanosecond to longer than any latency."""
MAX_BUCKETS: Final = 180
_MAX_TICKS: Final = 12


class Tick(NamedTuple):
    """Tick of an axis: its position from 0 to 1, its label, and a second line for the label."""

    position: float
    label: str
    below: str = ""


class Scale(NamedTuple):
    """Vertical axis of a chart."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[Tick, ...]

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 (bottom) to 1."""
        if self.is_log:
            span = math.log(self.high / self.low)
            return min(1.0, max(0.0, math.log(max(value, self.low) / self.low) / span))
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


class TimeBuckets(NamedTuple):
    """Time buckets of equal width, in Unix time in seconds."""

    start: int
    width: int
    bucket_count: int
    first: int
    last: int
    """Begin (`first`) and end (`last`) of the data; both may be within a bucket."""

    @property
    def end(self) -> int:
        """Return the end of the last bucket."""
        return self.start + self.width * self.bucket_count

    def seconds(self, index: int) -> int:
        """Return how many seconds of a bucket the data cover."""
        begin = self.bucket_start(index)
        return max(MINUTE, min(begin + self.width, self.last) - max(begin, self.first))

    @property
    def width_text(self) -> str:
        """Return the width of a bucket with its unit."""
        factor, unit = next((pair for pair in ((DAY, "d"), (HOUR, "h")) if self.width % pair[0] == 0), (MINUTE, "min"))
        return f"{self.width // factor}{units.NO_BREAK_SPACE}{unit}"

    def label(self, index: int) -> str:
        """Return the label of a bucket."""
        begin = self.bucket_start(index)
        if self.width >= DAY:
            return units.full_day(begin)
        return f"{units.day(begin)} {units.clock(begin)}" if self.days > 1 else units.clock(begin)

    def bucket_start(self, index: int) -> int:
        """Return the begin of a bucket."""
        return self.start + self.width * index

    @property
    def days(self) -> int:
        """Return the number of days with data."""
        return (self.last - 1) // DAY - self.first // DAY + 1


def time_buckets(first: int, last: int) -> TimeBuckets:
    """Return buckets from `first` to the end of the minute `last`, at most `MAX_BUCKETS`."""
    span = last + MINUTE - first
    width = next((step for step in _TIME_STEPS if span <= step * (MAX_BUCKETS - 1)), 0)
    if not width:
        width = DAY * math.ceil(span / (MAX_BUCKETS - 1) / DAY)
    start = first // width * width
    return TimeBuckets(start, width, (last - start) // width + 1, first, last + MINUTE)


def time_ticks(buckets: TimeBuckets, max_ticks: int = _MAX_TICKS) -> tuple[Tick, ...]:
    """Return the ticks of a time axis: clock times, with the date where a day begins."""
    span = buckets.end - buckets.start
    step = next((step for step in _TIME_STEPS if span <= step * max_ticks), 0)
    if not step:
        step = DAY * math.ceil(span / max_ticks / DAY)
    ticks = []
    origin = buckets.start // DAY * DAY
    at = origin + math.ceil((buckets.start - origin) / step) * step
    before = None
    while at < buckets.end:
        position = (at - buckets.start) / span
        if step >= DAY:
            year = units.full_day(at).rsplit(" ", 1)[1]
            ticks.append(Tick(position, units.day(at), year if year != before else ""))
            before = year
        else:
            today = units.day(at)
            ticks.append(Tick(position, units.clock(at), today if today != before and buckets.days > 1 else ""))
            before = today
        at += step
    return tuple(ticks)


def linear_scale(top: float, show: Callable[[float], str], parts: int = 4) -> Scale:
    """Return an axis from 0 to a round number above `top`, in about this number of parts."""
    if top <= 0:
        return Scale(0.0, 1.0, is_log=False, ticks=(Tick(0.0, show(0)),))
    raw = top / parts
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if raw <= factor * power * 1.0000001)
    number = math.ceil(top / step * 0.9999999)
    ticks = tuple(Tick(index / number, show(index * step)) for index in range(number + 1))
    return Scale(0.0, step * number, is_log=False, ticks=ticks)


def logarithmic_scale(low: float, high: float) -> Scale:
    """Return an axis of durations in ns, from a round one below `low` to a round one above `high`."""
    low, high = max(low, 1.0), max(high, 1.0)
    marks = list(_round_durations(fine=high / low < 30))
    bottom = max(mark for mark in marks if mark <= low)
    top = min(mark for mark in marks if mark >= high)
    if top <= bottom:
        bottom, top = next(
            (marks[max(0, index - 1)], marks[min(len(marks) - 1, index + 1)])
            for index, mark in enumerate(marks)
            if mark >= bottom
        )
    scale = Scale(float(bottom), float(top), is_log=True, ticks=())
    ticks = [Tick(scale.position(mark), units.duration(mark, trim=True)) for mark in marks if bottom <= mark <= top]
    stride = max(1, math.ceil(len(ticks) / 7))
    return scale._replace(ticks=tuple(ticks[::stride]))


def _round_durations(*, fine: bool) -> Iterator[int]:
    for duration, following in zip(
        _ROUND_DURATIONS_NS, (*_ROUND_DURATIONS_NS[1:], _ROUND_DURATIONS_NS[-1] * 10), strict=True
    ):
        yield duration
        if fine:
            yield from (duration * factor for factor in (2, 5) if duration * factor < following)
