"""`fiveways report`: its options and help, and the page on disk. `root` takes the command up."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveways.cli.errors import printable
from fiveways.cli.pipeline_commands import Group

if TYPE_CHECKING:
    from fiveways.journal.file_permissions import FilePermissions


def report(
    *,
    tables: Annotated[
        Path, typer.Option("--tables", metavar="DIR", help="Where `fiveways pipeline run` wrote its tables (--out).")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page; an old one is replaced.")
    ] = Path("report.html"),
    group: Group = "",
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Make one HTML page of the pipeline's tables: traffic, latency, failures, bridges, anomalies.

    The page needs no network and no server, and can be sent to others as it is.
    Names of methods and peers are in it.

    [bold]Examples[/bold]

      fiveways report --tables tables
      fiveways report --tables tables -o monday.html --open
    """
    from fiveways.cli.pipeline_actions import unbreakable_output  # noqa: PLC0415  help does without it
    from fiveways.journal.file_permissions import permissions_for_group  # noqa: PLC0415
    from fiveways.pipeline.report.page import render_directory  # noqa: PLC0415

    unbreakable_output()

    made = render_directory(tables)
    _replace_file(output, made.encode(), permissions_for_group(group))
    print(f"{printable(str(output))}: {len(made.encode()) / 1000:.0f} kB")  # noqa: T201
    if show:
        import webbrowser  # noqa: PLC0415

        webbrowser.open(output.absolute().as_uri())


def _replace_file(path: Path, content: bytes, access: "FilePermissions") -> None:
    """Put a file in its place at once, so that nobody reads half a page, and an old one stays if there is no room."""
    from fiveways.pipeline.report.table_reader import ReportError  # noqa: PLC0415

    try:
        target = path.resolve()  # what a link names is replaced, not the link
        if target.is_dir():
            raise ReportError(f"{path} is a directory; -o takes a file")
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a device or a pipe keeps its place
            return
        try:
            with open(beside, "wb", opener=access.open) as file:
                file.write(content)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as exc:
        raise ReportError(f"{path} cannot be written: {exc.strerror}") from exc
