"""Options and help of `fiveways store ...`."""

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
    help="""Check or repair the store of a stopped hub.

The store is the SQLite file of the setting store.path. Its WAL and its state
file are beside it; their names end in -wal and -state.

[bold]Examples[/bold]

  fiveways store check hub.db
  fiveways store repair hub.db
  fiveways store repair hub.db --yes
""",
    no_args_is_help=True,
)
_MAX_LINES = 1000
"""Maximum number of lines to print about damage."""

Store: TypeAlias = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The file of the store. If omitted: store.path of the configuration."),
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(envvar="FIVEWAYS_CONFIG", metavar="FILE", help="A configuration file that sets store.path."),
]


@app.command(cls=Command)
def check(store: Store = None, *, config: Config = None) -> None:
    """Check the files and each record of a store, without changes.

    Exit codes: 0 if the store is intact, 1 if it is damaged.

    [bold]Examples[/bold]

      fiveways store check hub.db
      fiveways store check --config fiveways.toml
    """
    from fiveways.runtime.undecodable_records import check_row  # noqa: PLC0415  help does without it
    from fiveways.store import store_repair  # noqa: PLC0415

    path = _path(store, config)
    report = store_repair.check_store(path, check_row)
    if not report.damage:
        _print(f"{path} is ok: {_record_counts(report)}")
        return
    _print(f"{path} is damaged:")
    _print_lines(report.damage)
    _print(f"Readable: {_record_counts(report)}. `fiveways store repair {path}` shows the effect of a repair.")
    raise typer.Exit(ExitCode.FAILED)


@app.command(cls=Command)
def repair(
    store: Store = None,
    *,
    config: Config = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair the store; without this option, only show the effect.")
    ] = False,
) -> None:
    """Replace a damaged store with a new one that contains all readable records.

    The damaged files are kept, with .damaged and the time in their names. Without
    --yes nothing is changed.

    [bold]Examples[/bold]

      fiveways store repair hub.db
      fiveways store repair hub.db --yes
    """
    from fiveways.runtime.undecodable_records import check_row  # noqa: PLC0415
    from fiveways.store import store_repair  # noqa: PLC0415

    path = _path(store, config)
    report = store_repair.check_store(path, check_row)
    if not report.damage:
        _print(f"{path} is ok, no repair is needed: {_record_counts(report)}")
        return
    _print_lines(report.damage)
    moved: list[Path] = []
    if yes:
        report, moved = store_repair.repair_store(path, check_row)
    _print(f"{'Kept' if yes else 'A repair would keep'}: {_record_counts(report)}")
    if report.lost:
        _print("Lost records, as far as they left a trace:")
        _print_lines(report.lost)
    else:
        _print("Lost records: none that left a trace.")
    if yes:
        _print(f"The damaged files are now: {', '.join(map(str, moved))}")
    else:
        _print("Nothing was changed; --yes repairs the store.")


def _path(store: Path | None, config: Path | None) -> Path:
    """Return the path of the store, from the argument or the configuration."""
    if store is not None:
        return store.absolute()
    from fiveways.settings.load import read_settings  # noqa: PLC0415

    if not (store_path := read_settings(config, os.environ).settings.store.path):
        raise UsageError("give the file of a store, or a configuration that sets store.path")
    return Path(store_path).absolute()


def _record_counts(report: "DamageReport") -> str:
    rows = report.rows
    return (
        f"{len(rows.get('peer', []))} peers, {len(rows.get('log', []))} request records,"
        f" {len(rows.get('item', []))} jobs in queues, {len(rows.get('retained', []))} retained values"
    )


def _print_lines(lines: list[str]) -> None:
    for line in lines[:_MAX_LINES]:
        _print(f"  {line}")
    if len(lines) > _MAX_LINES:
        _print(f"  and {len(lines) - _MAX_LINES} more")


def _print(line: str) -> None:
    print(printable(line))  # noqa: T201
