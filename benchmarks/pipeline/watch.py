"""`fiveways pipeline watch`: the delay of a closed segment, and the throughput of a backlog."""

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.pipeline.captures import Capture
from benchmarks.pipeline.spark_job import SETTINGS
from fiveways.pipeline import streaming_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE: Final = 120.0
"""Timeout in seconds for one segment."""


@dataclass(frozen=True)
class WatchResult:
    """The measured delays and rates."""

    lags: list[float]
    """Seconds from the arrival of a segment to its rows in gold, for segments that arrive one by one."""
    rows: float
    """Records per second of a backlog."""
    records: int
    """Records per segment that arrived alone."""

    def __str__(self) -> str:
        summary = f"median {median(self.lags):.1f} s, longest {max(self.lags):.1f} s, of {len(self.lags)}"
        return (
            "watch, all tables\n"
            f"  a closed segment of {self.records:,} records is in gold after: {summary}\n"
            f"  a backlog: {self.rows:,.0f} records/s"
        )


def measure(spark: "SparkSession", small: Capture, backlog: Capture, folder: Path) -> WatchResult:
    """Let segments arrive one by one, then many at once."""
    lags = _one_by_one(spark, small, folder)
    return WatchResult(lags, _at_once(spark, backlog, folder), small.frames // max(1, len(small.segments)))


def _one_by_one(spark: "SparkSession", capture: Capture, folder: Path) -> list[float]:
    journal, out = folder / "landing", folder / "followed"
    for obsolete in (journal, out, folder / ".followed.checkpoint"):
        shutil.rmtree(obsolete, ignore_errors=True)
    journal.mkdir(parents=True)
    lags: list[float] = []
    stepped = threading.Event()

    def on_step(step: streaming_run.IncrementReport) -> None:
        lags.append(step.lag)
        stepped.set()

    options = streaming_run.WatchOptions(str(journal), out, SETTINGS, every=0.5)
    watching = threading.Thread(
        target=streaming_run.watch, args=(options, on_step), kwargs={"spark": spark}, daemon=True
    )
    watching.start()
    try:
        for path in map(Path, capture.segments):
            stepped.clear()
            # Like a segment of the journal, it appears complete under its final name.
            shutil.copy(path, journal / f".{path.name}")
            (journal / f".{path.name}").rename(journal / path.name)
            if not stepped.wait(_PATIENCE):
                raise RuntimeError(f"{path.name} was not in the tables after {_PATIENCE:.0f} s")
    finally:
        for query in spark.streams.active:
            query.stop()
        watching.join(_PATIENCE)
    return lags[1:]  # the first segment includes warm-up


def _at_once(spark: "SparkSession", capture: Capture, folder: Path) -> float:
    out = folder / "caught-up"
    for obsolete in (out, folder / ".caught-up.checkpoint"):
        shutil.rmtree(obsolete, ignore_errors=True)
    started = time.perf_counter()
    options = streaming_run.WatchOptions(str(capture.journal), out, SETTINGS, until_end=True)
    streaming_run.watch(options, lambda _step: None, spark=spark)
    return capture.frames / (time.perf_counter() - started)
