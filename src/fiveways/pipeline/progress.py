"""How far Spark is, on a terminal: a line on stderr that moves, and is gone when the work is done."""

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_INTERVAL: Final = 0.2
"""Seconds between two looks at Spark."""


class ProgressReporter(Protocol):
    """Who is told how far the work is."""

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Say what is done now, and of how many pieces it is."""

    def advance(self, pieces: int = 1) -> None:
        """Say that so many pieces more are done."""

    def print_line(self, text: str) -> None:
        """Print a line on stdout, which stays."""

    def watch_spark(self, context: "SparkContext | None") -> None:
        """Look at Spark itself for how far it is; None ends that."""


class NoProgress:
    """Says nothing of how far it is, for programs. Fulfils `Teller`."""

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Say nothing."""

    def advance(self, pieces: int = 1) -> None:
        """Say nothing."""

    def print_line(self, text: str) -> None:
        """Print the line: that one is wanted."""
        print(text, flush=True)  # noqa: T201

    def watch_spark(self, context: "SparkContext | None") -> None:
        """Look at nothing."""


class ProgressBar:
    """A bar with what is done now, and Spark's own tasks beside it. Fulfils `Teller`."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  help does without it
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            SpinnerColumn("dots" if console.encoding.startswith("utf") else "line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(24),
            TextColumn("{task.fields[pieces]}", markup=False, style="progress.percentage"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[tasks]}", markup=False, style="dim"),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=None, pieces="", tasks="")
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_watching()
        self._progress.stop()

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Show another text, and an empty bar."""
        self._progress.reset(self._task, description=text, total=total, pieces=f"0/{total}" if total else "", tasks="")

    def advance(self, pieces: int = 1) -> None:
        """Move the bar."""
        self._progress.advance(self._task, pieces)
        self._show_count()

    def print_line(self, text: str) -> None:
        """Print a line above the bar, if both are on one terminal."""
        if sys.stdout.isatty():
            self._progress.console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)  # noqa: T201

    def watch_spark(self, context: "SparkContext | None") -> None:
        """Show the tasks of Spark's jobs."""
        self._stop_watching()
        if context is not None:
            self._stopped.clear()
            self._watcher = threading.Thread(target=self._poll_tasks, args=(context,), name="progress", daemon=True)
            self._watcher.start()

    def _stop_watching(self) -> None:
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def _poll_tasks(self, context: "SparkContext") -> None:
        tracker = context.statusTracker()
        while not self._stopped.wait(_POLL_INTERVAL):
            # Spark may end at any moment; then there is nothing more to show.
            with suppress(Exception):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                running = [stage for stage in stages if stage is not None]
                total, done = sum(each.numTasks for each in running), sum(each.numCompletedTasks for each in running)
                self._progress.update(self._task, tasks=f"{done}/{total} tasks" if total else "")

    def _show_count(self) -> None:
        task = self._progress.tasks[self._task]
        if task.total is not None:
            self._progress.update(self._task, pieces=f"{task.completed:.0f}/{task.total:.0f}")


def is_terminal() -> bool:
    """Say whether somebody looks."""
    return sys.stderr.isatty()
