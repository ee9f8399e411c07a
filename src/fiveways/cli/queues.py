"""`fiveways queues`: work queues and their dead-letter queues."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fiveways.cli.connection_options import ConnectionOptions, connection_options
from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.json_io import print_value
from fiveways.errors import CallFailed

_COMPLETION_TIMEOUT = 1.0
"""Timeout of shell completion, in seconds."""
_COLUMNS: Final = {"waiting": "waiting", "given": "given out", "dead": "dead"}
_EMPTY_QUEUE: Final = dict.fromkeys(_COLUMNS, 0)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of `fiveways queues`."""

    queue: str = ""
    dead: bool = False
    job: int | None = None
    redrive: bool = False
    drop: bool = False
    timeout: float = 30.0
    raw: bool = False


def queues(connection: ConnectionOptions, options: QueueOptions) -> None:
    """Print all queues, one queue or dead jobs; or redrive or delete dead jobs."""
    _check(options)
    if options.redrive:
        print_value(asyncio.run(_redrive(connection, options)), raw=options.raw)
    elif options.drop:
        asyncio.run(_call_for_queue(connection, options, "hub.drop"))
    elif options.job is not None:
        print_value(asyncio.run(_call_for_queue(connection, options, "hub.dead")), raw=options.raw)
    elif options.dead:
        _print_dead_jobs(asyncio.run(_fetch_dead_jobs(connection, options)), raw=options.raw)
    else:
        _print_queues(connection, options)


def _check(options: QueueOptions) -> None:
    chosen = [name for name in ("dead", "redrive", "drop") if getattr(options, name)]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    for name in (*chosen, *(["job"] if options.job is not None else [])):
        if not options.queue:
            raise UsageError(f"--{name} needs the name of a queue")
    if options.drop and options.job is None:
        raise UsageError("--drop needs --job NUMBER")
    if options.dead and options.job is not None:
        raise UsageError("--dead lists all dead jobs; --job alone shows one")


def _print_queues(connection: ConnectionOptions, options: QueueOptions) -> None:
    queues_by_name = asyncio.run(_fetch_queues(connection, options.timeout))
    if options.queue and options.queue not in queues_by_name:
        # A queue exists only while it has jobs or workers.
        print_stderr(f"fiveways queues: {options.queue} is empty")
    chosen = (
        {options.queue: queues_by_name.get(options.queue, _EMPTY_QUEUE)}
        if options.queue
        else dict(sorted(queues_by_name.items()))
    )
    if options.raw or not sys.stdout.isatty():
        print_value(chosen[options.queue] if options.queue else chosen, raw=options.raw)
    else:
        _print_table(chosen)


async def _call_for_queue(connection: ConnectionOptions, options: QueueOptions, method: str) -> object:
    """Call a built-in method with the queue and the job of the options."""
    async with connection.connect_within(options.timeout) as peer:
        return await peer.call(method, {"queue": options.queue, "job": options.job})


async def _redrive(connection: ConnectionOptions, options: QueueOptions) -> object:
    match await _call_for_queue(connection, options, "hub.redrive"):
        case {"redriven": int(count)}:
            return count
        case _:
            raise CallFailed("the response of hub.redrive has no number of jobs")


async def _fetch_dead_jobs(connection: ConnectionOptions, options: QueueOptions) -> list[Mapping[str, object]]:
    """Return all dead jobs of a queue; the hub returns at most 100 in one response."""
    jobs: list[Mapping[str, object]] = []
    async with connection.connect_within(options.timeout) as peer:
        while True:
            after = jobs[-1]["job"] if jobs else 0
            match await peer.call("hub.dead", {"queue": options.queue, "after": after}):
                case {"jobs": [*page], "more": int(more)}:
                    jobs += page
                case _:
                    raise CallFailed("the response of hub.dead is not a list of jobs")
            if not more:
                return jobs


def _print_dead_jobs(jobs: list[Mapping[str, object]], *, raw: bool) -> None:
    """Print dead jobs: a table on a terminal, else one JSON object per line."""
    if raw or not sys.stdout.isatty():
        for job in jobs:
            print_value(job, raw=raw)
        return
    console = Console(highlight=False)
    if not jobs:
        console.print("There are no dead jobs.")
        return
    table = Table("job", "tries", "died at (UTC)", "last error", box=None, header_style="bold", pad_edge=False)
    for job in jobs:
        at = job.get("at")
        died_at = datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")[:19] if isinstance(at, int | float) else ""
        table.add_row(str(job.get("job")), str(job.get("tries")), died_at, Text(printable(str(job.get("error")))))
    console.print(table)
    console.print(
        "\n--job NUMBER shows one job; --job NUMBER --redrive returns it to the queue, --job NUMBER --drop deletes it."
    )


async def _fetch_queues(connection: ConnectionOptions, seconds: float) -> Mapping[str, Mapping[str, object]]:
    async with connection.connect_within(seconds) as peer:
        response = await peer.call("hub.queues")
    if not isinstance(response, dict):
        raise CallFailed("the response of hub.queues is not a list of queues")
    return response


def _print_table(chosen: Mapping[str, Mapping[str, object]]) -> None:
    """Print a table of queues, with a hint if there are dead jobs."""
    console = Console(highlight=False)
    if not chosen:
        console.print("All work queues are empty.")
        return
    table = Table("queue", box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    for name, numbers in chosen.items():
        table.add_row(Text(printable(name)), *(_cell(key, numbers.get(key)) for key in _COLUMNS))
    console.print(table)
    if any(numbers.get("dead") for numbers in chosen.values()):
        console.print("\nDead jobs failed too often. --dead lists them; --redrive returns them to their queue.")


def _cell(key: str, count: object) -> Text:
    style = {"given": "cyan", "dead": "bold red"}.get(key, "") if count else "dim"
    return Text(str(count), style=style)


def queue_names(url: str, token: str, token_file: Path | None, identity: str, secret_file: Path | None) -> list[str]:
    """Return the work queues of a hub for shell completion; an empty list after any error."""
    try:
        return list(
            asyncio.run(
                _fetch_queues(connection_options(url, token, token_file, identity, secret_file), _COMPLETION_TIMEOUT)
            )
        )
    except Exception:  # noqa: BLE001  shell completion has no place for errors
        return []
