"""`fiveways held`: list or purge the durable requests, jobs and retained values of a hub, by owner."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.json_io import print_value
from fiveways.errors import CallFailed, FivewaysError

_NUMBER_COLUMNS: Final = ("count", "given", "bytes")
_NO_OWNER: Final = "(the hub)"


@dataclass(frozen=True, slots=True)
class HeldOptions:
    """Options of `fiveways held`. An empty string means no filter."""

    kind: str = ""
    owner: str = ""
    name: str = ""
    purge: bool = False
    yes: bool = False
    timeout: float = 30.0
    raw: bool = False


def held(connection: ConnectionOptions, options: HeldOptions) -> None:
    """List the stored records, or purge some of them."""
    if not options.purge:
        if options.yes:
            raise UsageError("--yes requires --purge")
        _print_rows(asyncio.run(_list(connection, options)), raw=options.raw)
        return
    if not options.kind or not (options.owner or options.name):
        raise UsageError("--purge requires --kind, and --owner or --name")
    if not options.yes:
        _confirm(connection, options)
    print_value(asyncio.run(_purge(connection, options)), raw=options.raw)


def _confirm(connection: ConnectionOptions, options: HeldOptions) -> None:
    """Ask the user for confirmation on the terminal.

    Raises:
        UsageError: there is no terminal.
        FivewaysError: the user refused.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--purge requires --yes if there is no terminal")
    rows, _ = asyncio.run(_list(connection, options))
    number = sum(_number(row, "count") for row in rows)
    print(f"Purge {number} {options.kind} of {len(rows)} owners and names? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise FivewaysError("nothing was purged")


async def _list(connection: ConnectionOptions, options: HeldOptions) -> tuple[list[Mapping[str, object]], int]:
    async with connection.connect_within(options.timeout) as peer:
        match await peer.call("hub.owed", _filter_arguments(options)):
            case {"held": [*rows], "more": int(more)}:
                return rows, more
            case _:
                raise CallFailed("the response of hub.owed is not a list of records")


async def _purge(connection: ConnectionOptions, options: HeldOptions) -> int:
    """Purge all matching records and return their number; the hub limits the number per call."""
    total = 0
    async with connection.connect_within(options.timeout) as peer:
        while True:
            match await peer.call("hub.purge", _filter_arguments(options)):
                case {"purged": int(purged), "more": int(more)}:
                    total += purged
                case _:
                    raise CallFailed("the response of hub.purge has no number of records")
            if not more or not purged:
                return total
            if sys.stderr.isatty():
                print_stderr(f"fiveways held: {total} purged, {more} left")


def _filter_arguments(options: HeldOptions) -> dict[str, str]:
    filters = {"kind": options.kind, "owner": options.owner, "name": options.name}
    return {key: text for key, text in filters.items() if text}


def _print_rows(listing: tuple[list[Mapping[str, object]], int], *, raw: bool) -> None:
    """Print rows: a table on a terminal, else one JSON object per line."""
    rows, more = listing
    if raw or not sys.stdout.isatty():
        for row in rows:
            print_value(row, raw=raw)
    elif not rows:
        Console().print("The hub stores no such records.")
    else:
        _print_table(rows)
    if more:
        print_stderr(f"fiveways held: {more} rows are omitted; filter with --kind, --owner and --name")


def _print_table(rows: list[Mapping[str, object]]) -> None:
    table = Table("kind", "owner", "name", box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in _NUMBER_COLUMNS:
        table.add_column(title, justify="right")
    for row in rows:
        owner = printable(str(row.get("owner") or "")) or _NO_OWNER
        texts = str(row.get("kind")), owner, printable(str(row.get("name")))
        table.add_row(*map(Text, texts), *(str(_number(row, key)) for key in _NUMBER_COLUMNS))
    console = Console(highlight=False)
    console.print(table)
    console.print("\n--purge cancels requests and deletes jobs and values. It requires --kind, and --owner or --name.")


def _number(row: Mapping[str, object], key: str) -> int:
    number = row.get(key)
    return number if isinstance(number, int) else 0
