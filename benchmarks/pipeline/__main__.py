"""The pipeline on millions of frames: Spark beside DuckDB, all tables beside the core job, and how it grows.

    python -m benchmarks.pipeline [--quick] [--frames 10000000] [--rounds 3] [--parts core,cold,all,growth,watch]

The core job decodes frames, matches requests with answers, and makes two tables: `calls`, with all its columns, and
`slo`, with exact percentiles by nearest rank. Spark (`local[2]`, set as `fiveways pipeline run` sets it) and DuckDB
(two threads, the statements of duck.sql) read the same Parquet files and write both tables as Parquet; they are
compared row by row, with each other and with what is known of the capture. The frames are calls in the four text
encodings.

    core     both, in turn, in processes that have done it before
    cold     both from the start of a process: imports, Java, the first time of everything
    all      all tables of a capture in six encodings, beside the core job on as many frames
    growth   the core job on a tenth and on three times as many frames
    watch    the stream: from the landing of a closed segment to its rows in gold, and a backlog

Captures are made in --folder and stay there. Tables show medians; ratios are taken within a round. CPU-s/M is processor
time for a million frames, of Java and of Python workers too.
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

from benchmarks.hub.bench import rotated, say
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table
from benchmarks.hub.routers import ROOT, environment
from benchmarks.pipeline import captures, duckdb_job, spark_job, stopwatch
from benchmarks.pipeline.captures import Capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Way = Callable[[], None]
SPARK: Final = "Spark"
DUCKDB: Final = "DuckDB"
PARTS: Final = ("core", "cold", "all", "growth", "watch")
_FRAMES: Final = 10_000_000
_QUICK: Final = 1_000_000
_SMALL: Final = 100_000
"""Frames of the capture whose segments come one by one."""


@dataclass
class PipelineBenchResults:
    """All that one run found."""

    tables: dict[str, Table] = field(default_factory=dict)
    marks: list[PerformanceTarget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        others = [sample.others for table in self.tables.values() for sample in table.all()]
        blocks = [*map(str, self.tables.values()), *self.notes]
        if self.marks:
            blocks.append("\n".join(["promises, as median (lowest to highest round)", *map(str, self.marks)]))
        if others:
            doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
            blocks.append(f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.")
        return "\n\n".join(blocks)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status tells only whether all tables were equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first impression on a tenth of the frames")
    parser.add_argument("--frames", type=int, help=f"{_FRAMES:,}, or with --quick {_QUICK:,}")
    parser.add_argument("--rounds", type=int, help="3, or with --quick 2")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of them, separated by commas")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fiveways-bench")
    parser.add_argument("--once", choices=(SPARK, DUCKDB), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    frames = options.frames or (_QUICK if options.quick else _FRAMES)
    if options.once:
        _once(options.once, captures.texts(options.folder, frames), options.folder / "cold")
        return 0
    bench = Bench(options.folder, frames, options.rounds or (2 if options.quick else 3))
    bench.run([part for part in PARTS if part in options.parts.split(",")])
    print(bench.found)
    return 1 if bench.differences else 0


def _once(who: str, capture: Capture, out: Path) -> None:
    """Do the core job once, from nothing."""
    if who == DUCKDB:
        duckdb_job.core(capture, out / "duckdb")
        return
    with spark_job.running() as spark:
        spark_job.core(spark, capture, out / "spark")


@dataclass
class Bench:
    """One run."""

    folder: Path
    frames: int
    rounds: int
    found: PipelineBenchResults = field(default_factory=PipelineBenchResults)
    differences: list[str] = field(default_factory=list)

    def run(self, parts: list[str]) -> None:
        """Measure these parts."""
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
        ways: dict[str, Way] = {
            SPARK: partial(spark_job.core, spark, capture, out / "spark"),
            DUCKDB: partial(duckdb_job.core, capture, out / "duckdb"),
        }
        for run in ways.values():
            run()  # for the first time
        self._compare(capture, out)
        for turn in range(self.rounds):
            for name, run in rotated(list(ways.items()), turn):
                self._add(table, name, turn, stopwatch.undisturbed(self.frames, run))
        ratios = table.ratios(SPARK, DUCKDB, _rate)
        self.found.marks.append(PerformanceTarget("core job, warm, frames/s of Spark beside DuckDB", ratios, 0.5))
        self.found.marks.append(PerformanceTarget("the same", ratios, 1.0, level="proud"))

    def _compare(self, capture: Capture, out: Path) -> None:
        """See that both have made the same tables, and the right ones."""
        found = [
            duckdb_job.differences(f"{out}/spark/{table}/*.parquet", f"{out}/duckdb/{table}.parquet", table)
            for table in ("calls", "slo")
        ]
        found.append(
            duckdb_job.differences(
                f"{out}/spark/calls/*.parquet", f"{capture.truth}/calls.parquet", "calls beside the truth"
            )
        )
        self.differences += filter(None, found)
        told = "\n".join(self.differences) or "calls and slo of Spark and of DuckDB are equal, and calls are true"
        self.found.notes.append(told)
        say(told)

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
        ways: dict[str, Way] = {
            "core job": partial(spark_job.core, spark, core, out / "spark"),
            "all tables": partial(spark_job.everything, spark, capture, out / "tables"),
        }
        for run in ways.values():
            run()
        for turn in range(self.rounds):
            for name, run in rotated(list(ways.items()), turn):
                self._add(table, name, turn, stopwatch.undisturbed(self.frames, run))
        times = table.ratios("core job", "all tables", _rate)
        self.found.marks.append(
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
        self.found.marks.append(PerformanceTarget(text, exponents, at_most=1.1))

    def _watch(self, spark: "SparkSession") -> None:
        from benchmarks.pipeline import watch  # noqa: PLC0415  pyspark is here now

        small, backlog = captures.everything(self.folder, _SMALL), captures.everything(self.folder, self.frames)
        self.found.notes.append(str(watch.measured(spark, small, backlog, self.folder / "watched")))

    def _table(self, key: str, title: str, reference: str) -> Table:
        return self.found.tables.setdefault(key, Table(title, "frames/s", reference))

    def _add(self, table: Table, name: str, turn: int, sample: Sample) -> None:
        table.add(name, turn, sample)
        say(f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} frames/s, others {sample.others:.0%}")


def _call(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)  # noqa: S603  our own


def _rate(sample: Sample) -> float:
    return sample.rate


if __name__ == "__main__":
    sys.exit(main())
