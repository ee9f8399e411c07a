"""When parts are merged: plain counting, without Spark."""

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
    most = 0
    for number in range(3000):
        parts.append(part(f"s{number}", size=40_000))
        for group in compaction.groups_to_merge(parts):
            gone = {each.name for each in group}
            merged = compaction._merged_part(group, sum(each.size for each in group))
            parts = [each for each in parts if each.name not in gone] + [merged]
        most = max(most, len(parts))
    assert most <= 40
    assert len({each.name for each in parts}) == len(parts)
    assert sum(each.segments for each in parts) == 3000
    assert sum(each.rows["messages"] for each in parts) == 15_000
