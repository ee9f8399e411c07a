"""Selection of the parts to merge, without Spark."""

from fiveways.pipeline import compaction
from fiveways.pipeline.compaction import MAX_COMPACTED_SIZE
from fiveways.pipeline.state import Part


def part(name: str, date: str = "2026-03-03", size: int = 1000) -> Part:
    return Part(name=name, segments=1, dates=[date], rows={"messages": 5}, size=size)


def test_few_small_parts_are_not_merged() -> None:
    assert compaction.groups_to_merge([part(f"a{number}") for number in range(7)]) == []


def test_eight_parts_of_similar_size_are_merged() -> None:
    parts = [part(f"a{number}") for number in range(8)]
    assert compaction.groups_to_merge([*parts, part("big", size=5 << 20)]) == [parts]


def test_large_parts_are_not_merged() -> None:
    assert compaction.groups_to_merge([part(f"a{number}", size=MAX_COMPACTED_SIZE) for number in range(50)]) == []


def test_parts_of_a_past_day_are_merged() -> None:
    old = [part("a", "2026-03-02"), part("b", "2026-03-02", 10 << 20)]
    assert compaction.groups_to_merge([*old, part("c")]) == [old]
    assert compaction.groups_to_merge([old[0], part("c")]) == []


def test_number_of_parts_stays_bounded() -> None:
    parts: list[Part] = []
    max_parts = 0
    for number in range(3000):
        parts.append(part(f"s{number}", size=40_000))
        for group in compaction.groups_to_merge(parts):
            merged_names = {old.name for old in group}
            merged = compaction._merged_part(group, sum(old.size for old in group))
            parts = [old for old in parts if old.name not in merged_names] + [merged]
        max_parts = max(max_parts, len(parts))
    assert max_parts <= 40
    assert len({one.name for one in parts}) == len(parts)
    assert sum(one.segments for one in parts) == 3000
    assert sum(one.rows["messages"] for one in parts) == 15_000
