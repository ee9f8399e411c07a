"""The command `fiveways traffic`: its options and help. `root` takes it up, and `driven` does it."""

from typing import Annotated

import typer

from fiveways.cli import options


def traffic(  # noqa: PLR0913  as many as the user has
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The hub's port: localhost:7500, http://... or the URL of a client.")
    ] = "localhost:7500",
    *,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="End after so long.")] = 30.0,
    rate: Annotated[
        float, typer.Option(min=0.1, max=10_000, metavar="NUMBER", help="Things to do each second, about.")
    ] = 200.0,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="The same number makes the same plan.")] = 1,
    peers: Annotated[int, typer.Option(min=1, max=100, metavar="NUMBER", help="Callers in each protocol.")] = 2,
    mqtt: Annotated[
        str, typer.Option(metavar="URL", help="The hub's broker, mqtt://host:1883, to go by way of it as well.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, with all there is to know.")] = False,
    remote: Annotated[bool, typer.Option("--yes-remote", help="Do so even if the hub is not on this machine.")] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
) -> None:
    """Drive a hub with mixed traffic in all protocols, and tell what came of it.

    Workers offer methods in each protocol, and callers call all of them:
    quick, slow and failing ones, in bursts, with timeouts and cancellations.
    There are topics, variables, discovery, requests that are said again over
    new links, a reader that stops reading, garbage and wrong tokens.

    It fills journals for demos and tests: a hub that people use is no place
    for it. Ctrl-C ends it early.

    [bold]Examples[/bold]

      fiveways traffic
      fiveways traffic localhost:7600 --seconds 5 --rate 500 --seed 7
      fiveways traffic --mqtt mqtt://localhost:1883 --json > summary.json
    """
    from fiveways.cli import traffic_run  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    shown = connection_options(url, token, token_file).token
    traffic_run.run_traffic(
        traffic_run.TrafficOptions(url, seconds, rate, seed, peers, mqtt, shown, remote), as_json=json
    )
