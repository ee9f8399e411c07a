"""What a client wants of every connection that it has, and who gets it for them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fiveways.client.session import Session
from fiveways.errors import CallError
from fiveways.model.messages import HubMessage, Result


class RequestFactory(Protocol):
    """Makes a request, as a session and an id need it."""

    def __call__(self, session: Session, call_id: str, /) -> HubMessage:
        """Return the word."""


class RestoreRequest(NamedTuple):
    """One thing to ask a new connection for."""

    label: str
    """For people."""
    factory: RequestFactory
    on_done: Callable[[CallError | None], None]
    """Told how it went: None, or why the hub refused."""


class Requester(Protocol):
    """Who can ask the hub."""

    async def request_idempotent(self, make: RequestFactory) -> Result:
        """Make a request that may be made twice: again on a new connection, if one is lost before the answer."""

    def send_if_connected(self, word: HubMessage) -> None:
        """Say what needs no answer, if there is a connection and it can be said."""
