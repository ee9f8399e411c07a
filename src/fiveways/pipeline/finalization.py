"""Finalization: write the calls and orphans that need no join.

A part is the output of one decoded segment, or of several after compaction. Each partial call has a bucket, computed
from its key. A bucket is shared if more than one segment has partial calls in it. Calls and orphans in unshared buckets
are final, and each part writes its own. Partial calls in shared buckets go to the table `_shared` for `silver.calls`
and `silver.orphans`. If a new segment shares a bucket with an older part, that part is finalized again.
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
from fiveways.pipeline.arrays import Int64Array
from fiveways.pipeline.pairing import PARTIAL_CALLS, build_calls, build_orphans
from fiveways.pipeline.segment_decoder import ParquetPartWriter
from fiveways.pipeline.table_directory import PARQUET_SUFFIX, TableDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTIAL_CALLS_TABLE: Final = "_shared"
FINALIZED_SCHEMAS: Final = {"calls": arrow_schemas.CALLS, "orphans": arrow_schemas.ORPHANS}
"""Tables with finalized rows; their other rows are computed from the table `_shared`."""
_BUCKETS_TABLE: Final = "_buckets"
_PART_SEPARATOR: Final = "-of-"
"""Separates the date and the part in the name of a file with finalized rows."""


@dataclass(frozen=True, slots=True)
class FinalizeTask:
    """A part to finalize."""

    part: str
    output_directory: str
    """Directory with one folder per table."""
    shared_buckets: Int64Array
    """Shared buckets of this part."""


def _finalize_part(task: FinalizeTask) -> None:
    """Write the calls and orphans of a part's unshared buckets, and its partial calls of shared buckets."""
    directory = Path(task.output_directory)
    shared = ParquetPartWriter(directory / PARTIAL_CALLS_TABLE, task.part, PARTIAL_CALLS)
    files: dict[tuple[str, str], ParquetPartWriter] = {}
    for partial_calls in segment_decoder.read_row_groups([directory / "_pieces" / f"{task.part}{PARQUET_SUFFIX}"]):
        unshared = partial_calls
        if len(task.shared_buckets):
            is_shared = np.isin(partial_calls["bucket"].to_numpy(), task.shared_buckets)
            shared.write(partial_calls.filter(pa.array(is_shared)))
            unshared = partial_calls.filter(pa.array(~is_shared))
        for table, rows in (("calls", build_calls(unshared)), ("orphans", build_orphans(unshared))):
            for date, rows_of_date in _rows_by_date(rows):
                key = table, date
                if key not in files:
                    files[key] = ParquetPartWriter(
                        directory / table, f"{date}{_PART_SEPARATOR}{task.part}", FINALIZED_SCHEMAS[table]
                    )
                files[key].write(rows_of_date)
    for file in (shared, *files.values()):
        file.close()


def _rows_by_date(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    dates = rows["date"].unique().to_pylist()
    for date in dates:
        yield date, rows if len(dates) == 1 else rows.filter(pc.equal(rows["date"], date))


@dataclass(frozen=True, slots=True)
class SharedBuckets:
    """Buckets in which several segments have partial calls, and the older parts with newly shared buckets."""

    buckets: Int64Array
    changed_parts: frozenset[str]


def find_shared_buckets(folder: Path, kept: Sequence[str], new: Sequence[str]) -> SharedBuckets:
    """Compare the buckets of the parts finalized before (`kept`) and of the new ones."""
    old = {part: _buckets(folder, part) for part in kept}
    shared = _repeated_values([*old.values(), *(_buckets(folder, part) for part in new)])
    newly_shared = np.setdiff1d(shared, _repeated_values(old.values()), assume_unique=True)
    changed = (part for part, buckets in old.items() if len(newly_shared) and np.isin(buckets, newly_shared).any())
    return SharedBuckets(shared, frozenset(changed))


def _buckets(folder: Path, part: str) -> Int64Array:
    """Return the buckets of a part; a bucket that several of its segments have is repeated."""
    path = folder / _BUCKETS_TABLE / f"{part}{PARQUET_SUFFIX}"
    if not path.exists():
        return np.zeros(0, np.int64)
    return np.asarray(parquet.read_table(path, use_threads=False)["bucket"].to_numpy())


def _repeated_values(arrays: Iterable[Int64Array]) -> Int64Array:
    values, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *arrays]), return_counts=True)
    return np.asarray(values[counts > 1])


def carry_over_finalized(output: TableDirectory, parts: Collection[str]) -> None:
    """Carry over the finalized rows of these parts."""
    for table in FINALIZED_SCHEMAS:
        output.carry_over(table, (name for name in output.files(table) if _source_part(name) in parts))
    output.carry_over(
        PARTIAL_CALLS_TABLE,
        (name for name in output.files(PARTIAL_CALLS_TABLE) if name.removesuffix(PARQUET_SUFFIX) in parts),
    )


def finalize(spark: "SparkSession", folder: Path, parts: Sequence[str], shared: SharedBuckets) -> None:
    """Finalize parts, one Spark task for each."""
    tasks = [FinalizeTask(part, str(folder), np.intersect1d(_buckets(folder, part), shared.buckets)) for part in parts]
    if tasks:
        spark.sparkContext.parallelize(tasks, len(tasks)).foreach(_finalize_part)


def is_finalized_file(name: str) -> bool:
    """Return True if a file of a table has finalized rows."""
    return name[10:].startswith(_PART_SEPARATOR)


def _source_part(name: str) -> str:
    """Return the part that a finalized file comes from; an empty string for other files."""
    return name[10 + len(_PART_SEPARATOR) : -len(PARQUET_SUFFIX)] if is_finalized_file(name) else ""
