"""`fiveways traffic`: run the traffic generator, and print its summary."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.json_io import print_value
from fiveways.client.urls import BadUrl, parse_mqtt
from fiveways.traffic import driver as traffic
from fiveways.traffic.counts import OUTCOMES
from fiveways.traffic.driver import TrafficConfig, TrafficReport
from fiveways.traffic.target import Target, is_loopback

_STYLES: Final = {"failed": "yellow", "lost": "red", "unfinished": "red"}


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """Options of `fiveways traffic`."""

    url: str
    seconds: float
    rate: float
    seed: int
    peers: int
    mqtt: str = ""
    token: str = field(default="", repr=False)
    remote: bool = False

    def config(self) -> TrafficConfig:
        """Return the configuration of the run; UsageError if a URL is invalid or not allowed."""
        mqtt = f"mqtt-rpc+{self.mqtt.removeprefix('mqtt-rpc+')}" if self.mqtt else ""
        try:
            target = Target.parse(self.url, self.token)
            broker = parse_mqtt(mqtt)[0].host if mqtt else ""
        except BadUrl as exc:
            raise UsageError(str(exc)) from exc
        if not self.remote:
            for host in filter(None, (target.host, broker)):
                if not is_loopback(host):
                    raise UsageError(f"{host} is another machine; --yes-remote allows it")
        return TrafficConfig(target, self.seconds, self.rate, self.seed, self.peers, mqtt.removeprefix("mqtt-rpc+"))


def run_traffic(options: TrafficOptions, *, as_json: bool) -> None:
    """Generate traffic, and print the summary."""
    config = options.config()
    with _progress_bar(config.seconds) as on_progress:
        report = asyncio.run(_run_until_interrupted(config, on_progress))
    for note in report.counts.notes:
        print_stderr(f"fiveways traffic: {note}")
    if as_json:
        print_value(report.as_dict(), raw=True)
    else:
        _print_report(report)


async def _run_until_interrupted(config: TrafficConfig, on_progress: Callable[[float], None]) -> TrafficReport:
    stop_event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop_event.set)
    return await traffic.run_traffic(config, stop_event, on_progress)


@contextmanager
def _progress_bar(seconds: float) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal; yield the function that updates it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("traffic", style="bold"), BarColumn(24), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("traffic", total=seconds)
        yield lambda at: progress.update(task, completed=at)


def _print_report(report: TrafficReport) -> None:
    console = Console(highlight=False)
    counts = report.counts
    console.print(f"{counts.total} operations in {report.seconds:.1f} s, seed {report.config.seed}\n")
    console.print(_outcome_table("protocol", counts.outcomes_by(0)))
    console.print()
    console.print(_outcome_table("operation", counts.outcomes_by(1)))
    received, missed = sum(counts.events.values()), sum(counts.missed.values())
    console.print(
        f"\n{sum(counts.method_runs.values())} method calls were handled; "
        f"{received} events were received, {missed} were missed."
    )


def _outcome_table(title: str, rows: dict[str, Counter[str]]) -> Table:
    """Return a table with one line per row, and one column per outcome that occurred."""
    outcomes = [name for name in OUTCOMES if any(row[name] for row in rows.values())]
    table = Table(title, box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("sent", *outcomes):
        table.add_column(name.replace("_", " "), justify="right", style=_STYLES.get(name))
    for name, row in rows.items():
        table.add_row(printable(name), str(row.total()), *(str(row[outcome] or "") for outcome in outcomes))
    return table
