"""Lookup of retained values by pattern."""

from hypothesis import given
from hypothesis import strategies as st

from fiveways.hub.retained import RetainedValue, RetainedValues
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import NULL
from tests.unit.hub.test_subscriptions import all_topics, patterns


@given(st.sets(all_topics, max_size=8), st.sets(all_topics, max_size=4), patterns, st.integers(1, 10))
def test_pattern_finds_matching_values(
    remaining: set[Topic], removed: set[Topic], pattern: Pattern, steps: int
) -> None:
    values = RetainedValues()
    for topic in remaining:
        values.store(RetainedValue(topic, NULL, 1, 10))
        values.store(RetainedValue(topic, NULL, 2, 20))
    for topic in removed:
        values.remove(topic)
    remaining -= removed
    assert len(values) == len(remaining)
    assert values.size == 20 * len(remaining)
    results = [value for slice_ in values.matching(pattern, steps) for value in slice_]
    assert sorted(value.topic for value in results) == sorted(topic for topic in remaining if pattern.matches(topic))
    assert {value.publication for value in results} <= {2}
    for topic in remaining:
        values.remove(topic)
    assert (values._root.children or {}, len(values), values.size) == ({}, 0, 0)
