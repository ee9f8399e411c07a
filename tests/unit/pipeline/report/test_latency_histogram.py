"""Percentiles of latencies by group."""

import math
import random

import numpy as np
import pytest

from fiveways.pipeline.report.latency_histogram import LatencyHistogram, add_estimates


def nearest_rank(times: list[int]) -> list[int]:
    ordered = sorted(times)
    return [ordered[math.ceil(quantile * len(ordered)) - 1] for quantile in (0.5, 0.95, 0.99, 1.0)]


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("times", [[5], [0], [1, 2], [10**6, 2 * 10**6, 3 * 10**6], list(range(10**6, 10**8, 10**6))])
def test_few_latencies_have_exact_percentiles(times: list[int]) -> None:
    histogram = LatencyHistogram(1)
    histogram.add(array([0] * len(times)), array(times))
    assert histogram.percentiles(0) == nearest_rank(times)


def test_many_latencies_have_percentiles_within_a_bin_width() -> None:
    rng = random.Random(3)
    times = [int(rng.lognormvariate(15, 1.2)) for _ in range(50_000)]
    histogram = LatencyHistogram(1)
    for begin in range(0, len(times), 7_000):
        part = times[begin : begin + 7_000]
        histogram.add(array([0] * len(part)), array(part))
    for estimate, exact in zip(histogram.percentiles(), nearest_rank(times), strict=True):
        assert estimate == pytest.approx(exact, rel=0.0028)


def test_groups_are_separate_and_negative_groups_are_ignored() -> None:
    histogram = LatencyHistogram(3)
    histogram.add(array([0, 0, 2, -1]), array([10, 20, 5000, 10**9]))
    assert histogram.percentiles(0) == [10, 20, 20, 20]
    assert histogram.percentiles(1) == [None] * 4
    assert histogram.percentiles(2) == [5000] * 4
    assert histogram.percentiles() == [20, 5000, 5000, 5000]
    assert list(histogram.totals()) == [2, 0, 1]


def test_extreme_latencies_are_counted() -> None:
    histogram = LatencyHistogram(1)
    histogram.add(array([0, 0]), array([2**63 - 1, -7]))
    assert histogram.percentiles(0) == [-7, 2**63 - 1, 2**63 - 1, 2**63 - 1]


def test_estimate_from_percentiles_is_close_to_exact_values() -> None:
    rng = random.Random(4)
    methods = [[int(rng.lognormvariate(center, 0.5)) for _ in range(400)] for center in (13, 14, 15, 18)] * 5
    knots = [array([nearest_rank(method)[place] for method in methods]) for place in range(4)]
    histogram = LatencyHistogram(1)
    add_estimates(histogram, array([0] * len(methods)), array([len(method) for method in methods]), knots)
    exact = nearest_rank([time for method in methods for time in method])
    assert histogram.totals()[0] == pytest.approx(sum(map(len, methods)))
    for estimate, true in zip(histogram.percentiles()[:3], exact[:3], strict=True):
        assert estimate == pytest.approx(true, rel=0.15)


@pytest.mark.parametrize("calls", [1, 7, 30, 1_000_003])
def test_estimate_from_one_row_is_exact(calls: int) -> None:
    histogram = LatencyHistogram(2)
    times = [array([20 * 10**6, 9]), array([55 * 10**6, 9]), array([70 * 10**6, 9]), array([10**9, 9])]
    add_estimates(histogram, array([1, -1]), array([calls, 5]), times)
    assert histogram.percentiles(1) == [int(time[0]) for time in times]
    assert histogram.percentiles(0) == [None] * 4
