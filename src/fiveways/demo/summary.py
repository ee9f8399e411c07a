"""What is said at the end: what was seen, where it lies, and what to try next."""

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
"""Columns where there is no terminal, and so nothing to cut a table for."""
_EXAMPLE_QUERY: Final = "select * from bridge_matrix order by calls desc"


@dataclass(slots=True)
class DemoOutcome:
    """How one run went."""

    folder: RunFolder
    stats: DemoStats = field(default_factory=DemoStats)
    dashboard: str = ""
    endpoints: HubEndpoints | None = None
    """Where the hub is, while it is there."""
    first_call_seconds: float | None = None
    """Seconds until the first answer."""
    report_seconds: float | None = None
    """Seconds until the report was there; None if there is none."""
    table_rows: dict[str, int] = field(default_factory=dict)
    """Rows of each, as Spark told."""
    unreadable: int = 0
    missing_requirement: str = ""
    """Why there is no Spark, in a sentence."""
    failures: list[str] = field(default_factory=list)
    """Parts that went wrong, in sentences."""


def print_summary(outcome: DemoOutcome, seconds: float, program: str) -> None:
    """Print it."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    ledger = outcome.stats
    console.print(Text("\nWhat was seen", "bold"))
    for line in _statistics_lines(outcome, seconds):
        if console.is_terminal:
            console.print(Padding(Text(line), (0, 0, 0, 2)), soft_wrap=False)
        else:
            console.print(f"  {line}", markup=False)
    console.print()
    console.print(call_matrix(ledger), soft_wrap=False)
    console.print(Text("  calls, and how long half of them took at most", "dim"))
    console.print(Text("\nWhere it lies", "bold"))
    for what, where in _locations(outcome):
        console.print(f"  {what:10} {where}", markup=False)
    for sentence in outcome.failures:
        console.print(Text(f"\nThis went wrong: {sentence}", "red"))
    if outcome.missing_requirement:
        console.print(f"\nThere are no tables and no report: {outcome.missing_requirement}", markup=False)
    console.print(Text("\nTry next", "bold"))
    for command in suggested_commands(outcome, program):
        console.print(f"  {command}", markup=False)
    if outcome.endpoints is not None:
        console.print("\nThe shop stays open, and slow. Ctrl-C closes it.")
    console.file.flush()


def _statistics_lines(outcome: DemoOutcome, seconds: float) -> Iterator[str]:
    ledger = outcome.stats
    first = (
        ""
        if outcome.first_call_seconds is None
        else f"; the first was answered after {outcome.first_call_seconds:.1f} s"
    )
    yield f"{ledger.calls:,} calls in {seconds:.0f} s{first}"
    reasons = ", ".join(f"{number} {reason}" for reason, number in ledger.reasons.most_common())
    yield f"{ledger.failed:,} of them failed, as some should{f': {reasons}' if reasons else ''}"
    events = sum(ledger.events.values())
    yield f"{ledger.publications:,} publications became {events:,} events"
    yield f"{ledger.callbacks:,} callbacks were called, and {ledger.jobs:,} orders went through a queue"
    if outcome.table_rows:
        rows = sum(outcome.table_rows.values())
        found = f"{outcome.table_rows.get('messages', 0):,} messages and {outcome.table_rows.get('calls', 0):,} calls"
        yield f"Spark read {found}, and made {len(outcome.table_rows)} tables of {rows:,} rows"
    if outcome.report_seconds is not None:
        yield f"the report was there after {outcome.report_seconds:.0f} s"


def call_matrix(ledger: DemoStats) -> Table:
    """Return who called whom, and how long half of the calls took at most."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("  ▼ calls ►", no_wrap=True, header_style="dim")
    for callee in CALLEES:
        table.add_column(callee, justify="right", no_wrap=True)
    for caller in PROTOCOLS:
        pairs = [ledger.pairs.get((caller, callee)) for callee in CALLEES]
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
        yield "dashboard", f"{outcome.dashboard} is gone with the hub; --keep keeps both"


def suggested_commands(outcome: DemoOutcome, program: str) -> list[str]:
    """Return three commands that work with what is there now."""
    folder, places = outcome.folder, outcome.endpoints
    op = find_example_operation(folder.journal)
    trace = f"{program} trace {op} {_quoted(folder.journal)}" if op else f"{program} tail {_quoted(folder.journal)}"
    if places is not None:
        return [
            f"""{program} call lrpm+ws://localhost:{places.http} greenhouse.water '{{"bed": 2, "litres": 1.5}}'""",
            f"{program} subscribe umq+ws://localhost:{places.http} 'sensors.*.temperature' --envelope",
            trace,
        ]
    if outcome.report_seconds is not None:
        ask = f'{program} sql "{_EXAMPLE_QUERY}" --tables {_quoted(folder.tables)}'
    else:
        ask = f"{program} tail {_quoted(folder.journal)} --kind failure"
    return [trace, ask, f"{program} demo --keep"]


def _quoted(path: Path) -> str:
    return shlex.quote(os.fspath(path))


def find_example_operation(journal: Path) -> str:
    """Return an operation that is worth a look: a call from UMQ to the device behind MQTT; nothing if there is none."""
    for segment in list_segments(str(journal)):
        # Who was heard first on an operation has asked, and who was told first was asked.
        first: dict[tuple[str, str], str] = {}
        for batch in read_batches(segment.path, ["op", "protocol", "direction"]):
            for op, protocol, direction in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if op and op.isdecimal():
                    first.setdefault((op, protocol), direction)
        for (op, protocol), direction in first.items():
            if (protocol, direction) == ("umq", "in") and first.get((op, "mqtt-rpc")) == "out":
                return op
    return ""
