"""The commands for the journal: their options and help. `root` takes them up."""

from typing import Annotated, TypeAlias

import typer

from fiveways.cli import options

Directory: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="Where the hub writes its journal, journal.path.", envvar="FIVEWAYS_JOURNAL_PATH"
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Protocol: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Only umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc or nq.")
]
Session: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="Only sessions whose name begins like this.")]


def tail(  # noqa: PLR0913  as many as the user has
    directory: Directory = "journal",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="NUMBER", help="So many of the last.")] = 10,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Only calls of a method, and their answers, in any spelling.")
    ] = "",
    peer: Annotated[
        str, typer.Option(metavar="NAME", help="Only one peer: an identity, or a conversation of NQ.")
    ] = "",
    session: Session = "",
    protocol: Protocol = "",
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Only call, result, failure, event, ..., open, close, drop or deny.")
    ] = "",
    op: Annotated[str, typer.Option(metavar="OP", help="Only one operation.")] = "",
    json: Json = False,
    raw: Annotated[bool, typer.Option("--raw", help="Show frames as they are, instead of what they say.")] = False,
) -> None:
    """Show the last messages that passed the hub, and with -f those that come.

    → is to the hub, ← from it. Times are UTC.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/journal.md

    [bold]Examples[/bold]

      fiveways tail journal
      fiveways tail journal -f --method math.add
      fiveways tail journal -n 1000 --kind failure --json
    """
    from fiveways.cli import tail as verb  # noqa: PLC0415

    verb.tail(verb.TailOptions(directory, follow, count, method, peer, session, protocol, kind, op, json, raw))


def trace(
    op: Annotated[str, typer.Argument(metavar="OP", help="The operation, as `fiveways tail` shows it.")],
    directory: Directory = "journal",
    *,
    run: Annotated[
        str, typer.Option(metavar="RUN", help="One life of a hub; without it, the latest with that operation.")
    ] = "",
    json: Json = False,
) -> None:
    """Show everything about one operation: both legs, every frame, and where the time went.

    An operation is a call or a publication (p...), from whom it came to all whom it went to.

    [bold]Examples[/bold]

      fiveways trace 17 journal
      fiveways trace p3 journal --json
    """
    from fiveways.cli import trace as verb  # noqa: PLC0415

    verb.trace(verb.TraceOptions(op, directory, run, json))


def replay(  # noqa: PLR0913
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A journal.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="The hub to send it to, such as http://localhost:7500.")],
    *,
    speed: Annotated[
        str, typer.Option(metavar="FACTOR", help="1 is the pace of then, 10 is ten times faster, max is flat out.")
    ] = "1",
    first: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only from then on: 2026-05-01T09:30:00Z.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only before that.")] = None,
    session: Session = "",
    protocol: Protocol = "",
    limit: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="Send no more frames than that.")] = None,
    zmq: Annotated[
        str, typer.Option(metavar="URL", help="Where sessions over ZeroMQ go: nq+zmq://localhost:7555.")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="The longest wait for an answer.")] = 5.0,
    json: Json = False,
    remote: Annotated[bool, typer.Option("--yes-remote", help="Send it to another machine.")] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Send what peers said to a hub once more, and tell what it answers differently.

    Each recorded session becomes a connection in its own protocol. It ends with 1 if anything
    differs, else with 0. Some answers cannot be the same; the documentation lists them.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/journal.md

    [bold]Examples[/bold]

      fiveways replay journal http://localhost:7500
      fiveways replay journal http://localhost:7600 --speed max --json
      fiveways replay journal http://localhost:7600 --speed 10 --protocol nq
    """
    from fiveways.cli import replay as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415
    from fiveways.cli.pipeline_actions import TimeRangeOptions  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file)
    who = (gate.token, gate.identity, gate.secret)
    span = TimeRangeOptions(first, end)
    wish = verb.ReplayOptions(directory, url, speed, span, protocol, session, limit, zmq, timeout, json, remote, *who)
    raise typer.Exit(verb.replay(wish))
