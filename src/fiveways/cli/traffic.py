"""Options and help of `fiveways traffic`."""

from typing import Annotated

import typer

from fiveways.cli import options


def traffic(  # noqa: PLR0913  one parameter per option
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="The hub: host and port such as localhost:7500, http://..., or the URL of a client."
        ),
    ] = "localhost:7500",
    *,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="The duration of the run.")
    ] = 30.0,
    rate: Annotated[
        float,
        typer.Option(min=0.1, max=10_000, metavar="NUMBER", help="The approximate number of operations per second."),
    ] = 200.0,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="The seed of the random plan; the same seed repeats the plan.")
    ] = 1,
    peers: Annotated[
        int, typer.Option(min=1, max=100, metavar="NUMBER", help="The number of callers per protocol.")
    ] = 2,
    mqtt: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The MQTT broker of the hub, such as mqtt://host:1883, to include traffic over it."
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the complete summary as JSON.")] = False,
    remote: Annotated[bool, typer.Option("--yes-remote", help="Allow a hub on another machine.")] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
) -> None:
    """Generate mixed test traffic in all protocols, and print a summary.

    Callees register methods in each protocol, and callers call all of them:
    fast, slow and failing methods, in bursts, with timeouts and cancellations.
    The traffic includes topics, variables, discovery, retransmission over new
    connections, a slow consumer, malformed frames and invalid tokens.

    Use it to fill journals for demos and tests, not on a hub in production.
    Ctrl-C ends it early.

    [bold]Examples[/bold]

      fiveways traffic
      fiveways traffic localhost:7600 --seconds 5 --rate 500 --seed 7
      fiveways traffic --mqtt mqtt://localhost:1883 --json > summary.json
    """
    from fiveways.cli import traffic_run  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    bearer = connection_options(url, token, token_file).token
    traffic_run.run_traffic(
        traffic_run.TrafficOptions(url, seconds, rate, seed, peers, mqtt=mqtt, token=bearer, remote=remote),
        as_json=json,
    )
