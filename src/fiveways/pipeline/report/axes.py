"""Where an axis has its marks."""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fiveways.pipeline.report import units
from fiveways.pipeline.report.units import DAY, HOUR, MINUTE

_TIME_STEPS: Final = (
    *(MINUTE * each for each in (1, 2, 5, 10, 15, 30)),
    *(HOUR * each for each in (1, 2, 3, 6, 12)),
    *(DAY * each for each in (1, 2, 5, 10, 30, 90, 365)),
)
_ROUND_DURATIONS_NS: Final = (
    *(10**power for power in range(11)),
    *(each * 10**9 for each in (MINUTE, 10 * MINUTE, HOUR, 10 * HOUR)),
    *(DAY * 10**9 * 10**power for power in range(7)),
)
"""Round times, from a nanosecond to longer than any."""
MAX_BUCKETS: Final = 180
_MAX_TICKS: Final = 12


class Tick(NamedTuple):
    """One mark: where it is, 0 to 1 from the axis' start, and what stands there."""

    position: float
    label: str
    below: str = ""


class Scale(NamedTuple):
    """The upright axis of a chart."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[Tick, ...]

    def position(self, value: float) -> float:
        """Return where a value is, from 0 (bottom) to 1."""
        if self.is_log:
            span = math.log(self.high / self.low)
            return min(1.0, max(0.0, math.log(max(value, self.low) / self.low) / span))
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


class TimeBuckets(NamedTuple):
    """Time cut into buckets of one width, in seconds since 1970."""

    start: int
    width: int
    bucket_count: int
    first: int
    last: int
    """Where the data begin and end, which may be within a bucket."""

    @property
    def end(self) -> int:
        """Return where the last bucket ends."""
        return self.start + self.width * self.bucket_count

    def seconds(self, index: int) -> int:
        """Return how much of a bucket the data cover."""
        begin = self.bucket_start(index)
        return max(MINUTE, min(begin + self.width, self.last) - max(begin, self.first))

    @property
    def width_text(self) -> str:
        """Return the width of a bucket in words."""
        factor, unit = next((each for each in ((DAY, "d"), (HOUR, "h")) if self.width % each[0] == 0), (MINUTE, "min"))
        return f"{self.width // factor}{units.NO_BREAK_SPACE}{unit}"

    def label(self, index: int) -> str:
        """Return a bucket's name."""
        begin = self.bucket_start(index)
        if self.width >= DAY:
            return units.full_day(begin)
        return f"{units.day(begin)} {units.clock(begin)}" if self.days > 1 else units.clock(begin)

    def bucket_start(self, index: int) -> int:
        """Return where a bucket begins."""
        return self.start + self.width * index

    @property
    def days(self) -> int:
        """Return how many days it touches."""
        return (self.last - 1) // DAY - self.first // DAY + 1


def time_buckets(first: int, last: int) -> TimeBuckets:
    """Return buckets for the time from `first` up to the end of the minute `last`, as fine as a chart can show."""
    span = last + MINUTE - first
    width = next((step for step in _TIME_STEPS if span <= step * (MAX_BUCKETS - 1)), 0)
    if not width:
        width = DAY * math.ceil(span / (MAX_BUCKETS - 1) / DAY)
    start = first // width * width
    return TimeBuckets(start, width, (last - start) // width + 1, first, last + MINUTE)


def time_ticks(cells: TimeBuckets, most: int = _MAX_TICKS) -> tuple[Tick, ...]:
    """Return the marks below a chart: clock times, with the day where it begins."""
    span = cells.end - cells.start
    step = next((each for each in _TIME_STEPS if span <= each * most), 0)
    if not step:
        step = DAY * math.ceil(span / most / DAY)
    ticks = []
    origin = cells.start // DAY * DAY
    at = origin + math.ceil((cells.start - origin) / step) * step
    before = None
    while at < cells.end:
        place = (at - cells.start) / span
        if step >= DAY:
            year = units.full_day(at).rsplit(" ", 1)[1]
            ticks.append(Tick(place, units.day(at), year if year != before else ""))
            before = year
        else:
            today = units.day(at)
            ticks.append(Tick(place, units.clock(at), today if today != before and cells.days > 1 else ""))
            before = today
        at += step
    return tuple(ticks)


def linear_scale(top: float, show: Callable[[float], str], parts: int = 4) -> Scale:
    """Return an axis from 0 to a round number above `top`, in about so many parts."""
    if top <= 0:
        return Scale(0.0, 1.0, is_log=False, ticks=(Tick(0.0, show(0)),))
    raw = top / parts
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if raw <= each * power * 1.0000001)
    number = math.ceil(top / step * 0.9999999)
    high = step * number
    return Scale(
        0.0, high, is_log=False, ticks=tuple(Tick(each / number, show(each * step)) for each in range(number + 1))
    )


def logarithmic_scale(low: float, high: float) -> Scale:
    """Return an axis of times in ns, from a round one below `low` to a round one above `high`."""
    low, high = max(low, 1.0), max(high, 1.0)
    marks = list(_round_durations(fine=high / low < 30))
    bottom = max(each for each in marks if each <= low)
    top = min(each for each in marks if each >= high)
    if top <= bottom:
        bottom, top = next(
            (marks[max(0, index - 1)], marks[min(len(marks) - 1, index + 1)])
            for index, each in enumerate(marks)
            if each >= bottom
        )
    scale = Scale(float(bottom), float(top), is_log=True, ticks=())
    ticks = [Tick(scale.position(each), units.duration(each, trim=True)) for each in marks if bottom <= each <= top]
    thin = max(1, math.ceil(len(ticks) / 7))
    return scale._replace(ticks=tuple(ticks[::thin]))


def _round_durations(*, fine: bool) -> Iterator[int]:
    for each, following in zip(
        _ROUND_DURATIONS_NS, (*_ROUND_DURATIONS_NS[1:], _ROUND_DURATIONS_NS[-1] * 10), strict=True
    ):
        yield each
        if fine:
            yield from (each * factor for factor in (2, 5) if each * factor < following)
