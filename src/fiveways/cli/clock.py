"""`fiveways clock`: whether the hub's clock has jumped, and the confirmation that it is right."""

from typing import Annotated

import typer

from fiveways.cli import options


def clock(
    url: options.Url,
    *,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The clock is right: let requests expire and old segments be deleted.")
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
    expire and journal segments are not deleted for their age. `jump` is how many
    seconds the clock is ahead of the last record, or behind it.

    --confirm needs a permission that names hub.clock, such as
    call = \["*", "hub.clock"].

    [bold]Examples[/bold]

      fiveways clock lrpm+ws://localhost:7500
      fiveways clock lrpm+ws://localhost:7500 --confirm --token-file ops.token
    """
    from fiveways.cli.connection_options import ConnectionOptions, connection_options, run_async  # noqa: PLC0415
    from fiveways.cli.json_io import print_value  # noqa: PLC0415

    async def asked(gate: ConnectionOptions) -> object:
        async with gate.connect_within(timeout) as peer:
            return await peer.call("hub.clock", {"confirm": confirm})

    print_value(run_async(asked(connection_options(url, token, token_file, identity, secret_file))), raw=raw)
