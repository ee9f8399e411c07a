"""`fiveways held`: durable requests, jobs and retained values that the hub holds, by owner; and how to purge them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.json_io import print_value
from fiveways.errors import CallFailed, FivewaysError

_NUMBER_COLUMNS: Final = ("count", "given", "bytes")
_NO_OWNER: Final = "(the hub)"


@dataclass(frozen=True, slots=True)
class HeldOptions:
    """The options of the command line. An empty text stands for all."""

    kind: str = ""
    owner: str = ""
    name: str = ""
    purge: bool = False
    yes: bool = False
    timeout: float = 30.0
    raw: bool = False


def held(gate: ConnectionOptions, wish: HeldOptions) -> None:
    """List what the hub holds, or purge some of it."""
    if not wish.purge:
        if wish.yes:
            raise UsageError("--yes goes with --purge")
        _print_rows(run_async(_list(gate, wish)), raw=wish.raw)
        return
    if not wish.kind or not (wish.owner or wish.name):
        raise UsageError("--purge needs --kind, and --owner or --name")
    if not wish.yes:
        _confirm(gate, wish)
    print_value(run_async(_purge(gate, wish)), raw=wish.raw)


def _confirm(gate: ConnectionOptions, wish: HeldOptions) -> None:
    """Ask the user on the terminal; FivewaysError if there is none, or if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--purge needs --yes where nobody can be asked")
    rows, _ = run_async(_list(gate, wish))
    number = sum(_number(row, "count") for row in rows)
    print(f"Purge {number} {wish.kind} of {len(rows)} owners and names? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise FivewaysError("nothing was purged")


async def _list(gate: ConnectionOptions, wish: HeldOptions) -> tuple[list[Mapping[str, object]], int]:
    async with gate.connect_within(wish.timeout) as peer:
        match await peer.call("hub.owed", _filter_arguments(wish)):
            case {"held": [*rows], "more": int(more)}:
                return rows, more
            case _:
                raise CallFailed("the answer of the hub is not a list of what it holds")


async def _purge(gate: ConnectionOptions, wish: HeldOptions) -> int:
    """Return how many were purged; the hub purges a bounded number in one call."""
    total = 0
    async with gate.connect_within(wish.timeout) as peer:
        while True:
            match await peer.call("hub.purge", _filter_arguments(wish)):
                case {"purged": int(purged), "more": int(more)}:
                    total += purged
                case _:
                    raise CallFailed("the hub does not say how many were purged")
            if not more or not purged:
                return total
            if sys.stderr.isatty():
                print_stderr(f"fiveways held: {total} purged, {more} left")


def _filter_arguments(wish: HeldOptions) -> dict[str, str]:
    chosen = {"kind": wish.kind, "owner": wish.owner, "name": wish.name}
    return {key: text for key, text in chosen.items() if text}


def _print_rows(found: tuple[list[Mapping[str, object]], int], *, raw: bool) -> None:
    """Show rows: a table to people, a line of JSON each to programs."""
    rows, more = found
    if raw or not sys.stdout.isatty():
        for row in rows:
            print_value(row, raw=raw)
    elif not rows:
        Console().print("The hub holds nothing of this kind.")
    else:
        _print_table(rows)
    if more:
        print_stderr(f"fiveways held: {more} more rows; --kind, --owner and --name choose")


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
    console.print("\n--purge cancels requests and deletes jobs and values: it needs --kind, and --owner or --name.")


def _number(row: Mapping[str, object], key: str) -> int:
    number = row.get(key)
    return number if isinstance(number, int) else 0
