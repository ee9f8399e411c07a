"""How long something took, many times."""

from random import Random

import pytest

from fiveways.hub.histogram import BOUNDS, Histogram


def counted(*waits: float) -> Histogram:
    histogram = Histogram()
    histogram.add(list(waits))
    return histogram


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = counted(BOUNDS[0], BOUNDS[1], BOUNDS[1] + 1e-9, BOUNDS[-1], BOUNDS[-1] + 1.0)
    assert [number for number, count in enumerate(histogram.counts) for _ in range(count)] == [
        0,
        1,
        2,
        len(BOUNDS) - 1,
        len(BOUNDS),
    ]


@pytest.mark.parametrize("many", [1, 15, 16, 1000])
def test_many_are_counted_as_one_by_one(many: int) -> None:
    chance = Random(many)
    waits = [chance.choice([*BOUNDS, 10 ** chance.uniform(-5, 2)]) for _ in range(many)]
    one_by_one = Histogram()
    for wait in waits:
        one_by_one.add([wait])
    together = counted(*waits)
    assert together.counts == one_by_one.counts
    assert len(together) == many
    assert together.seconds == pytest.approx(sum(waits))


def test_a_quantile_lies_in_the_bucket_of_the_value_it_stands_for() -> None:
    chance = Random(3)
    waits = [10 ** chance.uniform(-4, 1) for _ in range(5000)]
    histogram = counted(*waits)
    for part in (0.5, 0.95, 0.99):
        true = sorted(waits)[int(part * len(waits)) - 1]
        upper = next(bound for bound in BOUNDS if bound >= true)
        lower = max([0.0, *(bound for bound in BOUNDS if bound < true)])
        found = histogram.quantile(part)
        assert found is not None
        assert lower <= found <= upper


def test_of_nothing_nothing_is_known() -> None:
    assert Histogram().quantile(0.5) is None


def test_what_took_longer_than_all_bounds_took_the_last_one_at_least() -> None:
    assert counted(1e6).quantile(0.5) == BOUNDS[-1]


def test_two_become_one() -> None:
    one, other = counted(0.001, 3.0), counted(0.001)
    one.merge(other)
    assert one.counts == counted(0.001, 0.001, 3.0).counts
    assert one.seconds == pytest.approx(3.002)
    assert len(other) == 1
