"""`fiveways discover`: what there is to call."""

import os

from fiveways.cli.access import Access, run
from fiveways.cli.endings import tell
from fiveways.cli.jsonio import show
from fiveways.errors import FivewaysError, NotExecuted
from fiveways.model.failures import Reason

_PATIENCE = 1.0
"""Seconds that somebody who pressed Tab will wait."""


class NoRoute(FivewaysError):
    """Nobody offers what is below a name."""


def discover(gate: Access, name: str, *, timeout: float, raw: bool) -> None:
    """Print lists of names, or the documentation of one."""
    try:
        found = run(_discover(gate, name, timeout))
    except NotExecuted as exc:
        if exc.reason is Reason.NO_METHOD and name.endswith((".", ":")):
            raise NoRoute(f"{name} is no route; try discover without a name") from exc
        raise
    if found == "":
        tell(f"fiveways discover: {name} has no documentation")
    show(found, raw=raw)


async def _discover(gate: Access, name: str, patience: float) -> object:
    async with gate.within(patience) as peer:
        found = await peer.discover(name)
    if found.doc is not None:
        return found.doc
    return {"methods": list(found.methods), "routes": list(found.routes)}


def names(url: str) -> list[str]:
    """Return the methods of a hub, for completion: nothing if it is away or refuses."""
    try:
        found = run(_discover(Access(url, os.environ.get("FIVEWAYS_TOKEN", "")), "", _PATIENCE))
    except Exception:  # noqa: BLE001  a shell shows nothing else than completions
        return []
    return [str(name) for name in found["methods"]] if isinstance(found, dict) else []
