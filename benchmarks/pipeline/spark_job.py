"""The core job in Spark: Python workers decode segments into partial calls, Spark joins these into calls."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from benchmarks.pipeline.captures import Capture
from fiveways.journal import reader
from fiveways.pipeline import batch_run, finalization, spark_session
from fiveways.pipeline.decode import decode
from fiveways.pipeline.pairing import pair_messages
from fiveways.pipeline.segment_decoder import SCHEMAS, ParquetPartWriter, unique_buckets
from fiveways.pipeline.spark_session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = SparkSettings("local[2]", name="bench")


@contextmanager
def running() -> "Iterator[SparkSession]":
    """Start Spark, configured as in `fiveways pipeline run`."""
    with spark_session.open_spark(SETTINGS) as spark:
        yield spark


def core(spark: "SparkSession", capture: Capture, out: Path) -> None:
    """Write the folders `calls` and `slo`."""
    from fiveways.pipeline.gold.slo import slo  # noqa: PLC0415  needs pyspark
    from fiveways.pipeline.silver.calls import calls  # noqa: PLC0415

    shutil.rmtree(out, ignore_errors=True)
    tasks = [(path, f"{number:04}", str(out)) for number, path in enumerate(capture.segments)]
    parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(_decode_and_pair).collect()
    division = finalization.find_shared_buckets(out, [], parts)
    finalization.finalize(spark, out, parts, division)
    if (out / finalization.PARTIAL_CALLS_TABLE).exists():
        calls(spark.read.parquet(f"file://{out}/{finalization.PARTIAL_CALLS_TABLE}")).write.mode("append").parquet(
            f"file://{out}/calls"
        )
    slo(spark.read.parquet(f"file://{out}/calls")).coalesce(1).write.parquet(f"file://{out}/slo")


def _decode_and_pair(task: tuple[str, str, str]) -> str:
    """Decode one segment and pair its messages; return the name of the part."""
    path, name, folder = task
    messages = pa.concat_tables([decode(batch).messages for batch in reader.read_batches(path, encoded=True)])
    pieces = pair_messages(messages)
    for table, rows in (("_pieces", pieces), ("_buckets", unique_buckets(pieces))):
        file = ParquetPartWriter(Path(folder, table), name, SCHEMAS[table])
        file.write(rows)
        file.close()
    return name


def everything(spark: "SparkSession", capture: Capture, out: Path) -> None:
    """Write all tables, as `fiveways pipeline run --full` does."""
    shutil.rmtree(out, ignore_errors=True)
    batch_run.run(batch_run.RunOptions(str(capture.journal), out, SETTINGS, is_full=True), spark=spark)
