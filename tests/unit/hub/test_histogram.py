"""Histograms of durations."""

from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from fiveways.hub.histogram import BOUNDS, Histogram


def histogram_of(*waits: float) -> Histogram:
    histogram = Histogram()
    histogram.add(list(waits))
    return histogram


def test_bound_is_inclusive() -> None:
    histogram = histogram_of(BOUNDS[0], BOUNDS[1], BOUNDS[1] + 1e-9, BOUNDS[-1], BOUNDS[-1] + 1.0)
    assert [number for number, count in enumerate(histogram.counts) for _ in range(count)] == [
        0,
        1,
        2,
        len(BOUNDS) - 1,
        len(BOUNDS),
    ]


@pytest.mark.parametrize("count", [1, 15, 16, 1000])
def test_batch_and_single_counts_agree(count: int) -> None:
    random = Random(count)
    waits = [random.choice([*BOUNDS, 10 ** random.uniform(-5, 2)]) for _ in range(count)]
    one_by_one = Histogram()
    for wait in waits:
        one_by_one.add([wait])
    together = histogram_of(*waits)
    assert together.counts == one_by_one.counts
    assert len(together) == count
    assert together.seconds == pytest.approx(sum(waits))


def test_quantile_lies_in_bucket_of_its_value() -> None:
    random = Random(3)
    waits = [10 ** random.uniform(-4, 1) for _ in range(5000)]
    histogram = histogram_of(*waits)
    for part in (0.5, 0.95, 0.99):
        true = sorted(waits)[int(part * len(waits)) - 1]
        upper = next(bound for bound in BOUNDS if bound >= true)
        lower = max([0.0, *(bound for bound in BOUNDS if bound < true)])
        result = histogram.quantile(part)
        assert result is not None
        assert lower <= result <= upper


def test_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


@pytest.mark.parametrize("wait", [0.0, 1e-6, 0.003, BOUNDS[3], BOUNDS[-1], 1e6])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_quantile_of_equal_durations_is_exact(wait: float, count: int) -> None:
    histogram = histogram_of(*[wait] * count)
    assert [histogram.quantile(part) for part in (0.0, 0.5, 0.99, 1.0)] == [wait] * 4


@given(waits=lists(floats(0.0, 1e4), min_size=1, max_size=40), more=lists(floats(0.0, 1e4), max_size=40))
def test_quantiles_rise_from_shortest_to_longest(waits: list[float], more: list[float]) -> None:
    histogram, other = histogram_of(*waits), histogram_of(*more)
    histogram.merge(other)
    histogram.add([])
    parts = [number / 200 for number in range(201)]
    results = [quantile for part in parts if (quantile := histogram.quantile(part)) is not None]
    assert len(results) == len(parts)
    assert results == sorted(results)
    assert results[0] >= min(waits + more)
    assert results[-1] <= max(waits + more)
    assert results[-1] == pytest.approx(max(waits + more))


def test_merged_histogram_has_counts_of_both() -> None:
    one, other = histogram_of(0.001, 3.0), histogram_of(0.001)
    one.merge(other)
    assert one.counts == histogram_of(0.001, 0.001, 3.0).counts
    assert one.seconds == pytest.approx(3.002)
    assert len(other) == 1
