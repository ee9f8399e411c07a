"""Logins over HTTP: the credentials of a request, and the response to refused ones."""

from fiveways.errors import Reason
from fiveways.hub.refusal import Refusal
from fiveways.hub.traits import Credentials
from fiveways.transports.http import Request, Response, bearer_token, proxied_client, too_many_requests, unauthorized


def read_credentials(request: Request) -> Credentials:
    """Return the credentials of a request."""
    bearer, client = bearer_token(request.headers), proxied_client(request)
    return Credentials(request.is_loopback, bearer, remote=request.remote, proxied_address=client)


def refusal_response(refusal: Refusal) -> Response:
    """Return the response to a request with a refused token."""
    if refusal.reason is Reason.OVERLOADED:
        return too_many_requests(refusal.text, refusal.retry_after)
    return unauthorized(refusal.text)
