"""How one client connects, and what it may hold."""

from dataclasses import dataclass, field
from typing import Final
from unicodedata import category

from fiveways.client.urls import Address
from fiveways.wire.limits import Limits

HUB_TIMEOUT: Final = 30.0
"""What a hub gives a call that names no timeout, unless its operator decided otherwise."""
MAX_NAME: Final = 64
"""Characters of a session's name that a hub shows."""
_NAME_VARIABLE: Final = "name"
"""The variable from which a hub takes the name of a session."""
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that a name must not hold: control characters, surrogates, line and paragraph separators."""
BAD_TIMEOUT: Final = "a timeout is a positive number of seconds"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times in seconds. `connect` explains each of these."""

    address: Address
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    timeout: float = HUB_TIMEOUT
    reconnect: bool = True
    first_wait: float = 0.1
    longest_wait: float = 5.0
    open_timeout: float = 10.0
    """For the link, for the greeting, and for each word that restores a session."""
    keepalive: float = 20.0
    """After so long a silence the hub is asked for a sign of life, after two such without one it is gone."""
    limits: Limits = Limits()
    wait: float = 0.0
    """For this long the first connection is tried again."""
    idle_close: float | None = None
    """A link on which nothing was said, or is expected, for so long is closed until it is needed."""
    show_errors: bool = False
    """Whether callers of registered functions are told what these raise."""
    name: str = ""
    """The name of the session for people; empty if it has none."""

    def variables(self) -> dict[str, object]:
        """Return the variables that every connection sets."""
        return {_NAME_VARIABLE: self.name} if self.name else {}


def check_name(name: str | None) -> str:
    """Return the name of a session, empty if it has none; ValueError if a hub would not show it as it is."""
    if name is None:
        return ""
    if not isinstance(name, str) or not name.strip():
        raise ValueError("`name` is a text that is not empty")
    if len(name) > MAX_NAME:
        raise ValueError(f"`name` has {len(name)} characters, of which a hub shows {MAX_NAME}")
    if any(category(character) in _FORBIDDEN_CATEGORIES for character in name):
        raise ValueError(f"`name` must not hold control characters: {name!r}")
    return name
