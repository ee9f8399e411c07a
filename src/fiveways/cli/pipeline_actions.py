"""What `fiveways pipeline run`, `watch` and `tables` do."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.journal.file_permissions import permissions_for_group

if TYPE_CHECKING:
    from fiveways.pipeline.progress import ProgressReporter
    from fiveways.pipeline.spark_session import SparkSettings
    from fiveways.pipeline.state import PipelineState

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Where from, where to, and where Spark runs."""

    journal: str
    out: Path
    master: str
    conf: tuple[str, ...]
    verbose: bool
    group: str = ""
    """The group that may read the tables, besides their owner."""

    def spark_settings(self) -> "SparkSettings":
        """Return how Spark is to be started."""
        from fiveways.pipeline.spark_session import SparkSettings  # noqa: PLC0415

        pairs = [each.partition("=") for each in self.conf]
        for key, sign, value in pairs:
            if not (key and sign):
                raise UsageError(f"--conf {key}{sign}{value} is no KEY=VALUE")
        return SparkSettings(self.master, {key: value for key, _, value in pairs}, self.verbose)


@dataclass(frozen=True, slots=True)
class TimeRangeOptions:
    """The times that are wanted, as they were typed."""

    first: str | None = None
    end: str | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        """Return them in ns since 1970."""
        first, end = _parse_time("--from", self.first), _parse_time("--to", self.end)
        if first is not None and end is not None and first >= end:
            raise UsageError(f"--from {self.first} is not before --to {self.end}")
        return first, end


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a journal is followed."""

    delay: float = 600.0
    every: float = 1.0
    until_end: bool = False
    checkpoint: Path | None = None


def unbreakable_output() -> None:
    """Have characters that the terminal's encoding lacks written as escapes: a command must not end because of one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors="backslashreplace")


def is_unicode(stream: TextIO) -> bool:
    """Say whether a stream has all characters."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _parse_time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(f"{option} {text} is no time such as 2026-05-01 or 2026-05-01T09:30:00Z") from exc
    past = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (past.days * 86_400 + past.seconds) * _SECOND + past.microseconds * 1000


def run(place: PipelineOptions, span: TimeRangeOptions, *, full: bool) -> None:
    """Make tables, and say in a line what was done."""
    unbreakable_output()
    from_at, to_at = span.bounds()
    settings = place.spark_settings()
    _check_installation()
    from fiveways.pipeline import batch_run  # noqa: PLC0415

    wish = batch_run.RunOptions(
        place.journal, place.out, settings, full, from_at, to_at, permissions_for_group(place.group)
    )
    with progress_display(place) as teller:
        done = batch_run.run(wish, teller)
    for note in done.notes:
        print_stderr(f"fiveways pipeline run: {note}")
    if done.segments:
        what = f"{_pluralize(done.segments, 'segment')}, {_pluralize(done.records, 'record')} in {done.seconds:.1f} s"
    else:
        what = "no new segments"
    print(f"{what}; {_describe_state(done.state)}, in {printable(str(place.out))}")  # noqa: T201


def watch(place: PipelineOptions, pace: FollowOptions) -> None:
    """Follow a journal, and say a line for each step."""
    unbreakable_output()
    settings = place.spark_settings()
    _check_installation()
    from fiveways.pipeline import streaming_run  # noqa: PLC0415

    access = permissions_for_group(place.group)
    wish = streaming_run.WatchOptions(
        place.journal, place.out, settings, pace.delay, pace.every, pace.until_end, pace.checkpoint, access
    )
    with progress_display(place) as teller:

        def told(step: streaming_run.IncrementReport) -> None:
            for note in step.notes:
                teller.print_line(printable(f"fiveways pipeline watch: {note}"))
            what = f"{_pluralize(step.segments, 'segment')}, {_pluralize(step.records, 'record')}, lag {step.lag:.1f} s"
            teller.print_line(f"{what}; {_describe_state(step.state)}")

        streaming_run.watch(wish, told, teller)


def tables(name: str) -> None:
    """Show what each table answers, or one of them in full."""
    unbreakable_output()
    _check_installation(java=False)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from fiveways.pipeline.tables import TABLES  # noqa: PLC0415

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    shown = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    shown.add_column(style="bold", no_wrap=True)
    if name:
        if name not in TABLES:
            from fiveways.pipeline.query_check import suggest_names  # noqa: PLC0415

            hint = suggest_names(name, TABLES) or "; `fiveways pipeline tables` lists them"
            raise UsageError(f"there is no table {name}{hint}")
        table = TABLES[name]
        console.print(f"{table.question}\n\n{table.grain}\n", markup=False)
        for column, meaning in table.columns.items():
            shown.add_row(column, meaning)
    else:
        for table in TABLES.values():
            if table.layer != "work":
                shown.add_row(table.name, table.layer, table.question)
    console.print(shown)


def _check_installation(*, java: bool = True) -> None:
    from fiveways.pipeline import spark_session  # noqa: PLC0415

    spark_session.require_spark(java=java)


@contextmanager
def progress_display(place: PipelineOptions) -> "Iterator[ProgressReporter]":
    """Show how far it is, if somebody looks and Spark itself does not talk."""
    from fiveways.pipeline import progress  # noqa: PLC0415

    if progress.is_terminal() and not place.verbose:
        with progress.ProgressBar() as bar:
            yield bar
    else:
        yield progress.NoProgress()


def _describe_state(state: "PipelineState") -> str:
    rows = state.rows
    said = f"{_pluralize(rows.get('messages', 0), 'message')}, {_pluralize(rows.get('calls', 0), 'call')}"
    if state.quarantined:
        said += f", {state.quarantined:,} unreadable"
    if state.late:
        said += f", {state.late:,} late"
    if state.repeated:
        said += f", {state.repeated:,} repeated"
    if state.negative_durations:
        said += f", {_pluralize(state.negative_durations, 'duration')} unknown because the clock was set back"
    return f"{said} in {len(rows)} tables"


def _pluralize(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
