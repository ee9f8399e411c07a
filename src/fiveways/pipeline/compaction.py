"""Compaction: merge the parts of a day as they accumulate, and once more after the day is over."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from fiveways.pipeline.segment_decoder import SCHEMAS, merge_parts
from fiveways.pipeline.state import Part

MAX_COMPACTED_SIZE: Final = 64 << 20
"""Bytes; larger parts are not merged."""
_MERGE_FACTOR: Final = 8
"""Parts of similar size that are merged into one; each record is rewritten once per tier of size."""
_MIN_TIER_SIZE: Final = 64 << 10


def compact(spark: SparkSession, folder: Path, parts: Sequence[Part]) -> list[Part]:
    """Merge the files below `folder` that are due; return the parts after the merge."""
    groups = groups_to_merge(parts)
    if not groups:
        return list(parts)
    merges = [(merged_name(group), [part.name for part in group]) for group in groups]
    directory = str(folder)
    sizes = (
        spark.sparkContext.parallelize(merges, len(merges)).map(lambda merge: merge_parts(*merge, directory)).collect()
    )
    merged_names = {part.name for group in groups for part in group}
    merged = [_merged_part(group, size) for group, size in zip(groups, sizes, strict=True)]
    return [*(part for part in parts if part.name not in merged_names), *merged]


def groups_to_merge(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the groups of parts to merge, each into one."""
    newest = max((date for part in parts for date in part.dates), default="")
    small: dict[tuple[str, int], list[Part]] = defaultdict(list)
    for part in parts:
        if part.size < MAX_COMPACTED_SIZE:
            day = max(part.dates, default="")
            # A day that is over rarely gets more records.
            small[day, _size_tier(part.size) if day == newest else -1].append(part)
    return [group for (day, _), group in small.items() if len(group) >= (_MERGE_FACTOR if day == newest else 2)]


def _size_tier(size: int) -> int:
    step = 0
    while size > _MIN_TIER_SIZE:
        size, step = size // _MERGE_FACTOR, step + 1
    return step


def merged_name(group: Sequence[Part]) -> str:
    """Return the name of a merged part: its first part and the number of segments."""
    return f"{group[0].name.partition('+')[0]}+{sum(part.segments for part in group)}"


def _merged_part(group: Sequence[Part], size: int) -> Part:
    dates = sorted({date for part in group for date in part.dates})
    rows = {table: sum(part.rows.get(table, 0) for part in group) for table in SCHEMAS}
    return Part(name=merged_name(group), segments=_segment_count(group), dates=dates, rows=rows, size=size)


def _segment_count(group: Iterable[Part]) -> int:
    return sum(part.segments for part in group)
