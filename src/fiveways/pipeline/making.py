"""From what was written where segments were read to all other tables: which days anew, which as they were.

The registry of `tables` says what each table is made from and on which rows of its inputs a row depends. Here Spark
reads files and writes files, one table after the other, or several at a time where none needs the other.
"""

import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from fiveways.pipeline import digest, settling
from fiveways.pipeline.output import END, Output
from fiveways.pipeline.state import Part
from fiveways.pipeline.tables import TABLES, Table

GROUP: Final = "fiveways"
"""The job group of all that Spark does for us."""
_AT_ONCE: Final = 3
"""Tables in the making: one task of a small table leaves the other cores idle."""
_FILE: Final = 32 << 20
"""Bytes of input that are worth a task and a file of their own."""
_LARGE: Final = 64 << 20
"""Bytes of input from which on plans are looked at again while they are carried out."""
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_STAGE: Final = "_stage"
_PATTERN: Final = re.compile(r"([\\*?{}\[\],])")
_PARTITION: Final = "_date"
_WRITTEN: Final = {**digest.SCHEMAS, settling.SHARED: digest.SCHEMAS["_pieces"]}
WRITTEN: Final = {name: from_arrow_schema(schema) for name, schema in _WRITTEN.items()}
"""Columns of what is written where segments are read."""


class Making:
    """The next tables of one output."""

    def __init__(self, spark: SparkSession, output: Output, parts: Collection[Part], plan: "Plan") -> None:
        self._spark = spark
        self._output = output
        self._parts = parts
        self._plan = plan
        self._schemas: dict[str, StructType] = dict(WRITTEN)
        self._lock = threading.Lock()

    def run(self, made: Callable[[str], None]) -> dict[str, int]:
        """Make all tables, and say so of each; return how many rows they have."""
        rows = {name: self._output.complete(name, schema) for name, schema in _WRITTEN.items()}
        self._set_planning()
        waiting = [table for table in TABLES.values() if table.inputs]
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="making", initializer=self._join)
        going: dict[Future[int], Table] = {}
        try:
            while waiting or going:
                ready = [table for table in waiting if all(name in rows for name in table.inputs)]
                waiting = [table for table in waiting if table not in ready]
                going |= {pool.submit(self._make, table): table for table in ready}
                for future in wait(going, return_when=FIRST_COMPLETED).done:
                    table = going.pop(future)
                    rows[table.name] = future.result()
                    made(table.name)
        except BaseException as exc:
            with suppress(Exception):  # Spark may be gone
                self._spark.sparkContext.cancelJobGroup(GROUP)
            # An interrupt ends Spark without waiting, and these threads end with it.
            pool.shutdown(wait=isinstance(exc, Exception), cancel_futures=True)
            raise
        pool.shutdown()
        shutil.rmtree(self._output.next / _STAGE, ignore_errors=True)
        return rows

    def _set_planning(self) -> None:
        """Let Spark think again after each stage only where that may save more than it costs, or the user says so."""
        if not self._spark.sparkContext.getConf().contains(_ADAPTIVE):
            is_large = sum(part.size for part in self._parts) >= _LARGE
            self._spark.conf.set(_ADAPTIVE, is_large)

    def _join(self) -> None:
        self._spark.sparkContext.setJobGroup(GROUP, GROUP, interruptOnCancel=True)

    def _make(self, table: Table) -> int:
        reads, writes = self._plan.of(table)
        kept = [name for name in self._output.files(table.name) if _is_kept(name, writes)]
        self._output.keep(table.name, kept)
        if table.name in settling.SETTLED and not any(self._paths(name, reads) for name in table.inputs):
            # All its rows are there, and nothing is to be planned.
            return self._complete(table.name, from_arrow_schema(settling.SETTLED[table.name]))
        frame = table.function(*(self._frame(name, reads) for name in table.inputs))
        if writes:
            self._write(table.name, frame, writes)
        return self._complete(table.name, frame.schema)

    def _complete(self, name: str, schema: StructType) -> int:
        with self._lock:
            self._schemas[name] = schema
        return self._output.complete(name, _arrow(schema))

    def _frame(self, name: str, dates: frozenset[str]) -> DataFrame:
        """Return a table that is made already, at least all rows of these days."""
        paths, schema = self._paths(name, dates), self._schemas[name]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def _paths(self, name: str, dates: frozenset[str]) -> list[str]:
        folder = self._output.next / name
        if name in WRITTEN:
            names: Iterable[str] = (f"{part.name}{END}" for part in self._parts if not dates.isdisjoint(part.dates))
        else:
            names = (each.name for each in folder.iterdir() if each.name[:10] in dates)
        return [location(path) for path in sorted(map(folder.joinpath, names)) if path.exists()]

    def _write(self, name: str, frame: DataFrame, dates: Collection[str]) -> None:
        """Write the rows of these days, each day into files of its own."""
        stage = self._output.next / _STAGE / name
        if not self._plan.is_all(dates):
            frame = frame.filter(F.col("date").isin(*dates))
        if (few := self._files_of(dates)) < self._spark.sparkContext.defaultParallelism:
            frame = frame.coalesce(few)
        if len(dates) == 1:
            frame.write.parquet(f"file://{stage}")
            folders = {next(iter(dates)): stage}
        else:
            frame.withColumn(_PARTITION, F.col("date")).write.partitionBy(_PARTITION).parquet(f"file://{stage}")
            folders = {each.name.partition("=")[2]: each for each in stage.glob(f"{_PARTITION}=*")}
        for date, folder in folders.items():
            self._take(name, date, folder)

    def _files_of(self, dates: Collection[str]) -> int:
        """Return into how many files these days should go, as if the table were as large as what it is made from."""
        size = sum(part.size for part in self._parts if not set(dates).isdisjoint(part.dates))
        return max(1, size // _FILE)

    def _take(self, name: str, date: str, folder: Path) -> None:
        target = self._output.next / name
        for number, path in enumerate(sorted(folder.glob(f"part-*{END}"))):
            path.rename(target / f"{date}-{number:03}{END}")


def _is_kept(name: str, writes: Collection[str]) -> bool:
    """Whether a file of Spark's stays as it is; what is settled has been seen to."""
    return name[:10] not in writes and name[:5] != "empty" and not settling.is_settled(name)


def location(path: Path) -> str:
    """Return how Spark is told to read a file; some characters would be a pattern to it."""
    return "file://" + _PATTERN.sub(r"\\\1", str(path))


class Plan:
    """Which days each table is read of, and written anew."""

    def __init__(
        self,
        dates: Collection[str],
        fresh: Collection[str],
        touched: Collection[str],
        linked: Collection[str],
    ) -> None:
        self._all = frozenset(dates)
        self._fresh = frozenset(fresh)
        """Days of which there are new records."""
        self._touched = frozenset(touched)
        """And days with operations that these records belong to."""
        self._linked = frozenset(linked)
        """And days that have operations in common with those."""
        self._written: dict[str, frozenset[str]] = dict.fromkeys(WRITTEN, self._fresh)

    def is_all(self, dates: Collection[str]) -> bool:
        """Say whether these are all days there are."""
        return self._all <= frozenset(dates)

    def of(self, table: Table) -> tuple[frozenset[str], frozenset[str]]:
        """Return the days that a table's inputs are read of, and those that are written."""
        if table.scope == "date":
            days = frozenset[str]().union(*(self._written[name] for name in table.inputs))
            reads = writes = days
        elif table.scope == "run" and set(table.inputs) <= set(WRITTEN):
            reads, writes = self._linked, self._touched
        else:
            reads = writes = self._all
        self._written[table.name] = writes
        return reads, writes


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
