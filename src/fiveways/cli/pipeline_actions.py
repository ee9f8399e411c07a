"""`fiveways pipeline run`, `watch` and `tables`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.journal.file_permissions import permissions_for_group

if TYPE_CHECKING:
    from fiveways.pipeline.progress import ProgressReporter
    from fiveways.pipeline.spark_session import SparkSettings
    from fiveways.pipeline.state import PipelineState

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Options of all pipeline commands: the journal, the tables and Spark."""

    journal: str
    out: Path
    master: str
    conf: tuple[str, ...]
    verbose: bool
    group: str = ""
    """A group that may read the tables besides their owner."""

    def spark_settings(self) -> "SparkSettings":
        """Return the settings of Spark; UsageError if an assignment is malformed."""
        from fiveways.pipeline.spark_session import SparkSettings  # noqa: PLC0415

        pairs = [assignment.partition("=") for assignment in self.conf]
        for key, equals, value in pairs:
            if not (key and equals):
                raise UsageError(f"--conf {key}{equals}{value} is not KEY=VALUE")
        return SparkSettings(self.master, {key: value for key, _, value in pairs}, self.verbose)


@dataclass(frozen=True, slots=True)
class TimeRangeOptions:
    """The options --from and --to."""

    first: str | None = None
    end: str | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        """Return both times in nanoseconds since 1970, None if omitted; UsageError if one is malformed."""
        first, end = _parse_time("--from", self.first), _parse_time("--to", self.end)
        if first is not None and end is not None and first >= end:
            raise UsageError(f"--from {self.first} is not before --to {self.end}")
        return first, end


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Options of `fiveways pipeline watch`."""

    delay: float = 600.0
    every: float = 1.0
    until_end: bool = False
    checkpoint: Path | None = None


def _parse_time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(f"{option} {text} is not a time such as 2026-05-01 or 2026-05-01T09:30:00Z") from exc
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * _SECOND + since_epoch.microseconds * 1000


def run(options: PipelineOptions, time_range: TimeRangeOptions, *, full: bool) -> None:
    """Update the tables, and print a summary."""
    from_at, to_at = time_range.bounds()
    settings = options.spark_settings()
    _check_installation()
    from fiveways.pipeline import batch_run  # noqa: PLC0415

    run_options = batch_run.RunOptions(
        options.journal, options.out, settings, full, from_at, to_at, permissions_for_group(options.group)
    )
    with progress_display(options) as reporter:
        result = batch_run.run(run_options, reporter)
    for note in result.notes:
        print_stderr(f"fiveways pipeline run: {note}")
    if result.segments:
        segments, records = _pluralize(result.segments, "segment"), _pluralize(result.records, "record")
        summary = f"{segments}, {records} in {result.seconds:.1f} s"
    else:
        summary = "no new segments"
    print(f"{summary}; {_describe_state(result.state)}, in {printable(str(options.out))}")  # noqa: T201


def watch(options: PipelineOptions, follow: FollowOptions) -> None:
    """Follow a journal, and print a line per increment."""
    settings = options.spark_settings()
    _check_installation()
    from fiveways.pipeline import streaming_run  # noqa: PLC0415

    permissions = permissions_for_group(options.group)
    watch_options = streaming_run.WatchOptions(
        options.journal,
        options.out,
        settings,
        follow.delay,
        follow.every,
        follow.until_end,
        follow.checkpoint,
        permissions,
    )
    with progress_display(options) as reporter:

        def on_increment(increment: streaming_run.IncrementReport) -> None:
            for note in increment.notes:
                reporter.print_line(printable(f"fiveways pipeline watch: {note}"))
            segments, records = _pluralize(increment.segments, "segment"), _pluralize(increment.records, "record")
            summary = f"{segments}, {records}, lag {increment.lag:.1f} s"
            reporter.print_line(f"{summary}; {_describe_state(increment.state)}")

        streaming_run.watch(watch_options, on_increment, reporter)


def tables(name: str) -> None:
    """Print the list of tables, or the columns of one."""
    _check_installation(java=False)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from fiveways.pipeline.tables import TABLES  # noqa: PLC0415

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    listing = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    listing.add_column(style="bold", no_wrap=True)
    if name:
        if name not in TABLES:
            from fiveways.pipeline.query_check import suggest_names  # noqa: PLC0415

            hint = suggest_names(name, TABLES) or "; `fiveways pipeline tables` lists them"
            raise UsageError(f"unknown table {name}{hint}")
        table = TABLES[name]
        console.print(f"{table.question}\n\n{table.grain}\n", markup=False)
        for column, meaning in table.columns.items():
            listing.add_row(column, meaning)
    else:
        for table in TABLES.values():
            if table.layer != "work":
                listing.add_row(table.name, table.layer, table.question)
    console.print(listing)


def _check_installation(*, java: bool = True) -> None:
    from fiveways.pipeline import spark_session  # noqa: PLC0415

    spark_session.require_spark(java=java)


@contextmanager
def progress_display(options: PipelineOptions) -> "Iterator[ProgressReporter]":
    """Show a progress bar on a terminal, unless --verbose prints the log of Spark."""
    from fiveways.pipeline import progress  # noqa: PLC0415

    if progress.is_terminal() and not options.verbose:
        with progress.ProgressBar() as bar:
            yield bar
    else:
        yield progress.NoProgress()


def _describe_state(state: "PipelineState") -> str:
    rows = state.rows
    text = f"{_pluralize(rows.get('messages', 0), 'message')}, {_pluralize(rows.get('calls', 0), 'call')}"
    if state.quarantined:
        text += f", {state.quarantined:,} unreadable"
    if state.late:
        text += f", {state.late:,} late"
    if state.repeated:
        text += f", {state.repeated:,} repeated"
    if state.negative_durations:
        text += f", {_pluralize(state.negative_durations, 'duration')} unknown because the clock was set back"
    return f"{text} in {len(rows)} tables"


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
