"""Result of `discover`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listing:
    """Available methods. Names are in the spelling of the connection's protocol."""

    methods: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    """Prefixes with further methods; each ends in a separator."""
    doc: str | None = None
    """Documentation, if `discover` was called with the name of a method."""
    more: int = 0
    """Number of names that were omitted because the listing exceeds the limit of one message."""
