"""`fiveways discover`: what there is to call."""

from pathlib import Path
from typing import TYPE_CHECKING

from fiveways.cli.connection_options import ConnectionOptions, connection_options, run_async
from fiveways.cli.errors import print_stderr
from fiveways.cli.json_io import print_value
from fiveways.errors import FivewaysError, NotExecuted, Reason

if TYPE_CHECKING:
    from fiveways.client.listing import Listing

_COMPLETION_TIMEOUT = 1.0
"""Seconds that somebody who pressed Tab will wait."""


class NoRoute(FivewaysError):
    """Nobody offers what is below a name."""


def discover(gate: ConnectionOptions, name: str, *, timeout: float, raw: bool) -> None:
    """Print lists of names, or the documentation of one."""
    try:
        found = run_async(_discover(gate, name, timeout))
    except NotExecuted as exc:
        if exc.reason is Reason.NO_SUCH_METHOD and name.endswith((".", ":")):
            raise NoRoute(f"{name} is no route; try discover without a name") from exc
        raise
    if found.doc == "":
        print_stderr(f"fiveways discover: {name} has no documentation")
    if found.more:
        print_stderr(
            f"fiveways discover: {found.more} more names were left out, as all of them are too much for one message"
        )
    lists = {"methods": list(found.methods), "routes": list(found.routes)}
    print_value(lists if found.doc is None else found.doc, raw=raw)


async def _discover(gate: ConnectionOptions, name: str, patience: float) -> "Listing":
    async with gate.connect_within(patience) as peer:
        return await peer.discover(name)


def method_names(url: str, token: str, token_file: Path | None, identity: str, secret_file: Path | None) -> list[str]:
    """Return the methods of a hub, for completion: nothing if it is away or refuses."""
    try:
        found = run_async(
            _discover(connection_options(url, token, token_file, identity, secret_file), "", _COMPLETION_TIMEOUT)
        )
    except Exception:  # noqa: BLE001  a shell shows nothing else than completions
        return []
    return list(found.methods)
