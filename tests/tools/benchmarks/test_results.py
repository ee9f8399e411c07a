"""Ratios are taken within a round, and each target has a verdict."""

import pytest

from benchmarks.hub.bench import rotated, undisturbed
from benchmarks.hub.performance_targets import BenchmarkResults, PerformanceTarget
from benchmarks.hub.results import Sample, Table, spread


def test_ratio_needs_both_samples_of_a_round() -> None:
    table = Table("calls", "calls/s", "relay")
    for turn, rate in enumerate((100.0, 200.0, 400.0)):
        table.add("relay", turn, Sample(rate, 1.0))
    table.add("lrpm", 0, Sample(80.0, 1.0))
    table.add("lrpm", 2, Sample(200.0, 1.0))
    assert table.ratios("lrpm", "relay", lambda sample: sample.rate) == [0.8, 0.5]
    assert table.ratios("lrpm", "Crossbar", lambda sample: sample.rate) == []


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (PerformanceTarget("rate", [0.5, 0.7, 0.9], 0.6), "pass"),
        (PerformanceTarget("rate", [0.5, 0.5, 0.9], 0.6), "FAILED"),
        (PerformanceTarget("wait", [1.4], at_most=1.5), "pass"),
        (PerformanceTarget("wait", [1.6], at_most=1.5), "FAILED"),
        (PerformanceTarget("memory", [13.0], at_most=12, level="goal"), "no goal"),
        (PerformanceTarget("CPU", [1.0], at_most=1.5, level="proud"), "proud"),
    ],
)
def test_verdict_depends_on_the_median(target: PerformanceTarget, verdict: str) -> None:
    assert str(target).split("  ")[1] == verdict


def test_missing_measurement_is_reported() -> None:
    assert "not measured; target: at least 0.6" in str(PerformanceTarget("rate", [], 0.6))
    results = BenchmarkResults(
        tables={"clients": Table("clients", "calls/s", "nats-py")}, missing={"a": "gone", "b": "gone"}
    )
    assert "a, b not measured: gone" in str(results)


def test_spread_is_the_interquartile_range() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([7.0]) == 0.0


def test_each_contestant_is_first_once() -> None:
    assert [rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert rotated([], 3) == []


@pytest.mark.parametrize(("loads", "chosen"), [([0.0, 0.9], 0.0), ([0.5, 0.05, 0.9], 0.05), ([0.5, 0.3, 0.4], 0.3)])
def test_disturbed_measurement_is_repeated(loads: list[float], chosen: float) -> None:
    samples = iter([Sample(1.0, 1.0, others=load) for load in loads])

    async def run() -> Sample:
        return next(samples)

    with pytest.raises(StopIteration) as ended:
        undisturbed(run).send(None)
    assert ended.value.value.others == chosen
