"""The commands that turn a journal into tables: their options and help. `root` takes them up."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fiveways.cli.commands import Command, CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    help="""Turn a journal into tables with Spark.

It needs pyspark (pip install 'fiveways\\[pipeline]') and Java 17 or later.

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
Out: TypeAlias = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the tables are, or will be.")]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local\\[4], spark://host:7077, yarn, ...")
]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
]
Verbose: TypeAlias = Annotated[
    bool, typer.Option("--verbose", help="Let Spark and Java say on stderr what they have to say.")
]
Group: TypeAlias = Annotated[
    str,
    typer.Option(
        "--group", metavar="NAME", help="A group whose members may read the result; without it, only its owner may."
    ),
]
LOCAL_MASTER = "local[*]"


@app.command(cls=Command)
def run(  # noqa: PLR0913  as many as the user has
    *,
    journal: Journal,
    out: Out,
    master: Master = LOCAL_MASTER,
    full: Annotated[bool, typer.Option("--full", help="Read all segments again, not only new ones.")] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Leave out what was before, such as 2026-05-01."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Leave out what was then or later.")] = None,
    group: Group = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    r"""Read the segments that are new and closed, and bring all tables up to them.

    The tables are replaced in one step at the end. If something is wrong, those of before stay.
    Times without a zone are UTC.

    [bold]Examples[/bold]

      fiveways pipeline run --journal journal --out tables
      fiveways pipeline run --journal journal --out may --from 2026-05-01
      fiveways pipeline run --journal /j --out /t --master spark://host:7077
    """
    from fiveways.cli import pipeline_actions as verb  # noqa: PLC0415

    verb.run(
        verb.PipelineOptions(journal, out, master, tuple(conf or ()), verbose, group),
        verb.TimeRangeOptions(from_, to),
        full=full,
    )


@app.command(cls=Command)
def watch(  # noqa: PLR0913  as many as the user has
    *,
    journal: Journal,
    out: Out,
    master: Master = LOCAL_MASTER,
    delay: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for records that are out of order.")
    ] = 600.0,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when all segments that are closed now have been read.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Look for closed segments no more often than that.")
    ] = 1.0,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the stream keeps how far it is; beside --out by default.")
    ] = None,
    group: Group = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Follow a journal: whenever a segment is closed, bring all tables up to it, until Ctrl-C.

    Records that are older than the newest one by more than --delay go to the table `late`.
    The next `fiveways pipeline run` puts them where they belong.
    Ended by whatever, it goes on where it was.

    [bold]Examples[/bold]

      fiveways pipeline watch --journal journal --out tables
      fiveways pipeline watch --journal journal --out tables --until-end
    """
    from fiveways.cli import pipeline_actions as verb  # noqa: PLC0415

    place = verb.PipelineOptions(journal, out, master, tuple(conf or ()), verbose, group)
    verb.watch(place, verb.FollowOptions(delay, every, until_end, checkpoint))


@app.command(cls=Command)
def tables(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="One table, with all its columns.")] = "",
) -> None:
    """List the tables and the question each one answers, or show the columns of one.

    The list is the same for every journal.

    [bold]Examples[/bold]

      fiveways pipeline tables
      fiveways pipeline tables slo
    """
    from fiveways.cli import pipeline_actions as verb  # noqa: PLC0415

    verb.tables(name)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In Spark SQL; - reads it from stdin.")],
    *,
    out: Annotated[
        Path, typer.Option("--out", "--tables", metavar="DIR", help="Where the tables are.", envvar="FIVEWAYS_TABLES")
    ] = Path("tables"),
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORM", help="table, json (a line for each row) or csv; table on a terminal."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="ROWS", help="Show no more rows than these; 0 shows all.")
    ] = 1000,
    master: Master = LOCAL_MASTER,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    r"""Ask the tables anything, in SQL.

    `fiveways pipeline tables` lists them. Spark takes some seconds to start.

    [bold]Examples[/bold]

      fiveways sql --out tables "select * from errors order by calls desc"
      fiveways sql --out tables --format csv "select * from slo"
    """
    from fiveways.cli import sql as verb  # noqa: PLC0415
    from fiveways.cli.pipeline_actions import PipelineOptions  # noqa: PLC0415

    verb.sql(query, PipelineOptions("", out, master, tuple(conf or ()), verbose), form, limit)
