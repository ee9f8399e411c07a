"""`fiveways report`: write the HTML report."""

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
        Path,
        typer.Option(
            "--tables", metavar="DIR", help="The directory with the tables of `fiveways pipeline run` (its --out)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; an existing file is replaced.")
    ] = Path("report.html"),
    group: Group = "",
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Write a report of the pipeline's tables: traffic, latency, failures, bridges and anomalies.

    The report is one HTML file that works without a network or a server. It
    contains the names of methods and peers.

    [bold]Examples[/bold]

      fiveways report --tables tables
      fiveways report --tables tables -o monday.html --open
    """
    from fiveways.journal.file_permissions import permissions_for_group  # noqa: PLC0415  not needed for help
    from fiveways.pipeline.report.page import render_directory  # noqa: PLC0415

    page = render_directory(tables)
    _replace_file(output, page.encode(), permissions_for_group(group))
    print(f"{printable(str(output))}: {len(page.encode()) / 1000:.0f} kB")  # noqa: T201
    if show:
        import webbrowser  # noqa: PLC0415

        webbrowser.open(output.absolute().as_uri())


def _replace_file(path: Path, content: bytes, permissions: "FilePermissions") -> None:
    """Replace a file atomically: readers never see half a page, and a failed write keeps the old one."""
    from fiveways.pipeline.report.table_reader import ReportError  # noqa: PLC0415

    try:
        target = path.resolve()  # replace the target of a symbolic link, not the link
        if target.is_dir():
            raise ReportError(f"{path} is a directory; -o takes a file")
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a device or a pipe cannot be replaced
            return
        try:
            with open(temporary, "wb", opener=permissions.open) as file:
                file.write(content)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise ReportError(f"{path} cannot be written: {exc.strerror}") from exc
