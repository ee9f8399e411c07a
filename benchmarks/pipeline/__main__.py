"""The pipeline on millions of frames: Spark beside DuckDB, all tables beside the core job, and its growth.

    python -m benchmarks.pipeline [--quick] [--frames 10000000] [--rounds 3] [--parts core,cold,all,growth,watch]

The core job decodes frames, matches requests with responses, and writes two tables: `calls` with all its columns, and
`slo` with exact percentiles by nearest rank. Spark (`local[2]`, configured as in `fiveways pipeline run`) and DuckDB
(two threads, the statements of duck.sql) read the same Parquet files and write both tables as Parquet. The tables are
compared row by row, with each other and with the expected tables of the capture. The frames are calls in the four text
encodings.

    core     both in turn, in warmed-up processes
    cold     both with process start: imports, JVM, first use
    all      all tables of a capture in six encodings, beside the core job on as many frames
    growth   the core job on a tenth and on three times as many frames
    watch    the stream: from the close of a segment to its rows in gold, and a backlog

Captures are written to --folder and stay there. Tables have medians; ratios are taken within a round. CPU-s/M is the
CPU time per million frames, with that of the JVM and of Python workers.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.hub.bench import rotated, show_progress
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table
from benchmarks.hub.routers import ROOT, environment
from benchmarks.pipeline import captures, duckdb_job, spark_job, stopwatch
from benchmarks.pipeline.captures import Capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[[], None]
SPARK: Final = "Spark"
DUCKDB: Final = "DuckDB"
PARTS: Final = ("core", "cold", "all", "growth", "watch")
_FRAMES: Final = 10_000_000
_QUICK: Final = 1_000_000
_SMALL: Final = 100_000
"""Frames of the capture whose segments arrive one by one."""


@dataclass
class PipelineBenchResults:
    """The results of one run."""

    tables: dict[str, Table] = field(default_factory=dict)
    targets: list[PerformanceTarget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        others = [sample.others for table in self.tables.values() for sample in table.all()]
        blocks = [*map(str, self.tables.values()), *self.notes]
        if self.targets:
            blocks.append("\n".join(["targets, as median (lowest to highest round)", *map(str, self.targets)]))
        if others:
            doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
            blocks.append(f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.")
        return "\n\n".join(blocks)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status depends only on the equality of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure with a tenth of the frames")
    parser.add_argument("--frames", type=int, help=f"number of frames (default: {_FRAMES:,}, with --quick {_QUICK:,})")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 3, with --quick 2)")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to measure, separated by commas")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fiveways-bench")
    parser.add_argument("--once", choices=(SPARK, DUCKDB), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    frames = options.frames or (_QUICK if options.quick else _FRAMES)
    if options.once:
        _once(options.once, captures.texts(options.folder, frames), options.folder / "cold")
        return 0
    bench = Bench(options.folder, frames, options.rounds or (2 if options.quick else 3))
    bench.run([part for part in PARTS if part in options.parts.split(",")])
    print(bench.results)
    return 1 if bench.differences else 0


def _once(engine: str, capture: Capture, out: Path) -> None:
    """Run the core job once, in a new process."""
    if engine == DUCKDB:
        duckdb_job.core(capture, out / "duckdb")
        return
    with spark_job.running() as spark:
        spark_job.core(spark, capture, out / "spark")


@dataclass
class Bench:
    """One benchmark run."""

    folder: Path
    frames: int
    rounds: int
    results: PipelineBenchResults = field(default_factory=PipelineBenchResults)
    differences: list[str] = field(default_factory=list)

    def run(self, parts: list[str]) -> None:
        """Measure the chosen parts."""
        if "cold" in parts:
            self._cold()
        if {"core", "all", "growth", "watch"} & set(parts):
            with spark_job.running() as spark:
                if "core" in parts:
                    self._core(spark)
                if "all" in parts:
                    self._all(spark)
                if "growth" in parts:
                    self._growth(spark)
                if "watch" in parts:
                    self._watch(spark)

    def _core(self, spark: "SparkSession") -> None:
        capture = captures.texts(self.folder, self.frames)
        table = self._table("core", f"core job, {self.frames:,} frames", DUCKDB)
        out = self.folder / "warm"
        jobs: dict[str, Job] = {
            SPARK: partial(spark_job.core, spark, capture, out / "spark"),
            DUCKDB: partial(duckdb_job.core, capture, out / "duckdb"),
        }
        for run in jobs.values():
            run()  # warm-up
        self._compare(capture, out)
        for turn in range(self.rounds):
            for name, run in rotated(list(jobs.items()), turn):
                self._add(table, name, turn, stopwatch.undisturbed(self.frames, run))
        ratios = table.ratios(SPARK, DUCKDB, _rate)
        self.results.targets.append(PerformanceTarget("core job, warm, frames/s of Spark beside DuckDB", ratios, 0.5))
        self.results.targets.append(
            PerformanceTarget("core job, warm, frames/s of Spark beside DuckDB", ratios, 1.0, level="proud")
        )

    def _compare(self, capture: Capture, out: Path) -> None:
        """Check that both engines wrote the same tables, and the expected ones."""
        differences = [
            duckdb_job.differences(f"{out}/spark/{table}/*.parquet", f"{out}/duckdb/{table}.parquet", table)
            for table in ("calls", "slo")
        ]
        differences.append(
            duckdb_job.differences(
                f"{out}/spark/calls/*.parquet", f"{capture.truth}/calls.parquet", "calls beside the expected table"
            )
        )
        self.differences += filter(None, differences)
        message = (
            "\n".join(self.differences) or "calls and slo of Spark and of DuckDB are equal, and calls are as expected"
        )
        self.results.notes.append(message)
        show_progress(message)

    def _cold(self) -> None:
        captures.texts(self.folder, self.frames)
        table = self._table("cold", f"with start-up, {self.frames:,} frames", DUCKDB)
        for turn in range(self.rounds):
            for name in rotated([SPARK, DUCKDB], turn):
                command = [sys.executable, "-m", "benchmarks.pipeline", "--once", name, "--frames", str(self.frames)]
                command += ["--folder", str(self.folder)]
                self._add(table, name, turn, stopwatch.undisturbed(self.frames, partial(_call, command)))

    def _all(self, spark: "SparkSession") -> None:
        capture = captures.everything(self.folder, self.frames)
        core = captures.texts(self.folder, self.frames)
        table = self._table("all", f"all tables, {self.frames:,} frames", "core job")
        out = self.folder / "warm"
        jobs: dict[str, Job] = {
            "core job": partial(spark_job.core, spark, core, out / "spark"),
            "all tables": partial(spark_job.everything, spark, capture, out / "tables"),
        }
        for run in jobs.values():
            run()
        for turn in range(self.rounds):
            for name, run in rotated(list(jobs.items()), turn):
                self._add(table, name, turn, stopwatch.undisturbed(self.frames, run))
        times = table.ratios("core job", "all tables", _rate)
        self.results.targets.append(
            PerformanceTarget("all tables, time as a multiple of the core job's", times, at_most=3, level="goal")
        )

    def _growth(self, spark: "SparkSession") -> None:
        sizes = [self.frames // 10, self.frames, 3 * self.frames]
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        table = self._table("growth", "core job in Spark", f"{sizes[0]:,}")
        for size in sizes:
            capture = captures.texts(self.folder, size)
            for turn in range(min(2, self.rounds)):
                sample = stopwatch.undisturbed(size, partial(spark_job.core, spark, capture, self.folder / "grown"))
                self._add(table, f"{size:,}", turn, sample)
                seconds[size].append(size / sample.rate)
        first, *_, last = sizes
        steps = [(first, last), (sizes[1], last)]
        exponents = [log(min(seconds[b]) / min(seconds[a])) / log(b / a) for a, b in steps]
        text = f"growth from {first:,} and from {sizes[1]:,} to {last:,} frames, exponent"
        self.results.targets.append(PerformanceTarget(text, exponents, at_most=1.1))

    def _watch(self, spark: "SparkSession") -> None:
        from benchmarks.pipeline import watch  # noqa: PLC0415  needs pyspark

        small, backlog = captures.everything(self.folder, _SMALL), captures.everything(self.folder, self.frames)
        self.results.notes.append(str(watch.measure(spark, small, backlog, self.folder / "watched")))

    def _table(self, key: str, title: str, reference: str) -> Table:
        return self.results.tables.setdefault(key, Table(title, "frames/s", reference))

    def _add(self, table: Table, name: str, turn: int, sample: Sample) -> None:
        table.add(name, turn, sample)
        show_progress(
            f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} frames/s, others {sample.others:.0%}"
        )


def _call(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)  # noqa: S603  our own


def _rate(sample: Sample) -> float:
    return sample.rate


if __name__ == "__main__":
    sys.exit(main())
