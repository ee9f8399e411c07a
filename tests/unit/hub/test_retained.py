"""Which values a pattern finds."""

from hypothesis import given
from hypothesis import strategies as st

from fiveways.hub.retained import RetainedValue, RetainedValues
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import NULL
from tests.unit.hub.test_subscriptions import all_topics, patterns


@given(st.sets(all_topics, max_size=8), st.sets(all_topics, max_size=4), patterns, st.integers(1, 10))
def test_pattern_finds_matching_values(kept: set[Topic], gone: set[Topic], wanted: Pattern, steps: int) -> None:
    values = RetainedValues()
    for topic in kept:
        values.store(RetainedValue(topic, NULL, 1, 10))
        values.store(RetainedValue(topic, NULL, 2, 20))
    for topic in gone:
        values.remove(topic)
    kept -= gone
    assert len(values) == len(kept)
    assert values.size == 20 * len(kept)
    found = [value for slice_ in values.matching(wanted, steps) for value in slice_]
    assert sorted(value.topic for value in found) == sorted(topic for topic in kept if wanted.matches(topic))
    assert {value.publication for value in found} <= {2}
    for topic in kept:
        values.remove(topic)
    assert (values._root.children or {}, len(values), values.size) == ({}, 0, 0)
