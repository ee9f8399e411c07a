"""The commands `fiveways store ...`: their options and help. `root` takes them up."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fiveways.cli.commands import Command, CommandGroup
from fiveways.cli.errors import ExitCode, UsageError, printable

if TYPE_CHECKING:
    from fiveways.store.store_repair import DamageReport

app = typer.Typer(
    cls=CommandGroup,
    help="""Check the store of a hub that is stopped, or repair it.

The store is the file of the setting store.path. Beside it are its WAL and its
state file, with -wal and -state at the end of their names.

[bold]Examples[/bold]

  fiveways store check hub.db
  fiveways store repair hub.db
  fiveways store repair hub.db --yes
""",
    no_args_is_help=True,
)
_MAX_LINES = 1000
"""Lines about damage that are printed."""

Store: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The store. If omitted: store.path of the configuration.")
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(envvar="FIVEWAYS_CONFIG", metavar="FILE", help="A TOML file of settings, which names the store."),
]


@app.command(cls=Command)
def check(store: Store = None, *, config: Config = None) -> None:
    """Check each record of a store, and its files. Nothing is changed.

    Exit codes: 0 if the store is as it was written, 1 if it is damaged.

    [bold]Examples[/bold]

      fiveways store check hub.db
      fiveways store check --config fiveways.toml
    """
    from fiveways.runtime.undecodable_records import check_row  # noqa: PLC0415  help does without it
    from fiveways.store import store_repair  # noqa: PLC0415

    path = _path(store, config)
    report = store_repair.check_store(path, check_row)
    if not report.damage:
        _say(f"{path} is ok: {_record_counts(report)}")
        return
    _say(f"{path} is damaged:")
    _print_lines(report.damage)
    _say(f"Readable: {_record_counts(report)}. `fiveways store repair {path}` shows what a repair keeps.")
    raise typer.Exit(ExitCode.FAILED)


@app.command(cls=Command)
def repair(
    store: Store = None,
    *,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what is kept and lost.")] = False,
) -> None:
    """Replace a damaged store with a new one that has all readable records.

    The damaged files are kept, with .damaged and the time in their names. Without --yes nothing is changed.

    [bold]Examples[/bold]

      fiveways store repair hub.db
      fiveways store repair hub.db --yes
    """
    from fiveways.runtime.undecodable_records import check_row  # noqa: PLC0415
    from fiveways.store import store_repair  # noqa: PLC0415

    path = _path(store, config)
    report = store_repair.check_store(path, check_row)
    if not report.damage:
        _say(f"{path} is ok, nothing is to be repaired: {_record_counts(report)}")
        return
    _print_lines(report.damage)
    moved: list[Path] = []
    if yes:
        report, moved = store_repair.repair_store(path, check_row)
    _say(f"{'Kept' if yes else 'A repair keeps'}: {_record_counts(report)}")
    if report.lost:
        _say("Lost, besides records that left no trace:")
        _print_lines(report.lost)
    else:
        _say("Lost: no record that left a trace.")
    if yes:
        _say(f"The damaged files are now: {', '.join(map(str, moved))}")
    else:
        _say("Nothing was changed. --yes does it.")


def _path(store: Path | None, config: Path | None) -> Path:
    """Return the store that is meant."""
    if store is not None:
        return store.absolute()
    from fiveways.settings.load import read_settings  # noqa: PLC0415

    if not (named := read_settings(config, os.environ).settings.store.path):
        raise UsageError("name the file of a store, or a configuration that sets store.path")
    return Path(named).absolute()


def _record_counts(report: "DamageReport") -> str:
    rows = report.rows
    return (
        f"{len(rows.get('peer', []))} peers, {len(rows.get('log', []))} lines about requests,"
        f" {len(rows.get('item', []))} jobs in queues, {len(rows.get('retained', []))} retained values"
    )


def _print_lines(lines: list[str]) -> None:
    for line in lines[:_MAX_LINES]:
        _say(f"  {line}")
    if len(lines) > _MAX_LINES:
        _say(f"  and {len(lines) - _MAX_LINES} more")


def _say(line: str) -> None:
    print(printable(line))  # noqa: T201
