"""Progress display on a terminal: a line on stderr that is removed at the end of the work."""

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_INTERVAL: Final = 0.2
"""Seconds between two queries of Spark's task counts."""


class ProgressReporter(Protocol):
    """Receiver of progress information."""

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Begin a phase, with its number of steps if that is known."""

    def advance(self, pieces: int = 1) -> None:
        """Count steps of the phase as done."""

    def print_line(self, text: str) -> None:
        """Print a line on stdout."""

    def watch_spark(self, context: "SparkContext | None") -> None:
        """Show the task counts of a Spark context; None stops that."""


class NoProgress:
    """Progress reporter for programs: it shows no progress, but prints lines. Implements `ProgressReporter`."""

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Do nothing."""

    def advance(self, pieces: int = 1) -> None:
        """Do nothing."""

    def print_line(self, text: str) -> None:
        """Print the line."""
        print(text, flush=True)  # noqa: T201

    def watch_spark(self, context: "SparkContext | None") -> None:
        """Do nothing."""


class ProgressBar:
    """Progress bar with the phase and the task counts of Spark. Implements `ProgressReporter`."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  not needed for --help
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
        """Show the text of a phase and reset the bar."""
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
        """Show the task counts of Spark's jobs."""
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
            # Spark may stop at any moment.
            with suppress(Exception):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                running = [stage for stage in stages if stage is not None]
                total = sum(stage.numTasks for stage in running)
                done = sum(stage.numCompletedTasks for stage in running)
                self._progress.update(self._task, tasks=f"{done}/{total} tasks" if total else "")

    def _show_count(self) -> None:
        task = self._progress.tasks[self._task]
        if task.total is not None:
            self._progress.update(self._task, pieces=f"{task.completed:.0f}/{task.total:.0f}")


def is_terminal() -> bool:
    """Return True if stderr is a terminal."""
    return sys.stderr.isatty()
