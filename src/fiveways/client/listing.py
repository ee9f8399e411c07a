"""The answer to discovery."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is to call. Names are in the spelling of the connection's protocol."""

    methods: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    """Names below which somebody offers more; each ends in a separator."""
    doc: str | None = None
    """The documentation, where one method was asked for."""
    more: int = 0
    """So many names were left out, as all of them are too much for one message."""
