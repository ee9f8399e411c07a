"""`fiveways held`: durable requests, jobs and retained values that the hub holds, by owner; and how to purge them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError, printable, tell
from fiveways.cli.jsonio import show
from fiveways.errors import CallFailed, FivewaysError

_NUMBERS: Final = ("count", "given", "bytes")
_NO_OWNER: Final = "(the hub)"


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of the command line. An empty text stands for all."""

    kind: str = ""
    owner: str = ""
    name: str = ""
    purge: bool = False
    yes: bool = False
    timeout: float = 30.0
    raw: bool = False


def held(gate: Access, wish: Wish) -> None:
    """List what the hub holds, or purge some of it."""
    if not wish.purge:
        if wish.yes:
            raise UsageError("--yes goes with --purge")
        _show(run(_list(gate, wish)), raw=wish.raw)
        return
    if not wish.kind or not (wish.owner or wish.name):
        raise UsageError("--purge needs --kind, and --owner or --name")
    if not wish.yes:
        _confirm(gate, wish)
    show(run(_purge(gate, wish)), raw=wish.raw)


def _confirm(gate: Access, wish: Wish) -> None:
    """Ask the user on the terminal; FivewaysError if there is none, or if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--purge needs --yes where nobody can be asked")
    rows, _ = run(_list(gate, wish))
    number = sum(_number(row, "count") for row in rows)
    print(f"Purge {number} {wish.kind} of {len(rows)} owners and names? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise FivewaysError("nothing was purged")


async def _list(gate: Access, wish: Wish) -> tuple[list[Mapping[str, object]], int]:
    async with gate.within(wish.timeout) as peer:
        match await peer.call("hub.owed", _chosen(wish)):
            case {"held": [*rows], "more": int(more)}:
                return rows, more
            case _:
                raise CallFailed("the answer of the hub is not a list of what it holds")


async def _purge(gate: Access, wish: Wish) -> int:
    """Return how many were purged; the hub purges a bounded number in one call."""
    total = 0
    async with gate.within(wish.timeout) as peer:
        while True:
            match await peer.call("hub.purge", _chosen(wish)):
                case {"purged": int(purged), "more": int(more)}:
                    total += purged
                case _:
                    raise CallFailed("the hub does not say how many were purged")
            if not more or not purged:
                return total
            if sys.stderr.isatty():
                tell(f"fiveways held: {total} purged, {more} left")


def _chosen(wish: Wish) -> dict[str, str]:
    chosen = {"kind": wish.kind, "owner": wish.owner, "name": wish.name}
    return {key: text for key, text in chosen.items() if text}


def _show(found: tuple[list[Mapping[str, object]], int], *, raw: bool) -> None:
    """Show rows: a table to people, a line of JSON each to programs."""
    rows, more = found
    if raw or not sys.stdout.isatty():
        for row in rows:
            show(row, raw=raw)
    elif not rows:
        Console().print("The hub holds nothing of this kind.")
    else:
        _draw(rows)
    if more:
        tell(f"fiveways held: {more} more rows; --kind, --owner and --name choose")


def _draw(rows: list[Mapping[str, object]]) -> None:
    table = Table("kind", "owner", "name", box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for title in _NUMBERS:
        table.add_column(title, justify="right")
    for row in rows:
        owner = printable(str(row.get("owner") or "")) or _NO_OWNER
        texts = str(row.get("kind")), owner, printable(str(row.get("name")))
        table.add_row(*map(Text, texts), *(str(_number(row, key)) for key in _NUMBERS))
    console = Console(highlight=False)
    console.print(table)
    console.print("\n--purge cancels requests and deletes jobs and values: it needs --kind, and --owner or --name.")


def _number(row: Mapping[str, object], key: str) -> int:
    number = row.get(key)
    return number if isinstance(number, int) else 0
