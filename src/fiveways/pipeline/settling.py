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

from fiveways.pipeline import columns, digest
from fiveways.pipeline.digest import File
from fiveways.pipeline.output import END, Output
from fiveways.pipeline.pieces import PIECES, calls_of, orphans_of
from fiveways.pipeline.pieces.columns import Longs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED: Final = "_shared"
SETTLED: Final = {"calls": columns.CALLS, "orphans": columns.ORPHANS}
"""Tables that have rows from here; each has its others from a function of `_shared`."""
_BUCKETS: Final = "_buckets"
_OF: Final = "-of-"
"""Between the day and the part, in the name of a file with rows from here."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part to be settled."""

    part: str
    into: str
    """The directory with a folder for each table."""
    split: Longs
    """Its buckets that others have pieces in too."""


def _settle(task: Task) -> None:
    """Write the calls and orphans that this part alone knows of, and put aside all other pieces of it."""
    into = Path(task.into)
    shared = File(into / SHARED, task.part, PIECES)
    files: dict[tuple[str, str], File] = {}
    for pieces in digest.read([into / "_pieces" / f"{task.part}{END}"]):
        alone = pieces
        if len(task.split):
            is_split = np.isin(pieces["bucket"].to_numpy(), task.split)
            shared.write(pieces.filter(pa.array(is_split)))
            alone = pieces.filter(pa.array(~is_split))
        for table, rows in (("calls", calls_of(alone)), ("orphans", orphans_of(alone))):
            for day, of_day in _by_date(rows):
                key = table, day
                if key not in files:
                    files[key] = File(into / table, f"{day}{_OF}{task.part}", SETTLED[table])
                files[key].write(of_day)
    for file in (shared, *files.values()):
        file.close()


def _by_date(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = rows["date"].unique().to_pylist()
    for day in days:
        yield day, rows if len(days) == 1 else rows.filter(pc.equal(rows["date"], day))


@dataclass(frozen=True, slots=True)
class Division:
    """Which buckets several segments have pieces in, and for which of the older parts that is news."""

    split: Longs
    changed: frozenset[str]


def divided(folder: Path, kept: Sequence[str], fresh: Sequence[str]) -> Division:
    """Look at the buckets of all parts: of those that are settled already, and of the new ones."""
    old = {part: _buckets(folder, part) for part in kept}
    split = _split([*old.values(), *(_buckets(folder, part) for part in fresh)])
    news = np.setdiff1d(split, _split(old.values()), assume_unique=True)
    changed = (part for part, has in old.items() if len(news) and np.isin(has, news).any())
    return Division(split, frozenset(changed))


def _buckets(folder: Path, part: str) -> Longs:
    """Return the buckets of a part; one that several segments in it have is there several times."""
    path = folder / _BUCKETS / f"{part}{END}"
    if not path.exists():
        return np.zeros(0, np.int64)
    return np.asarray(parquet.read_table(path, use_threads=False)["bucket"].to_numpy())


def _split(each: Iterable[Longs]) -> Longs:
    values, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *each]), return_counts=True)
    return np.asarray(values[counts > 1])


def keep(output: Output, parts: Collection[str]) -> None:
    """Take over what these parts have settled before."""
    for table in SETTLED:
        output.keep(table, (name for name in output.files(table) if _part_of(name) in parts))
    output.keep(SHARED, (name for name in output.files(SHARED) if name.removesuffix(END) in parts))


def settle(spark: "SparkSession", folder: Path, parts: Sequence[str], division: Division) -> None:
    """Settle these parts, each in one task of Spark."""
    tasks = [Task(part, str(folder), np.intersect1d(_buckets(folder, part), division.split)) for part in parts]
    if tasks:
        spark.sparkContext.parallelize(tasks, len(tasks)).foreach(_settle)


def is_settled(name: str) -> bool:
    """Say whether a file of a table has rows from here."""
    return name[10:].startswith(_OF)


def _part_of(name: str) -> str:
    """Return the part whose rows a file has; an empty text if it is not from here."""
    return name[10 + len(_OF) : -len(END)] if is_settled(name) else ""
