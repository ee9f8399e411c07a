"""Time buckets and axes of charts."""

import pytest

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.axes import MAX_BUCKETS, TimeBuckets
from fiveways.pipeline.report.units import DAY, HOUR, MINUTE

START = 1_772_524_800  # 2026-03-03 08:00


@pytest.mark.parametrize("minutes", [1, 2, 59, 179, 180, 181, 570, 1440, 10_000, 525_600, 30_000_000])
def test_time_range_is_covered_by_a_bounded_number_of_buckets(minutes: int) -> None:
    last = START + (minutes - 1) * MINUTE
    buckets = axes.time_buckets(START, last)
    assert 1 <= buckets.bucket_count <= MAX_BUCKETS
    assert buckets.start <= START
    assert last + MINUTE <= buckets.end
    assert (last - buckets.start) // buckets.width == buckets.bucket_count - 1
    assert sum(buckets.seconds(index) for index in range(buckets.bucket_count)) == minutes * MINUTE


def test_one_minute_is_one_bucket() -> None:
    assert axes.time_buckets(START, START) == TimeBuckets(START, MINUTE, 1, START, START + MINUTE)


@pytest.mark.parametrize("minutes", [1, 30, 570, 1440, 5000, 200_000, 30_000_000])
def test_time_ticks_are_few_and_ascending(minutes: int) -> None:
    ticks = axes.time_ticks(axes.time_buckets(START, START + (minutes - 1) * MINUTE))
    assert 1 <= len(ticks) <= 13
    positions = [tick.position for tick in ticks]
    assert positions == sorted(set(positions))
    assert all(0 <= position < 1 for position in positions)


def test_each_day_is_labelled_once() -> None:
    ticks = axes.time_ticks(axes.time_buckets(START, START + 3 * DAY))
    dates = [tick.below for tick in ticks if tick.below]
    assert dates == [units.day(START + number * DAY) for number in range(4)]
    assert {tick.label for tick in ticks} == {"00:00", "12:00"}


def test_single_day_has_no_date_labels() -> None:
    assert all(not tick.below for tick in axes.time_ticks(axes.time_buckets(START, START + 5 * HOUR)))


@pytest.mark.parametrize("top", [0, 1e-9, 0.003, 0.42, 1, 7, 99, 100, 101, 12_345, 9.2e18])
def test_linear_scale_includes_its_highest_value(top: float) -> None:
    scale = axes.linear_scale(top, str)
    assert scale.low == 0
    assert scale.high >= top
    assert scale.high <= max(1.0, top * 2.5)
    assert 1 <= len(scale.ticks) <= 7
    assert 0 <= scale.position(top) <= 1


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (1, 1), (3, 3), (10**6, 10**6), (840_000, 2_000_000), (10**5, 10**9), (1, 2**63 - 1), (10**18, 2**62)],
)
def test_logarithmic_scale_includes_all_values(low: int, high: int) -> None:
    scale = axes.logarithmic_scale(low, high)
    assert 0 < scale.low < scale.high
    assert scale.low <= max(low, 1)
    assert scale.high >= high
    assert 0 <= scale.position(low) <= scale.position(high) <= 1
    assert 2 <= len(scale.ticks) <= 9


def test_ticks_of_a_logarithmic_scale_are_round_durations() -> None:
    labels = [
        tick.label.replace(units.NO_BREAK_SPACE, " ") for tick in axes.logarithmic_scale(1_300_000, 40 * 10**9).ticks
    ]
    assert labels == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "60 s"]


def test_bucket_width_text_has_the_largest_unit() -> None:
    texts = [
        TimeBuckets(0, width, 1, 0, width).width_text.replace(units.NO_BREAK_SPACE, " ")
        for width in (60, 900, 3600, 7200, DAY, 2 * DAY)
    ]
    assert texts == ["1 min", "15 min", "1 h", "2 h", "1 d", "2 d"]
