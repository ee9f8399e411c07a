"""Builder of all tables that are computed from the decoded ones, limited to the days that changed.

The registry in `tables` names the inputs of each table and the rows of them on which a row depends. Spark reads and
writes Parquet files; tables that do not depend on each other are built in parallel.
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

from fiveways.pipeline import finalization, segment_decoder
from fiveways.pipeline.state import Part
from fiveways.pipeline.table_directory import PARQUET_SUFFIX, TableDirectory
from fiveways.pipeline.tables import TABLES, Table

JOB_GROUP: Final = "fiveways"
"""Job group of all Spark jobs of the pipeline."""
_PARALLEL_TABLES: Final = 3
"""Tables built at once; a small table has one task, which would leave the other cores idle."""
_BYTES_PER_FILE: Final = 32 << 20
"""Bytes of input per task and output file."""
_LARGE: Final = 64 << 20
"""Bytes of input above which adaptive query execution is worth its cost."""
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_STAGING_DIRECTORY: Final = "_stage"
_PATTERN: Final = re.compile(r"([\\*?{}\[\],])")
_PARTITION_COLUMN: Final = "_date"
_DECODED_ARROW_SCHEMAS: Final = {
    **segment_decoder.SCHEMAS,
    finalization.PARTIAL_CALLS_TABLE: segment_decoder.SCHEMAS["_pieces"],
}
DECODED_SCHEMAS: Final = {name: from_arrow_schema(schema) for name, schema in _DECODED_ARROW_SCHEMAS.items()}
"""Schemas of the tables that the decoder writes."""


class TableBuilder:
    """Builder of the next tables of an output directory."""

    def __init__(
        self, spark: SparkSession, output: TableDirectory, parts: Collection[Part], plan: "RebuildPlan"
    ) -> None:
        self._spark = spark
        self._output = output
        self._parts = parts
        self._plan = plan
        self._schemas: dict[str, StructType] = dict(DECODED_SCHEMAS)
        self._lock = threading.Lock()

    def run(self, on_table: Callable[[str], None]) -> dict[str, int]:
        """Build all tables, calling `on_table` after each; return their row counts."""
        rows = {name: self._output.complete_table(name, schema) for name, schema in _DECODED_ARROW_SCHEMAS.items()}
        self._configure_adaptive_planning()
        waiting = [table for table in TABLES.values() if table.inputs]
        pool = ThreadPoolExecutor(_PARALLEL_TABLES, thread_name_prefix="build", initializer=self._join_job_group)
        running: dict[Future[int], Table] = {}
        try:
            while waiting or running:
                ready = [table for table in waiting if all(name in rows for name in table.inputs)]
                waiting = [table for table in waiting if table not in ready]
                running |= {pool.submit(self._build_table, table): table for table in ready}
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    table = running.pop(future)
                    rows[table.name] = future.result()
                    on_table(table.name)
        except BaseException as exc:
            with suppress(Exception):  # Spark may have stopped
                self._spark.sparkContext.cancelJobGroup(JOB_GROUP)
            # An interrupt stops Spark at once, and these threads end with it.
            pool.shutdown(wait=isinstance(exc, Exception), cancel_futures=True)
            raise
        pool.shutdown()
        shutil.rmtree(self._output.next_path / _STAGING_DIRECTORY, ignore_errors=True)
        return rows

    def _configure_adaptive_planning(self) -> None:
        """Enable adaptive query execution for large input only, unless the user has set it."""
        if not self._spark.sparkContext.getConf().contains(_ADAPTIVE):
            is_large = sum(part.size for part in self._parts) >= _LARGE
            self._spark.conf.set(_ADAPTIVE, is_large)

    def _join_job_group(self) -> None:
        self._spark.sparkContext.setJobGroup(JOB_GROUP, JOB_GROUP, interruptOnCancel=True)

    def _build_table(self, table: Table) -> int:
        reads, writes = self._plan.days_of(table)
        kept = [name for name in self._output.files(table.name) if _is_unchanged_file(name, writes)]
        self._output.carry_over(table.name, kept)
        if table.name in finalization.FINALIZED_SCHEMAS and not any(
            self._table_paths(name, reads) for name in table.inputs
        ):
            # All rows are finalized; there is nothing to compute.
            return self._complete_table(table.name, from_arrow_schema(finalization.FINALIZED_SCHEMAS[table.name]))
        frame = table.function(*(self._read_table(name, reads) for name in table.inputs))
        if writes:
            self._write(table.name, frame, writes)
        return self._complete_table(table.name, frame.schema)

    def _complete_table(self, name: str, schema: StructType) -> int:
        with self._lock:
            self._schemas[name] = schema
        return self._output.complete_table(name, _arrow(schema))

    def _read_table(self, name: str, dates: frozenset[str]) -> DataFrame:
        """Return a table that is built, with at least all rows of these days."""
        paths, schema = self._table_paths(name, dates), self._schemas[name]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def _table_paths(self, name: str, dates: frozenset[str]) -> list[str]:
        folder = self._output.next_path / name
        if name in DECODED_SCHEMAS:
            names: Iterable[str] = (
                f"{part.name}{PARQUET_SUFFIX}" for part in self._parts if not dates.isdisjoint(part.dates)
            )
        else:
            names = (path.name for path in folder.iterdir() if path.name[:10] in dates)
        return [spark_path(path) for path in sorted(map(folder.joinpath, names)) if path.exists()]

    def _write(self, name: str, frame: DataFrame, dates: Collection[str]) -> None:
        """Write the rows of these days, each day to separate files."""
        stage = self._output.next_path / _STAGING_DIRECTORY / name
        if not self._plan.is_all(dates):
            frame = frame.filter(F.col("date").isin(*dates))
        if (few := self._file_count(dates)) < self._spark.sparkContext.defaultParallelism:
            frame = frame.coalesce(few)
        if len(dates) == 1:
            frame.write.parquet(f"file://{stage}")
            folders = {next(iter(dates)): stage}
        else:
            frame.withColumn(_PARTITION_COLUMN, F.col("date")).write.partitionBy(_PARTITION_COLUMN).parquet(
                f"file://{stage}"
            )
            folders = {path.name.partition("=")[2]: path for path in stage.glob(f"{_PARTITION_COLUMN}=*")}
        for date, folder in folders.items():
            self._move_files(name, date, folder)

    def _file_count(self, dates: Collection[str]) -> int:
        """Return the number of files for these days, from the size of the decoded input."""
        size = sum(part.size for part in self._parts if not set(dates).isdisjoint(part.dates))
        return max(1, size // _BYTES_PER_FILE)

    def _move_files(self, name: str, date: str, folder: Path) -> None:
        target = self._output.next_path / name
        for number, path in enumerate(sorted(folder.glob(f"part-*{PARQUET_SUFFIX}"))):
            path.rename(target / f"{date}-{number:03}{PARQUET_SUFFIX}")


def _is_unchanged_file(name: str, writes: Collection[str]) -> bool:
    """Return True for a file that Spark wrote for another day; finalized files are carried over separately."""
    return name[:10] not in writes and name[:5] != "empty" and not finalization.is_finalized_file(name)


def spark_path(path: Path) -> str:
    """Return the URL of a file for Spark, with its pattern characters escaped."""
    return "file://" + _PATTERN.sub(r"\\\1", str(path))


class RebuildPlan:
    """The days that are read and written for each table."""

    def __init__(
        self,
        dates: Collection[str],
        new: Collection[str],
        touched: Collection[str],
        linked: Collection[str],
    ) -> None:
        self._all_days = frozenset(dates)
        self._new_days = frozenset(new)
        """Days with new records."""
        self._touched_days = frozenset(touched)
        """New days, and days with operations to which the new records belong."""
        self._linked_days = frozenset(linked)
        """Touched days, and days that have operations in common with them."""
        self._written_days: dict[str, frozenset[str]] = dict.fromkeys(DECODED_SCHEMAS, self._new_days)

    def is_all(self, dates: Collection[str]) -> bool:
        """Return True if these are all days of the tables."""
        return self._all_days <= frozenset(dates)

    def days_of(self, table: Table) -> tuple[frozenset[str], frozenset[str]]:
        """Return the days to read of a table's inputs and the days to write."""
        if table.scope == "date":
            days = frozenset[str]().union(*(self._written_days[name] for name in table.inputs))
            reads = writes = days
        elif table.scope == "run" and set(table.inputs) <= set(DECODED_SCHEMAS):
            reads, writes = self._linked_days, self._touched_days
        else:
            reads = writes = self._all_days
        self._written_days[table.name] = writes
        return reads, writes


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
