"""The summary at the end of a run: statistics, files, and next commands."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fiveways.demo.demo_hub import RunFolder
from fiveways.demo.live_view import format_count, format_duration
from fiveways.demo.shop_peers import HubEndpoints
from fiveways.demo.stats import CALLEES, PROTOCOLS, DemoStats
from fiveways.journal.reader import list_segments, read_batches

_WIDE: Final = 200
"""Columns without a terminal."""
_EXAMPLE_QUERY: Final = "select * from bridge_matrix order by calls desc"


@dataclass(slots=True)
class DemoOutcome:
    """The outcome of a run."""

    folder: RunFolder
    stats: DemoStats = field(default_factory=DemoStats)
    dashboard: str = ""
    endpoints: HubEndpoints | None = None
    """The addresses of the hub while it runs."""
    first_call_seconds: float | None = None
    """Seconds until the first response."""
    report_seconds: float | None = None
    """Seconds until the report was complete; None without a report."""
    table_rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by table."""
    unreadable: int = 0
    missing_requirement: str = ""
    """The reason why Spark is not available; empty if it is."""
    failures: list[str] = field(default_factory=list)
    """Failed parts, as sentences."""


def print_summary(outcome: DemoOutcome, seconds: float, program: str) -> None:
    """Print the summary."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    stats = outcome.stats
    console.print(Text("\nStatistics", "bold"))
    for line in _statistics_lines(outcome, seconds):
        if console.is_terminal:
            console.print(Padding(Text(line), (0, 0, 0, 2)), soft_wrap=False)
        else:
            console.print(f"  {line}", markup=False)
    console.print()
    console.print(call_matrix(stats), soft_wrap=False)
    console.print(Text("  number of calls, and median latency", "dim"))
    console.print(Text("\nFiles", "bold"))
    for label, location in _locations(outcome):
        console.print(f"  {label:10} {location}", markup=False)
    for sentence in outcome.failures:
        console.print(Text(f"\nFailed: {sentence}", "red"))
    if outcome.missing_requirement:
        console.print(f"\nNo tables and no report: {outcome.missing_requirement}", markup=False)
    console.print(Text("\nNext commands", "bold"))
    for command in suggested_commands(outcome, program):
        console.print(f"  {command}", markup=False)
    if outcome.endpoints is not None:
        console.print("\nThe demo continues with slow traffic. Ctrl-C ends it.")
    console.file.flush()


def _statistics_lines(outcome: DemoOutcome, seconds: float) -> Iterator[str]:
    stats = outcome.stats
    first_response = (
        ""
        if outcome.first_call_seconds is None
        else f"; the first response arrived after {outcome.first_call_seconds:.1f} s"
    )
    yield f"{stats.calls:,} calls in {seconds:.0f} s{first_response}"
    reasons = ", ".join(f"{number} {reason}" for reason, number in stats.reasons.most_common())
    yield f"{stats.failed:,} of them failed, some on purpose{f': {reasons}' if reasons else ''}"
    events = sum(stats.events.values())
    yield f"{stats.publications:,} publications, delivered as {events:,} events"
    yield f"{stats.callbacks:,} callbacks were called; {stats.jobs:,} orders went through a work queue"
    if outcome.table_rows:
        rows = sum(outcome.table_rows.values())
        decoded = f"{outcome.table_rows.get('messages', 0):,} messages and {outcome.table_rows.get('calls', 0):,} calls"
        yield f"Spark read {decoded}, and built {len(outcome.table_rows)} tables of {rows:,} rows"
    if outcome.report_seconds is not None:
        yield f"the report was complete after {outcome.report_seconds:.0f} s"


def call_matrix(stats: DemoStats) -> Table:
    """Return the number and the median latency of calls, by caller and callee."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("  ▼ calls ►", no_wrap=True, header_style="dim")
    for callee in CALLEES:
        table.add_column(callee, justify="right", no_wrap=True)
    for caller in PROTOCOLS:
        pairs = [stats.pairs.get((caller, callee)) for callee in CALLEES]
        table.add_row(f"  {caller}", *("·" if pair is None else format_count(pair.calls) for pair in pairs))
        times = [None if pair is None else pair.p50 for pair in pairs]
        table.add_row("", *map(format_duration, times), style="dim")
    return table


def _locations(outcome: DemoOutcome) -> Iterator[tuple[str, str]]:
    folder = outcome.folder
    if outcome.report_seconds is not None:
        yield "report", f"{folder.report}  (open it in a browser)"
        yield "tables", str(folder.tables)
    yield "journal", str(folder.journal)
    if outcome.endpoints is not None:
        yield "dashboard", outcome.dashboard
        if outcome.report_seconds is not None:
            yield "", f"{outcome.dashboard}report"
    else:
        yield "dashboard", f"{outcome.dashboard} ended with the hub; --keep keeps both running"


def suggested_commands(outcome: DemoOutcome, program: str) -> list[str]:
    """Return three commands that work with the files and the hub of the run."""
    folder, endpoints = outcome.folder, outcome.endpoints
    op = find_example_operation(folder.journal)
    trace = f"{program} trace {op} {_quoted(folder.journal)}" if op else f"{program} tail {_quoted(folder.journal)}"
    if endpoints is not None:
        return [
            f"""{program} call lrpm+ws://localhost:{endpoints.http} greenhouse.water '{{"bed": 2, "litres": 1.5}}'""",
            f"{program} subscribe umq+ws://localhost:{endpoints.http} 'sensors.*.temperature' --envelope",
            trace,
        ]
    if outcome.report_seconds is not None:
        query = f'{program} sql "{_EXAMPLE_QUERY}" --tables {_quoted(folder.tables)}'
    else:
        query = f"{program} tail {_quoted(folder.journal)} --kind failure"
    return [trace, query, f"{program} demo --keep"]


def _quoted(path: Path) -> str:
    return shlex.quote(os.fspath(path))


def find_example_operation(journal: Path) -> str:
    """Return the id of a call from UMQ to the device behind MQTT; empty if there is none."""
    for segment in list_segments(str(journal)):
        # The caller's protocol has the first inbound frame of an operation, the callee's the first outbound one.
        first: dict[tuple[str, str], str] = {}
        for batch in read_batches(segment.path, ["op", "protocol", "direction"]):
            for op, protocol, direction in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if op and op.isdecimal():
                    first.setdefault((op, protocol), direction)
        for (op, protocol), direction in first.items():
            if (protocol, direction) == ("umq", "in") and first.get((op, "mqtt-rpc")) == "out":
                return op
    return ""
