"""Options and help of the commands for work queues and stored state: push, pull, queues and held."""

from typing import Annotated

import typer

from fiveways.cli import options


def push(  # noqa: PLR0913  one parameter per option
    url: options.Url,
    queue: options.Queue,
    body: options.Body = None,
    *,
    lines: Annotated[
        bool, typer.Option("--lines", help="Push one job per line of stdin, each in JSON; print the number of jobs.")
    ] = False,
    timeout: options.Timeout = 30.0,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Put a job into a work queue, and print the number of waiting jobs.

    The command ends when the hub has accepted the job. If the hub has a store,
    the job is on disk by then.

    [bold]Examples[/bold]

      fiveways push lrpm+ws://localhost:7500 thumbnails '{"photo": "a.png"}'
      fiveways push nq+http://hub:7500 thumbnails --lines < photos.jsonl
    """
    from fiveways.cli import push as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    connection = connection_options(url, token, token_file, identity, secret_file)
    implementation.push(connection, implementation.PushOptions(queue, body, lines, timeout))


def pull(  # noqa: PLR0913
    url: options.Url,
    queue: options.Queue,
    *,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Take this number of jobs, one after the other; 1 by default."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Take jobs until Ctrl-C.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="The longest wait for a job. Then the exit code is 124, with --follow 0.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run this shell command for each job, with the job as JSON on stdin."
        ),
    ] = None,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Take jobs from a work queue, and print them or run a command for each.

    A job is done when it is printed, or when the command ends with 0. After
    any other exit code, Ctrl-C or a lost connection it returns to the queue.
    If it is not done within calls.timeout, the hub delivers it to another worker.

    [bold]Examples[/bold]

      fiveways pull lrpm+ws://localhost:7500 thumbnails
      fiveways pull lrpm+ws://localhost:7500 thumbnails --follow --timeout 1
      fiveways pull nq+http://hub:7500 thumbnails --follow --exec ./thumbnail.sh
    """
    from fiveways.cli import pull as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    connection = connection_options(url, token, token_file, identity, secret_file)
    implementation.pull(connection, implementation.PullOptions(queue, count, follow, timeout, command, raw))


def queues(  # noqa: PLR0913
    url: options.Url,
    queue: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE", help="The work queue; if omitted, all queues.", autocompletion=options.complete_queues
        ),
    ] = "",
    *,
    dead: Annotated[
        bool, typer.Option("--dead", help="List the dead-letter queue of QUEUE, with the last error of each job.")
    ] = False,
    job: Annotated[
        int | None,
        typer.Option(
            "--job", min=1, metavar="NUMBER", help="Show one dead job; with --redrive or --drop, redrive or delete it."
        ),
    ] = None,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Return the dead jobs to QUEUE, and print their number.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the dead job given by --job.")] = False,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Show work queues: the numbers of jobs that wait, are in progress, or are dead.

    A job whose worker fails is redelivered after limits.retry_delay seconds; this
    backoff doubles each time. After limits.max_tries tries the job moves to the
    dead-letter queue.

    [bold]Examples[/bold]

      fiveways queues lrpm+ws://localhost:7500
      fiveways queues prod
      fiveways queues lrpm+ws://localhost:7500 thumbnails --dead
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17 --redrive
      fiveways queues lrpm+ws://localhost:7500 thumbnails --job 17 --drop
      fiveways queues lrpm+ws://localhost:7500 thumbnails --redrive
    """
    from fiveways.cli import queues as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    queue_options = implementation.QueueOptions(
        queue, dead=dead, job=job, redrive=redrive, drop=drop, timeout=timeout, raw=raw
    )
    implementation.queues(connection_options(url, token, token_file, identity, secret_file), queue_options)


def held(  # noqa: PLR0913
    url: options.Url,
    *,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Only records of this kind: requests, jobs or values.")
    ] = "",
    owner: Annotated[
        str, typer.Option("--owner", metavar="OWNER", help="Only records of this owner, such as 'address 10.0.0.1'.")
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="PATTERN",
            help="Only methods, queues or topics that match this pattern, such as 'report.*'.",
        ),
    ] = "",
    purge: Annotated[
        bool, typer.Option("--purge", help="Cancel the requests, or delete the jobs or values; print their number.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Purge without confirmation.")] = False,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    r"""Show the durable requests, jobs and retained values that the hub stores, by owner.

    An owner is an identity, or the network address of anonymous peers. --purge
    requires a permission that names hub.purge: call = \["*", "hub.purge"].

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/hub.md#stored-state-by-owner

    [bold]Examples[/bold]

      fiveways held lrpm+ws://localhost:7500
      fiveways held prod --kind requests --owner 'address 10.0.0.1'
      fiveways held prod --kind requests --owner 'address 10.0.0.1' --purge
      fiveways held prod --kind jobs --name 'thumbnails' --purge --yes
    """
    from fiveways.cli import held as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    held_options = implementation.HeldOptions(kind, owner, name, purge=purge, yes=yes, timeout=timeout, raw=raw)
    implementation.held(connection_options(url, token, token_file, identity, secret_file), held_options)
