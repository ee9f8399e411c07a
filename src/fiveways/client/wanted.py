"""What a client wants of every connection that it has, and who gets it for them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fiveways.client.session import Session
from fiveways.errors import CallError
from fiveways.model.messages import Result, Word


class Make(Protocol):
    """Makes a request, as a session and an id need it."""

    def __call__(self, session: Session, call_id: str, /) -> Word:
        """Return the word."""


class Wanted(NamedTuple):
    """One thing to ask a new connection for."""

    label: str
    """For people."""
    make: Make
    restored: Callable[[CallError | None], None]
    """Told how it went: None, or why the hub refused."""


class Asker(Protocol):
    """Who can ask the hub."""

    async def settle(self, make: Make) -> Result:
        """Make a request that may be made twice: again on a new connection, if one is lost before the answer."""

    def tell(self, word: Word) -> None:
        """Say what needs no answer, if there is a connection and it can be said."""
