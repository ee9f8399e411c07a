"""`fiveways discover`: list methods, or show the documentation of one."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from fiveways.cli.connection_options import ConnectionOptions, connection_options
from fiveways.cli.errors import print_stderr
from fiveways.cli.json_io import print_value
from fiveways.errors import FivewaysError, NotExecuted, Reason

if TYPE_CHECKING:
    from fiveways.client.listing import Listing

_COMPLETION_TIMEOUT = 1.0
"""Timeout of shell completion, in seconds."""


class NoRoute(FivewaysError):
    """There is no registration below a name."""


def discover(connection: ConnectionOptions, name: str, *, timeout: float, raw: bool) -> None:
    """Print the lists of methods and routes, or the documentation of one method."""
    try:
        listing = asyncio.run(_discover(connection, name, timeout))
    except NotExecuted as exc:
        if exc.reason is Reason.NO_SUCH_METHOD and name.endswith((".", ":")):
            raise NoRoute(f"there is no route {name}; `fiveways discover URL` lists all routes") from exc
        raise
    if listing.doc == "":
        print_stderr(f"fiveways discover: {name} has no documentation")
    if listing.more:
        print_stderr(f"fiveways discover: the list is too large for one message; {listing.more} names are omitted")
    lists = {"methods": list(listing.methods), "routes": list(listing.routes)}
    print_value(lists if listing.doc is None else listing.doc, raw=raw)


async def _discover(connection: ConnectionOptions, name: str, seconds: float) -> "Listing":
    async with connection.connect_within(seconds) as peer:
        return await peer.discover(name)


def method_names(url: str, token: str, token_file: Path | None, identity: str, secret_file: Path | None) -> list[str]:
    """Return the methods of a hub for shell completion; an empty list after any error."""
    try:
        listing = asyncio.run(
            _discover(connection_options(url, token, token_file, identity, secret_file), "", _COMPLETION_TIMEOUT)
        )
    except Exception:  # noqa: BLE001  shell completion has no place for errors
        return []
    return list(listing.methods)
