"""The core job in Spark, with the functions of the pipeline: segments become pieces in Python workers, pieces calls."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from benchmarks.pipeline.captures import Capture
from fiveways.journal import reader
from fiveways.pipeline import job, session
from fiveways.pipeline.decode import decode
from fiveways.pipeline.digest import File, write_pieces
from fiveways.pipeline.pieces import PIECES, pieces_of
from fiveways.pipeline.session import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = Settings("local[2]", name="bench")


@contextmanager
def running() -> "Iterator[SparkSession]":
    """Have Spark, set as `fiveways pipeline run` sets it."""
    with session.running(SETTINGS) as spark:
        yield spark


def core(spark: "SparkSession", capture: Capture, out: Path) -> None:
    """Write the folders `calls` and `slo`."""
    from fiveways.pipeline.gold.slo import slo  # noqa: PLC0415  pyspark is here now
    from fiveways.pipeline.silver.calls import calls  # noqa: PLC0415

    shutil.rmtree(out, ignore_errors=True)
    tasks = [(path, f"{number:04}", str(out / "pieces")) for number, path in enumerate(capture.segments)]
    spark.sparkContext.parallelize(tasks, len(tasks)).map(_paired).collect()
    found = calls(spark.read.parquet(f"file://{out}/pieces"))
    found.write.parquet(f"file://{out}/calls")
    slo(spark.read.parquet(f"file://{out}/calls")).coalesce(1).write.parquet(f"file://{out}/slo")


def _paired(task: tuple[str, str, str]) -> int:
    """Decode one segment, and match what is in it."""
    path, name, folder = task
    messages = pa.concat_tables([decode(batch).messages for batch in reader.read_batches(path, encoded=True)])
    file = File(Path(folder), name, PIECES)
    write_pieces(file, pieces_of(messages))
    return file.close()


def everything(spark: "SparkSession", capture: Capture, out: Path) -> None:
    """Make all tables, as `fiveways pipeline run --full` does."""
    shutil.rmtree(out, ignore_errors=True)
    job.run(job.Wish(str(capture.journal), out, SETTINGS, full=True), spark=spark)
