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

from fiveways.demo.company import Places
from fiveways.demo.drawing import lasting, short
from fiveways.demo.ledger import CALLEES, PROTOCOLS, Ledger
from fiveways.demo.stage import Folder
from fiveways.journal.reader import read_batches, segments

_WIDE: Final = 200
"""Columns where there is no terminal, and so nothing to cut a table for."""
_BRIDGES: Final = "select * from bridge_matrix order by calls desc"


@dataclass(slots=True)
class Outcome:
    """How one run went."""

    folder: Folder
    ledger: Ledger = field(default_factory=Ledger)
    dashboard: str = ""
    places: Places | None = None
    """Where the hub is, while it is there."""
    first_call: float | None = None
    """Seconds until the first answer."""
    report: float | None = None
    """Seconds until the report was there; None if there is none."""
    tables: dict[str, int] = field(default_factory=dict)
    """Rows of each, as Spark told."""
    unreadable: int = 0
    lacking: str = ""
    """Why there is no Spark, in a sentence."""
    failed: list[str] = field(default_factory=list)
    """Parts that went wrong, in sentences."""


def show(outcome: Outcome, seconds: float, program: str) -> None:
    """Print it."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    ledger = outcome.ledger
    console.print(Text("\nWhat was seen", "bold"))
    for line in _seen(outcome, seconds):
        if console.is_terminal:
            console.print(Padding(Text(line), (0, 0, 0, 2)), soft_wrap=False)
        else:
            console.print(f"  {line}", markup=False)
    console.print()
    console.print(matrix(ledger), soft_wrap=False)
    console.print(Text("  calls, and how long half of them took at most", "dim"))
    console.print(Text("\nWhere it lies", "bold"))
    for what, where in _places(outcome):
        console.print(f"  {what:10} {where}", markup=False)
    for sentence in outcome.failed:
        console.print(Text(f"\nThis went wrong: {sentence}", "red"))
    if outcome.lacking:
        console.print(f"\nThere are no tables and no report: {outcome.lacking}", markup=False)
    console.print(Text("\nTry next", "bold"))
    for command in commands(outcome, program):
        console.print(f"  {command}", markup=False)
    if outcome.places is not None:
        console.print("\nThe shop stays open, and slow. Ctrl-C closes it.")
    console.file.flush()


def _seen(outcome: Outcome, seconds: float) -> Iterator[str]:
    ledger = outcome.ledger
    first = "" if outcome.first_call is None else f"; the first was answered after {outcome.first_call:.1f} s"
    yield f"{ledger.calls:,} calls in {seconds:.0f} s{first}"
    reasons = ", ".join(f"{number} {reason}" for reason, number in ledger.reasons.most_common())
    yield f"{ledger.failed:,} of them failed, as some should{f': {reasons}' if reasons else ''}"
    events = sum(ledger.events.values())
    yield f"{ledger.publications:,} publications became {events:,} events"
    yield f"{ledger.callbacks:,} callbacks were called, and {ledger.jobs:,} orders went through a queue"
    if outcome.tables:
        rows = sum(outcome.tables.values())
        found = f"{outcome.tables.get('messages', 0):,} messages and {outcome.tables.get('calls', 0):,} calls"
        yield f"Spark read {found}, and made {len(outcome.tables)} tables of {rows:,} rows"
    if outcome.report is not None:
        yield f"the report was there after {outcome.report:.0f} s"


def matrix(ledger: Ledger) -> Table:
    """Return who called whom, and how long half of the calls took at most."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("  ▼ calls ►", no_wrap=True, header_style="dim")
    for callee in CALLEES:
        table.add_column(callee, justify="right", no_wrap=True)
    for caller in PROTOCOLS:
        pairs = [ledger.pairs.get((caller, callee)) for callee in CALLEES]
        table.add_row(f"  {caller}", *("·" if pair is None else short(pair.calls) for pair in pairs))
        times = [None if pair is None else pair.p50 for pair in pairs]
        table.add_row("", *map(lasting, times), style="dim")
    return table


def _places(outcome: Outcome) -> Iterator[tuple[str, str]]:
    folder = outcome.folder
    if outcome.report is not None:
        yield "report", f"{folder.report}  (open it in a browser)"
        yield "tables", str(folder.tables)
    yield "journal", str(folder.journal)
    if outcome.places is not None:
        yield "dashboard", outcome.dashboard
        if outcome.report is not None:
            yield "", f"{outcome.dashboard}report"
    else:
        yield "dashboard", f"{outcome.dashboard} is gone with the hub; --keep keeps both"


def commands(outcome: Outcome, program: str) -> list[str]:
    """Return three commands that work with what is there now."""
    folder, places = outcome.folder, outcome.places
    op = telling_operation(folder.journal)
    trace = f"{program} trace {op} {_quoted(folder.journal)}" if op else f"{program} tail {_quoted(folder.journal)}"
    if places is not None:
        return [
            f"""{program} call lrpm+ws://localhost:{places.http} greenhouse.water '{{"bed": 2, "litres": 1.5}}'""",
            f"{program} subscribe umq+ws://localhost:{places.http} 'sensors.*.temperature' --envelope",
            trace,
        ]
    if outcome.report is not None:
        ask = f'{program} sql "{_BRIDGES}" --tables {_quoted(folder.tables)}'
    else:
        ask = f"{program} tail {_quoted(folder.journal)} --kind failure"
    return [trace, ask, f"{program} demo --keep"]


def _quoted(path: Path) -> str:
    return shlex.quote(os.fspath(path))


def telling_operation(journal: Path) -> str:
    """Return an operation that is worth a look: a call from UMQ to the device behind MQTT; nothing if there is none."""
    for segment in segments(str(journal)):
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
