"""The commands for work queues and for what the hub holds: their options and help. `root` takes them up."""

from typing import Annotated

import typer

from fiveways.cli import options


def push(  # noqa: PLR0913  as many as the user has
    url: options.Url,
    queue: options.Queue,
    body: options.Body = None,
    *,
    lines: Annotated[
        bool, typer.Option("--lines", help="Push each line of stdin, JSON as well, and print how many these were.")
    ] = False,
    timeout: options.Timeout = 30.0,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Put work into a queue, and print how many pieces wait there.

    It ends when the hub has the work. Where the hub has a store, that is on disk.

    [bold]Examples[/bold]

      fiveways push lrpm+ws://localhost:7500 thumbnails '{"photo": "a.png"}'
      fiveways push nq+http://hub:7500 thumbnails --lines < photos.jsonl
    """
    from fiveways.cli import push as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file)
    verb.push(gate, verb.PushOptions(queue, body, lines, timeout))


def pull(  # noqa: PLR0913
    url: options.Url,
    queue: options.Queue,
    *,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Take so many pieces, one after the other.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Take all that comes, until Ctrl-C.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Wait no longer for a piece: it ends with 124, after --follow with 0.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Run this for each piece, with its JSON on stdin."),
    ] = None,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Wait for work in a queue, and print it, or let a command do it.

    A piece is done once it is printed, or when the command ends with 0.
    Anything else gives it back, and so do Ctrl-C and a lost connection.
    What is not done within calls.timeout the hub gives to somebody else.

    [bold]Examples[/bold]

      fiveways pull lrpm+ws://localhost:7500 thumbnails
      fiveways pull lrpm+ws://localhost:7500 thumbnails --follow --timeout 1
      fiveways pull nq+http://hub:7500 thumbnails --follow --exec ./thumbnail.sh
    """
    from fiveways.cli import pull as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file)
    verb.pull(gate, verb.PullOptions(queue, count, follow, timeout, command, raw))


def queues(  # noqa: PLR0913
    url: options.Url,
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="One queue, instead of all.", autocompletion=options.complete_queues)
    ] = "",
    *,
    dead: Annotated[bool, typer.Option("--dead", help="List the dead jobs of QUEUE, with their last error.")] = False,
    job: Annotated[
        int | None,
        typer.Option("--job", min=1, metavar="NUMBER", help="One dead job: show it, or --redrive or --drop it."),
    ] = None,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Return the dead jobs of QUEUE to it, and print how many.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the dead job that --job names.")] = False,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Show work queues: how many jobs wait, are given out, and are dead.

    A job whose worker fails is given out again after limits.retry_delay seconds,
    twice as long each time. After limits.max_tries tries it is dead.

    [bold]Examples[/bold]

      fiveways queues lrpm+ws://localhost:7500
      fiveways queues prod
      fiveways queues lrpm+ws://localhost:7500 thumbnails --dead
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17 --redrive
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17 --drop
      fiveways queues lrpm+ws://localhost:7500 thumbnails --redrive
    """
    from fiveways.cli import queues as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    wish = verb.QueueOptions(queue, dead=dead, job=job, redrive=redrive, drop=drop, timeout=timeout, raw=raw)
    verb.queues(connection_options(url, token, token_file, identity, secret_file), wish)


def held(  # noqa: PLR0913
    url: options.Url,
    *,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="Only this kind: requests, jobs or values.")] = "",
    owner: Annotated[
        str, typer.Option("--owner", metavar="OWNER", help="Only this owner, as listed: 'address 10.0.0.1'.")
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="PATTERN", help="Only these methods, queues or topics: 'report.*'.")
    ] = "",
    purge: Annotated[
        bool, typer.Option("--purge", help="Cancel such requests, or delete such jobs or values; print how many.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Purge without a question.")] = False,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    r"""Show what the hub holds, by owner: durable requests, jobs and retained values.

    An owner is an identity, or the address of anonymous peers. --purge needs a
    permission that names hub.purge: call = \["*", "hub.purge"].

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/hub.md#stored-state-by-owner

    [bold]Examples[/bold]

      fiveways held lrpm+ws://localhost:7500
      fiveways held prod --kind requests --owner 'address 10.0.0.1'
      fiveways held prod --kind requests --owner 'address 10.0.0.1' --purge
      fiveways held prod --kind jobs --name 'thumbnails' --purge --yes
    """
    from fiveways.cli import held as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    wish = verb.HeldOptions(kind, owner, name, purge=purge, yes=yes, timeout=timeout, raw=raw)
    verb.held(connection_options(url, token, token_file, identity, secret_file), wish)
