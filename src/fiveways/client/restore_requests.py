"""Requests that restore a session on a new connection."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fiveways.client.session import Session
from fiveways.errors import CallError
from fiveways.model.messages import HubMessage, Result


class RequestFactory(Protocol):
    """Creates a request for a session and a request id."""

    def __call__(self, session: Session, call_id: str, /) -> HubMessage:
        """Return the request."""


class RestoreRequest(NamedTuple):
    """One request that restores a session."""

    label: str
    """Description for people."""
    factory: RequestFactory
    on_done: Callable[[CallError | None], None]
    """Called with None, or with the reason why the hub refused."""


class Requester(Protocol):
    """Sends requests to the hub."""

    async def request_idempotent(self, make: RequestFactory) -> Result:
        """Send a request, and again on a new connection if the first is lost before the response."""

    def send_if_connected(self, message: HubMessage) -> None:
        """Send a message without a response, if there is a connection that can carry it."""
