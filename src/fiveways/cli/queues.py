"""`fiveways queues`: what waits in work queues, and what was tried too often."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fiveways.cli.connection_options import ConnectionOptions, connection_options, run_async
from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.json_io import print_value
from fiveways.errors import CallFailed

_COMPLETION_TIMEOUT = 1.0
"""Seconds that somebody who pressed Tab will wait."""
_COLUMNS: Final = {"waiting": "waiting", "given": "given out", "dead": "dead"}
_EMPTY_QUEUE: Final = dict.fromkeys(_COLUMNS, 0)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What the user typed."""

    queue: str = ""
    dead: bool = False
    job: int | None = None
    redrive: bool = False
    drop: bool = False
    timeout: float = 30.0
    raw: bool = False


def queues(gate: ConnectionOptions, wish: QueueOptions) -> None:
    """Print all queues, one of them, or dead jobs; or redrive or drop dead jobs."""
    _check(wish)
    if wish.redrive:
        print_value(run_async(_redrive(gate, wish)), raw=wish.raw)
    elif wish.drop:
        run_async(_call_for_queue(gate, wish, "hub.drop"))
    elif wish.job is not None:
        print_value(run_async(_call_for_queue(gate, wish, "hub.dead")), raw=wish.raw)
    elif wish.dead:
        _print_dead_jobs(run_async(_fetch_dead_jobs(gate, wish)), raw=wish.raw)
    else:
        _print_queues(gate, wish)


def _check(wish: QueueOptions) -> None:
    chosen = [name for name in ("dead", "redrive", "drop") if getattr(wish, name)]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    for name in (*chosen, *(["job"] if wish.job is not None else [])):
        if not wish.queue:
            raise UsageError(f"--{name} needs the name of a queue")
    if wish.drop and wish.job is None:
        raise UsageError("--drop needs --job NUMBER")
    if wish.dead and wish.job is not None:
        raise UsageError("--dead lists all dead jobs; --job alone shows one")


def _print_queues(gate: ConnectionOptions, wish: QueueOptions) -> None:
    found = run_async(_fetch_queues(gate, wish.timeout))
    if wish.queue and wish.queue not in found:
        # A queue is there as long as something or somebody is in it.
        print_stderr(f"fiveways queues: nothing is in {wish.queue}")
    chosen = {wish.queue: found.get(wish.queue, _EMPTY_QUEUE)} if wish.queue else dict(sorted(found.items()))
    if wish.raw or not sys.stdout.isatty():
        print_value(chosen[wish.queue] if wish.queue else chosen, raw=wish.raw)
    else:
        _print_table(chosen)


async def _call_for_queue(gate: ConnectionOptions, wish: QueueOptions, method: str) -> object:
    """Call a method of the hub for a queue, or for one dead job of it."""
    async with gate.connect_within(wish.timeout) as peer:
        return await peer.call(method, {"queue": wish.queue, "job": wish.job})


async def _redrive(gate: ConnectionOptions, wish: QueueOptions) -> object:
    match await _call_for_queue(gate, wish, "hub.redrive"):
        case {"redriven": int(count)}:
            return count
        case _:
            raise CallFailed("the hub does not say how many jobs wait again")


async def _fetch_dead_jobs(gate: ConnectionOptions, wish: QueueOptions) -> list[Mapping[str, object]]:
    """Return all dead jobs of a queue; the hub tells a hundred at a time."""
    jobs: list[Mapping[str, object]] = []
    async with gate.connect_within(wish.timeout) as peer:
        while True:
            after = jobs[-1]["job"] if jobs else 0
            match await peer.call("hub.dead", {"queue": wish.queue, "after": after}):
                case {"jobs": [*found], "more": int(more)}:
                    jobs += found
                case _:
                    raise CallFailed("the hub's answer is no list of dead jobs")
            if not more:
                return jobs


def _print_dead_jobs(jobs: list[Mapping[str, object]], *, raw: bool) -> None:
    """Show dead jobs: a table to people, a line of JSON each to programs."""
    if raw or not sys.stdout.isatty():
        for each in jobs:
            print_value(each, raw=raw)
        return
    console = Console(highlight=False)
    if not jobs:
        console.print("There are no dead jobs.")
        return
    table = Table("job", "tries", "died at (UTC)", "last error", box=None, header_style="bold", pad_edge=False)
    for each in jobs:
        at = each.get("at")
        died_at = datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")[:19] if isinstance(at, int | float) else ""
        table.add_row(str(each.get("job")), str(each.get("tries")), died_at, Text(printable(str(each.get("error")))))
    console.print(table)
    console.print("\n--job NUMBER shows one, with --redrive it is tried again, with --drop it is deleted.")


async def _fetch_queues(gate: ConnectionOptions, patience: float) -> Mapping[str, Mapping[str, object]]:
    async with gate.connect_within(patience) as peer:
        found = await peer.call("hub.queues")
    if not isinstance(found, dict):
        raise CallFailed("the hub's answer is no list of queues")
    return found


def _print_table(chosen: Mapping[str, Mapping[str, object]]) -> None:
    """Show a table to people, and what can be done about the dead."""
    console = Console(highlight=False)
    if not chosen:
        console.print("There is no work in any queue.")
        return
    table = Table("queue", box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    for name, numbers in chosen.items():
        table.add_row(Text(printable(name)), *(_cell(key, numbers.get(key)) for key in _COLUMNS))
    console.print(table)
    if any(numbers.get("dead") for numbers in chosen.values()):
        console.print("\nDead jobs have failed too often: --dead lists them, --redrive returns them to their queue.")


def _cell(key: str, count: object) -> Text:
    style = {"given": "cyan", "dead": "bold red"}.get(key, "") if count else "dim"
    return Text(str(count), style=style)


def queue_names(url: str, token: str, token_file: Path | None, identity: str, secret_file: Path | None) -> list[str]:
    """Return the queues of a hub, for completion: nothing if it is away or refuses."""
    try:
        return list(
            run_async(
                _fetch_queues(connection_options(url, token, token_file, identity, secret_file), _COMPLETION_TIMEOUT)
            )
        )
    except Exception:  # noqa: BLE001  a shell shows nothing else than completions
        return []
