"""Logins over HTTP: the credentials of a request, and the answer to those that are refused."""

from fiveways.hub.refusal import Refusal
from fiveways.hub.traits import Credentials
from fiveways.model.failures import Reason
from fiveways.transports.http import Request, Response, bearer_of, client_of, too_often, unauthorized


def credentials_of(request: Request) -> Credentials:
    """Return what a request shows of its sender."""
    bearer, client = bearer_of(request.headers), client_of(request)
    return Credentials(request.is_loopback, bearer, remote=request.remote, client=client)


def refused_login(refusal: Refusal) -> Response:
    """Return the answer to a request whose token was refused."""
    if refusal.reason is Reason.BUSY:
        return too_often(refusal.text, refusal.retry_after)
    return unauthorized(refusal.text)
