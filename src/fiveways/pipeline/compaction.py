"""Few files, however many segments come: parts of a day are merged as they gather, and once more when it is over."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from fiveways.pipeline.segment_decoder import SCHEMAS, merge_parts
from fiveways.pipeline.state import Part

MAX_COMPACTED_SIZE: Final = 64 << 20
"""Bytes from which on a part stays as it is."""
_MERGE_FACTOR: Final = 8
"""Parts of like size that become one: each record is rewritten once for every such step in size."""
_MIN_TIER_SIZE: Final = 64 << 10


def compact(spark: SparkSession, folder: Path, parts: Sequence[Part]) -> list[Part]:
    """Merge files below `folder` where it is time to; return the parts that there are then."""
    groups = groups_to_merge(parts)
    if not groups:
        return list(parts)
    names = [(merged_name(group), [part.name for part in group]) for group in groups]
    into = str(folder)
    sizes = spark.sparkContext.parallelize(names, len(names)).map(lambda each: merge_parts(*each, into)).collect()
    gone = {part.name for group in groups for part in group}
    merged = [_merged_part(group, size) for group, size in zip(groups, sizes, strict=True)]
    return [*(part for part in parts if part.name not in gone), *merged]


def groups_to_merge(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the groups of parts that should be one each."""
    newest = max((date for part in parts for date in part.dates), default="")
    small: dict[tuple[str, int], list[Part]] = defaultdict(list)
    for part in parts:
        if part.size < MAX_COMPACTED_SIZE:
            day = max(part.dates, default="")
            # Nothing more is likely to come for a day that is over.
            small[day, _size_tier(part.size) if day == newest else -1].append(part)
    return [group for (day, _), group in small.items() if len(group) >= (_MERGE_FACTOR if day == newest else 2)]


def _size_tier(size: int) -> int:
    step = 0
    while size > _MIN_TIER_SIZE:
        size, step = size // _MERGE_FACTOR, step + 1
    return step


def merged_name(group: Sequence[Part]) -> str:
    """Return what a merged part is called: by its first one, and how many segments are in it."""
    return f"{group[0].name.partition('+')[0]}+{sum(part.segments for part in group)}"


def _merged_part(group: Sequence[Part], size: int) -> Part:
    dates = sorted({date for part in group for date in part.dates})
    rows = {table: sum(part.rows.get(table, 0) for part in group) for table in SCHEMAS}
    return Part(name=merged_name(group), segments=_segment_count(group), dates=dates, rows=rows, size=size)


def _segment_count(group: Iterable[Part]) -> int:
    return sum(part.segments for part in group)
