"""`fiveways clock`: detection of a clock jump, and the confirmation that the clock is right."""

import asyncio
from typing import Annotated

import typer

from fiveways.cli import options


def clock(
    url: options.Url,
    *,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Confirm that the clock is right; requests expire and old journal segments are deleted as usual.",
        ),
    ] = False,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    r"""Show whether the hub's clock has jumped, or confirm that it is right.

    After a jump of more than store.clock_jump seconds, accepted requests do not
    expire, and journal segments are not deleted because of their age. `jump` is
    the difference in seconds between the clock and the last record.

    --confirm requires a permission that names hub.clock, such as
    call = \["*", "hub.clock"].

    [bold]Examples[/bold]

      fiveways clock lrpm+ws://localhost:7500
      fiveways clock lrpm+ws://localhost:7500 --confirm --token-file ops.token
    """
    from fiveways.cli.connection_options import ConnectionOptions, connection_options  # noqa: PLC0415
    from fiveways.cli.json_io import print_value  # noqa: PLC0415

    async def fetch_clock(connection: ConnectionOptions) -> object:
        async with connection.connect_within(timeout) as peer:
            return await peer.call("hub.clock", {"confirm": confirm})

    print_value(asyncio.run(fetch_clock(connection_options(url, token, token_file, identity, secret_file))), raw=raw)
