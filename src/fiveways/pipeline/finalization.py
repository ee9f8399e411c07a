"""What only one segment has messages of is settled there and then: its rows go into the tables as they are.

Pieces know in which bucket of neighbours their key lies. A bucket that one segment alone has pieces in holds nothing
that must be put together: its calls and orphans are written where the segment was read, and stay as they are. Those in
other buckets are put aside, in `_shared`, for `silver.calls` and `silver.orphans`. When a segment comes that shares a
bucket with one of before, that one is settled anew.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from fiveways.pipeline import arrow_schemas, segment_decoder
from fiveways.pipeline.pairing import PARTIAL_CALLS, build_calls, build_orphans
from fiveways.pipeline.pairing.message_columns import Int64Array
from fiveways.pipeline.segment_decoder import ParquetPartWriter
from fiveways.pipeline.table_directory import PARQUET_SUFFIX, TableDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTIAL_CALLS_TABLE: Final = "_shared"
FINALIZED_SCHEMAS: Final = {"calls": arrow_schemas.CALLS, "orphans": arrow_schemas.ORPHANS}
"""Tables that have rows from here; each has its others from a function of `_shared`."""
_BUCKETS_TABLE: Final = "_buckets"
_PART_SEPARATOR: Final = "-of-"
"""Between the day and the part, in the name of a file with rows from here."""


@dataclass(frozen=True, slots=True)
class FinalizeTask:
    """A part to be settled."""

    part: str
    output_directory: str
    """The directory with a folder for each table."""
    shared_buckets: Int64Array
    """Its buckets that others have pieces in too."""


def _finalize_part(task: FinalizeTask) -> None:
    """Write the calls and orphans that this part alone knows of, and put aside all other pieces of it."""
    into = Path(task.output_directory)
    shared = ParquetPartWriter(into / PARTIAL_CALLS_TABLE, task.part, PARTIAL_CALLS)
    files: dict[tuple[str, str], ParquetPartWriter] = {}
    for pieces in segment_decoder.read_row_groups([into / "_pieces" / f"{task.part}{PARQUET_SUFFIX}"]):
        alone = pieces
        if len(task.shared_buckets):
            is_split = np.isin(pieces["bucket"].to_numpy(), task.shared_buckets)
            shared.write(pieces.filter(pa.array(is_split)))
            alone = pieces.filter(pa.array(~is_split))
        for table, rows in (("calls", build_calls(alone)), ("orphans", build_orphans(alone))):
            for day, of_day in _rows_by_date(rows):
                key = table, day
                if key not in files:
                    files[key] = ParquetPartWriter(
                        into / table, f"{day}{_PART_SEPARATOR}{task.part}", FINALIZED_SCHEMAS[table]
                    )
                files[key].write(of_day)
    for file in (shared, *files.values()):
        file.close()


def _rows_by_date(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = rows["date"].unique().to_pylist()
    for day in days:
        yield day, rows if len(days) == 1 else rows.filter(pc.equal(rows["date"], day))


@dataclass(frozen=True, slots=True)
class SharedBuckets:
    """Which buckets several segments have pieces in, and for which of the older parts that is news."""

    buckets: Int64Array
    changed_parts: frozenset[str]


def find_shared_buckets(folder: Path, kept: Sequence[str], fresh: Sequence[str]) -> SharedBuckets:
    """Look at the buckets of all parts: of those that are settled already, and of the new ones."""
    old = {part: _buckets(folder, part) for part in kept}
    split = _repeated_values([*old.values(), *(_buckets(folder, part) for part in fresh)])
    news = np.setdiff1d(split, _repeated_values(old.values()), assume_unique=True)
    changed = (part for part, has in old.items() if len(news) and np.isin(has, news).any())
    return SharedBuckets(split, frozenset(changed))


def _buckets(folder: Path, part: str) -> Int64Array:
    """Return the buckets of a part; one that several segments in it have is there several times."""
    path = folder / _BUCKETS_TABLE / f"{part}{PARQUET_SUFFIX}"
    if not path.exists():
        return np.zeros(0, np.int64)
    return np.asarray(parquet.read_table(path, use_threads=False)["bucket"].to_numpy())


def _repeated_values(each: Iterable[Int64Array]) -> Int64Array:
    values, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *each]), return_counts=True)
    return np.asarray(values[counts > 1])


def carry_over_finalized(output: TableDirectory, parts: Collection[str]) -> None:
    """Take over what these parts have settled before."""
    for table in FINALIZED_SCHEMAS:
        output.carry_over(table, (name for name in output.files(table) if _source_part(name) in parts))
    output.carry_over(
        PARTIAL_CALLS_TABLE,
        (name for name in output.files(PARTIAL_CALLS_TABLE) if name.removesuffix(PARQUET_SUFFIX) in parts),
    )


def finalize(spark: "SparkSession", folder: Path, parts: Sequence[str], division: SharedBuckets) -> None:
    """Settle these parts, each in one task of Spark."""
    tasks = [
        FinalizeTask(part, str(folder), np.intersect1d(_buckets(folder, part), division.buckets)) for part in parts
    ]
    if tasks:
        spark.sparkContext.parallelize(tasks, len(tasks)).foreach(_finalize_part)


def is_finalized_file(name: str) -> bool:
    """Say whether a file of a table has rows from here."""
    return name[10:].startswith(_PART_SEPARATOR)


def _source_part(name: str) -> str:
    """Return the part whose rows a file has; an empty text if it is not from here."""
    return name[10 + len(_PART_SEPARATOR) : -len(PARQUET_SUFFIX)] if is_finalized_file(name) else ""
