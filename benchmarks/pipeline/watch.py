"""`fiveways pipeline watch`: how soon a closed segment is in the tables, and how fast a backlog is worked off."""

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
"""Seconds for one segment."""


@dataclass(frozen=True)
class WatchResult:
    """What was found."""

    lags: list[float]
    """Seconds from the landing of a segment to its rows in gold, for segments that came one by one."""
    rows: float
    """Records in a second of a backlog."""
    records: int
    """Of one of the segments that came one by one."""

    def __str__(self) -> str:
        each = f"median {median(self.lags):.1f} s, longest {max(self.lags):.1f} s, of {len(self.lags)}"
        return (
            "watch, all tables\n"
            f"  a closed segment of {self.records:,} records is in gold after: {each}\n"
            f"  a backlog: {self.rows:,.0f} records/s"
        )


def measured(spark: "SparkSession", small: Capture, backlog: Capture, place: Path) -> WatchResult:
    """Let segments come one by one, then many at once."""
    lags = _one_by_one(spark, small, place)
    return WatchResult(lags, _at_once(spark, backlog, place), small.frames // max(1, len(small.segments)))


def _one_by_one(spark: "SparkSession", capture: Capture, place: Path) -> list[float]:
    journal, out = place / "landing", place / "followed"
    for each in (journal, out, place / ".followed.checkpoint"):
        shutil.rmtree(each, ignore_errors=True)
    journal.mkdir(parents=True)
    lags: list[float] = []
    stepped = threading.Event()

    def told(step: streaming_run.IncrementReport) -> None:
        lags.append(step.lag)
        stepped.set()

    wish = streaming_run.WatchOptions(str(journal), out, SETTINGS, every=0.5)
    watching = threading.Thread(target=streaming_run.watch, args=(wish, told), kwargs={"spark": spark}, daemon=True)
    watching.start()
    try:
        for path in map(Path, capture.segments):
            stepped.clear()
            # It lands as the journal's own segments do: whole, under its name.
            shutil.copy(path, journal / f".{path.name}")
            (journal / f".{path.name}").rename(journal / path.name)
            if not stepped.wait(_PATIENCE):
                raise RuntimeError(f"{path.name} was not in the tables after {_PATIENCE:.0f} s")
    finally:
        for query in spark.streams.active:
            query.stop()
        watching.join(_PATIENCE)
    return lags[1:]  # with the first one all is new


def _at_once(spark: "SparkSession", capture: Capture, place: Path) -> float:
    out = place / "caught-up"
    for each in (out, place / ".caught-up.checkpoint"):
        shutil.rmtree(each, ignore_errors=True)
    started = time.perf_counter()
    wish = streaming_run.WatchOptions(str(capture.journal), out, SETTINGS, until_end=True)
    streaming_run.watch(wish, lambda _step: None, spark=spark)
    return capture.frames / (time.perf_counter() - started)
