"""Options and help of the commands for the journal: tail, trace and replay."""

from typing import Annotated, TypeAlias

import typer

from fiveways.cli import options

Directory: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="The directory of the journal (journal.path of the hub).", envvar="FIVEWAYS_JOURNAL_PATH"
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Protocol: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Only sessions in this protocol: umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc or nq."
    ),
]
Session: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="Only sessions with this prefix of their name.")]


def tail(  # noqa: PLR0913  one parameter per option
    directory: Directory = "journal",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new messages, until Ctrl-C.")] = False,
    count: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="NUMBER", help="The number of last messages to print.")
    ] = 10,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Only calls of this method and their responses; in any spelling.")
    ] = "",
    peer: Annotated[
        str, typer.Option(metavar="NAME", help="Only this peer: an identity, or the conversation id of an NQ peer.")
    ] = "",
    session: Session = "",
    protocol: Protocol = "",
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Only messages of this kind: call, result, failure, event, ..., open, close, drop or deny.",
        ),
    ] = "",
    op: Annotated[str, typer.Option(metavar="OP", help="Only this operation, such as 17 or p3.")] = "",
    json: Json = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the payloads of frames, not the decoded messages.")] = False,
) -> None:
    """Print the last messages of a journal, and with --follow all new ones.

    → marks messages to the hub, ← messages from the hub. Times are in UTC.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/journal.md

    [bold]Examples[/bold]

      fiveways tail journal
      fiveways tail journal -f --method math.add
      fiveways tail journal -n 1000 --kind failure --json
    """
    from fiveways.cli import tail as implementation  # noqa: PLC0415

    tail_options = implementation.TailOptions(
        directory,
        follow=follow,
        count=count,
        method=method,
        peer=peer,
        session=session,
        protocol=protocol,
        kind=kind,
        op=op,
        json=json,
        raw=raw,
    )
    implementation.tail(tail_options)


def trace(
    op: Annotated[
        str, typer.Argument(metavar="OP", help="The id of the operation, as printed by `fiveways tail` (op=...).")
    ],
    directory: Directory = "journal",
    *,
    run: Annotated[
        str, typer.Option(metavar="RUN", help="The run of the hub; by default the latest run with this operation.")
    ] = "",
    json: Json = False,
) -> None:
    """Show one operation: all its messages on the way to and from the hub, and the latency.

    An operation is a call or a publication; the ids of publications begin with p.

    [bold]Examples[/bold]

      fiveways trace 17 journal
      fiveways trace p3 journal --json
    """
    from fiveways.cli import trace as implementation  # noqa: PLC0415

    implementation.trace(implementation.TraceOptions(op, directory, run, json))


def replay(  # noqa: PLR0913
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory of the journal.")],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The hub that receives the frames, such as http://localhost:7500.")
    ],
    *,
    speed: Annotated[
        str, typer.Option(metavar="FACTOR", help="1 for the recorded speed, 10 for ten times that, max for no delays.")
    ] = "1",
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only frames from this time on, such as 2026-05-01T09:30:00Z."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only frames before this time, such as 2026-05-02.")
    ] = None,
    session: Session = "",
    protocol: Protocol = "",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="The maximum number of frames to send.")
    ] = None,
    zmq: Annotated[
        str, typer.Option(metavar="URL", help="The URL for sessions over ZeroMQ, such as nq+zmq://localhost:7555.")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="The timeout of a response.")] = 5.0,
    json: Json = False,
    remote: Annotated[bool, typer.Option("--yes-remote", help="Allow a hub on another machine.")] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Send the recorded frames of peers to a hub again, and print differences in its responses.

    Each recorded session becomes a session in its own protocol. The exit code is
    1 if there are differences, else 0. Some responses always differ; the
    documentation lists them.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/journal.md

    [bold]Examples[/bold]

      fiveways replay journal http://localhost:7500
      fiveways replay journal http://localhost:7600 --speed max --json
      fiveways replay journal http://localhost:7600 --speed 10 --protocol nq
    """
    from fiveways.cli import replay as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415
    from fiveways.cli.pipeline_actions import TimeRangeOptions  # noqa: PLC0415

    replay_options = implementation.ReplayOptions(
        directory,
        connection_options(url, token, token_file, identity, secret_file),
        speed,
        TimeRangeOptions(first, end),
        protocol=protocol,
        session=session,
        limit=limit,
        zmq=zmq,
        timeout=timeout,
        json=json,
        allows_remote=remote,
    )
    raise typer.Exit(implementation.replay(replay_options))
