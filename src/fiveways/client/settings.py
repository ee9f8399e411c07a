"""Settings of one client connection."""

from dataclasses import dataclass, field
from typing import Final
from unicodedata import category

from fiveways.client.urls import Address
from fiveways.wire.limits import Limits

HUB_TIMEOUT: Final = 30.0
"""Timeout of a call without one, in seconds: the default of the hub's setting `calls.timeout`."""
MAX_NAME: Final = 64
"""Characters of a session name that a hub shows."""
_NAME_VARIABLE: Final = "name"
"""Session variable from which the hub takes the name of a session."""
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that a session name must not contain: controls, surrogates, line and paragraph separators."""
BAD_TIMEOUT: Final = "a timeout must be a positive number of seconds"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of one connection to a hub; times are in seconds. `connect` explains each of them."""

    address: Address
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    timeout: float = HUB_TIMEOUT
    reconnect: bool = True
    first_wait: float = 0.1
    longest_wait: float = 5.0
    open_timeout: float = 10.0
    """Limit for the transport to connect, for the handshake, and for each request that restores a session."""
    keepalive: float = 20.0
    """Seconds of silence before a ping. The connection is lost after two pings without a response."""
    limits: Limits = Limits()
    wait: float = 0.0
    """Seconds for which the first connection is retried."""
    idle_close: float | None = None
    """Seconds without traffic after which an idle connection closes until the next message needs it."""
    show_errors: bool = False
    """Whether callers of registered functions see the class and text of an exception."""
    name: str = ""
    """Session name for people; empty if it has none."""

    def variables(self) -> dict[str, object]:
        """Return the session variables that every connection sets."""
        return {_NAME_VARIABLE: self.name} if self.name else {}


def check_name(name: str | None) -> str:
    """Return a valid session name, empty for None; ValueError if the hub cannot show it unchanged."""
    if name is None:
        return ""
    if not isinstance(name, str) or not name.strip():
        raise ValueError("`name` must be a non-empty string")
    if len(name) > MAX_NAME:
        raise ValueError(f"`name` has {len(name)} characters; the limit is {MAX_NAME}")
    if any(category(character) in _FORBIDDEN_CATEGORIES for character in name):
        raise ValueError(f"`name` must not contain control characters: {name!r}")
    return name
