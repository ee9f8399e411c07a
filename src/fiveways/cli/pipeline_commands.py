"""Options and help of `fiveways pipeline ...` and `fiveways sql`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fiveways.cli.commands import Command, CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    help="""Build tables from a journal with Spark.

The pipeline requires pyspark (pip install 'fiveways\\[pipeline]') and Java 17 or later.

Documentation: https://github.com/fiveways/fiveways/blob/main/docs/pipeline.md

[bold]Examples[/bold]

  fiveways pipeline run --journal journal --out tables
  fiveways pipeline watch --journal journal --out tables
""",
    no_args_is_help=True,
)

Journal: TypeAlias = Annotated[
    str, typer.Option("--journal", metavar="DIR", help="The journal: a directory, or a URL such as s3://bucket/hub.")
]
Out: TypeAlias = Annotated[Path, typer.Option("--out", metavar="DIR", help="The directory for the tables.")]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", metavar="URL", help="The Spark master: local\\[4], spark://host:7077, yarn, ...")
]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable."),
]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", help="Print the log of Spark and Java on stderr.")]
Group: TypeAlias = Annotated[
    str,
    typer.Option("--group", metavar="NAME", help="A group that may read the result; by default only the owner may."),
]
LOCAL_MASTER = "local[*]"


@app.command(cls=Command)
def run(  # noqa: PLR0913  one parameter per option
    *,
    journal: Journal,
    out: Out,
    master: Master = LOCAL_MASTER,
    full: Annotated[bool, typer.Option("--full", help="Read all segments again, instead of only new ones.")] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Skip records before this time, such as 2026-05-01."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Skip records at or after this time, such as 2026-06-01.")
    ] = None,
    group: Group = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    r"""Read new closed segments of a journal, and update all tables.

    The tables are replaced in one step at the end; after an error the old tables
    remain. Times without a time zone are in UTC.

    [bold]Examples[/bold]

      fiveways pipeline run --journal journal --out tables
      fiveways pipeline run --journal journal --out may --from 2026-05-01
      fiveways pipeline run --journal /j --out /t --master spark://host:7077
    """
    from fiveways.cli import pipeline_actions as implementation  # noqa: PLC0415

    implementation.run(
        implementation.PipelineOptions(journal, out, master, tuple(conf or ()), verbose, group),
        implementation.TimeRangeOptions(from_, to),
        full=full,
    )


@app.command(cls=Command)
def watch(  # noqa: PLR0913  one parameter per option
    *,
    journal: Journal,
    out: Out,
    master: Master = LOCAL_MASTER,
    delay: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The watermark delay: how long to wait for late records.")
    ] = 600.0,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End after reading all segments that are closed at the start.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The minimum time between two checks for closed segments.")
    ] = 1.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The directory of the stream's checkpoint; by default beside --out."),
    ] = None,
    group: Group = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Follow a journal, and update all tables whenever a segment is closed, until Ctrl-C.

    Records that are more than --delay older than the newest record go to the
    table `late`. The next `fiveways pipeline run` moves them to their tables.
    Safe to interrupt: the command resumes from its checkpoint.

    [bold]Examples[/bold]

      fiveways pipeline watch --journal journal --out tables
      fiveways pipeline watch --journal journal --out tables --until-end
    """
    from fiveways.cli import pipeline_actions as implementation  # noqa: PLC0415

    pipeline_options = implementation.PipelineOptions(journal, out, master, tuple(conf or ()), verbose, group)
    implementation.watch(pipeline_options, implementation.FollowOptions(delay, every, until_end, checkpoint))


@app.command(cls=Command)
def tables(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table to show; if omitted, all tables are listed.")
    ] = "",
) -> None:
    """List the tables and their purpose, or show the columns of one table.

    All journals have the same tables.

    [bold]Examples[/bold]

      fiveways pipeline tables
      fiveways pipeline tables slo
    """
    from fiveways.cli import pipeline_actions as implementation  # noqa: PLC0415

    implementation.tables(name)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query in Spark SQL; - reads it from stdin.")],
    *,
    out: Annotated[
        Path,
        typer.Option("--out", "--tables", metavar="DIR", help="The directory of the tables.", envvar="FIVEWAYS_TABLES"),
    ] = Path("tables"),
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORM",
            help="The output format: table, json (one line per row) or csv. Default: table on a terminal, else json.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="ROWS", help="The maximum number of rows to print; 0 for all.")
    ] = 1000,
    master: Master = LOCAL_MASTER,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    r"""Run a Spark SQL query on the tables of the pipeline.

    `fiveways pipeline tables` lists the tables. Spark needs some seconds to start.

    [bold]Examples[/bold]

      fiveways sql --out tables "select * from errors order by calls desc"
      fiveways sql --out tables --format csv "select * from slo"
    """
    from fiveways.cli import sql as implementation  # noqa: PLC0415
    from fiveways.cli.pipeline_actions import PipelineOptions  # noqa: PLC0415

    implementation.sql(query, PipelineOptions("", out, master, tuple(conf or ()), verbose), output_format, limit)
