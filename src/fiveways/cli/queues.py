"""`fiveways queues`: what waits in work queues, and what was tried too often."""

import os
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
from fiveways.errors import CallFailed

_PATIENCE = 1.0
"""Seconds that somebody who pressed Tab will wait."""
_COLUMNS: Final = {"waiting": "waiting", "given": "given out", "dead": "dead"}
_NOTHING: Final = dict.fromkeys(_COLUMNS, 0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    queue: str = ""
    redrive: bool = False
    timeout: float = 30.0
    raw: bool = False


def queues(gate: Access, wish: Wish) -> None:
    """Print all queues, one of them, or how many dead pieces wait again."""
    if wish.redrive:
        if not wish.queue:
            raise UsageError("--redrive needs the name of a queue")
        show(run(_redrive(gate, wish)), raw=wish.raw)
        return
    found = run(_told(gate, wish.timeout))
    if wish.queue and wish.queue not in found:
        # A queue is there as long as something or somebody is in it.
        tell(f"fiveways queues: nothing is in {wish.queue}")
    chosen = {wish.queue: found.get(wish.queue, _NOTHING)} if wish.queue else dict(sorted(found.items()))
    if wish.raw or not sys.stdout.isatty():
        show(chosen[wish.queue] if wish.queue else chosen, raw=wish.raw)
    else:
        _draw(chosen)


async def _redrive(gate: Access, wish: Wish) -> object:
    async with gate.within(wish.timeout) as peer:
        match await peer.call("hub.redrive", {"queue": wish.queue}):
            case {"redriven": int(count)}:
                return count
            case _:
                raise CallFailed("the hub does not say how many wait again")


async def _told(gate: Access, patience: float) -> Mapping[str, Mapping[str, object]]:
    async with gate.within(patience) as peer:
        found = await peer.call("hub.queues")
    if not isinstance(found, dict):
        raise CallFailed("the hub's answer is no list of queues")
    return found


def _draw(chosen: Mapping[str, Mapping[str, object]]) -> None:
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
        console.print("\nDead work was given out too often and never done; --redrive lets it wait once more.")


def _cell(key: str, count: object) -> Text:
    style = {"given": "cyan", "dead": "bold red"}.get(key, "") if count else "dim"
    return Text(str(count), style=style)


def names(url: str) -> list[str]:
    """Return the queues of a hub, for completion: nothing if it is away or refuses."""
    try:
        return list(run(_told(Access(url, os.environ.get("FIVEWAYS_TOKEN", "")), _PATIENCE)))
    except Exception:  # noqa: BLE001  a shell shows nothing else than completions
        return []
