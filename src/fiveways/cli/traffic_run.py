"""What `fiveways traffic` does, and how it tells the end of it."""

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

from fiveways.cli.connection_options import run_async
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
    """What the user typed."""

    url: str
    seconds: float
    rate: float
    seed: int
    peers: int
    mqtt: str = ""
    token: str = field(default="", repr=False)
    remote: bool = False

    def config(self) -> TrafficConfig:
        """Return what is to be done; UsageError if that cannot be meant."""
        mqtt = f"mqtt-rpc+{self.mqtt.removeprefix('mqtt-rpc+')}" if self.mqtt else ""
        try:
            target = Target.parse(self.url, self.token)
            broker = parse_mqtt(mqtt)[0].host if mqtt else ""
        except BadUrl as exc:
            raise UsageError(str(exc)) from exc
        if not self.remote:
            for host in filter(None, (target.host, broker)):
                if not is_loopback(host):
                    raise UsageError(f"{host} is not this machine; --yes-remote says that you mean it all the same")
        return TrafficConfig(target, self.seconds, self.rate, self.seed, self.peers, mqtt.removeprefix("mqtt-rpc+"))


def run_traffic(command: TrafficOptions, *, as_json: bool) -> None:
    """Drive the hub, and print the summary."""
    wish = command.config()
    with _progress_bar(wish.seconds) as told:
        report = run_async(_run_until_interrupted(wish, told))
    for note in report.counts.notes:
        print_stderr(f"fiveways traffic: {note}")
    if as_json:
        print_value(report.as_dict(), raw=True)
    else:
        _print_report(report)


async def _run_until_interrupted(wish: TrafficConfig, told: Callable[[float], None]) -> TrafficReport:
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, enough.set)
    return await traffic.run_traffic(wish, enough, told)


@contextmanager
def _progress_bar(seconds: float) -> Iterator[Callable[[float], None]]:
    """Show how far it is to people, and nothing to programs."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("traffic", style="bold"), BarColumn(24), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("traffic", total=seconds)
        yield lambda at: progress.update(task, completed=at)


def _print_report(report: TrafficReport) -> None:
    console = Console(highlight=False)
    tally = report.counts
    console.print(f"{tally.total} things in {report.seconds:.1f} s, seed {report.config.seed}\n")
    console.print(_outcome_table("protocol", tally.outcomes_by(0)))
    console.print()
    console.print(_outcome_table("what", tally.outcomes_by(1)))
    came, missed = sum(tally.events.values()), sum(tally.missed.values())
    console.print(f"\n{sum(tally.method_runs.values())} methods were run; {came} events came, {missed} were missed.")


def _outcome_table(title: str, rows: dict[str, Counter[str]]) -> Table:
    """Return one line for each, with the outcomes that there are."""
    outcomes = [name for name in OUTCOMES if any(row[name] for row in rows.values())]
    table = Table(title, box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("sent", *outcomes):
        table.add_column(name.replace("_", " "), justify="right", style=_STYLES.get(name))
    for name, row in rows.items():
        table.add_row(printable(name), str(row.total()), *(str(row[each] or "") for each in outcomes))
    return table
