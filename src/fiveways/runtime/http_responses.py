"""Responses to plain HTTP requests."""

from collections.abc import Iterable
from typing import Final

from fiveways.runtime.admin_endpoints import ADMIN_PATHS
from fiveways.runtime.endpoints import ENDPOINTS, Endpoint
from fiveways.transports.http import Response

METHOD_NOT_ALLOWED: Final = Response(405, b"only GET is answered here\n", headers={"Allow": "GET, HEAD"})
CLOSING_RESPONSE: Final = Response(503, b"the hub is closing\n", headers={"Retry-After": "1"})
PLAIN_HTTP_PATHS: Final = ("/", *ADMIN_PATHS)
"""Paths besides those of protocols and pages."""


def welcome_page(urls: Iterable[tuple[str, str]]) -> str:
    """List the served URLs."""
    lines = [f"{name:8} {url}" for name, url in urls]
    return "\n".join(["This is a Fiveways hub. It speaks:", "", *lines, ""])


def path_not_found(path: str) -> Response:
    """Return a 404 that lists the served paths."""
    paths = ", ".join([*PLAIN_HTTP_PATHS, *ENDPOINTS])
    return Response(404, f"nothing is served under {path[:80]}; try one of {paths}\n".encode())


def upgrade_required(endpoint: Endpoint, method: str) -> Response:
    """Return the response to a plain request for the path of a protocol."""
    path = endpoint.path
    allowed = "GET, HEAD, OPTIONS, POST" if endpoint.accepts_post else "GET, HEAD"
    if method == "OPTIONS" and endpoint.accepts_post:
        return Response(204, b"", headers={"Allow": allowed})
    if method not in {"GET", "HEAD"}:
        return Response(405, f"{path} is not for {method}\n".encode(), headers={"Allow": allowed})
    text = f"{path} is for WebSocket clients: connect to it as {path[1:]}+ws://HOST:PORT{path}\n"
    if endpoint.accepts_post:
        text = f"{path} is for WebSocket clients ({path[1:]}+ws://HOST:PORT{path}), or for POST with messages in JSON\n"
    return Response(426, text.encode(), headers={"Upgrade": "websocket", "Connection": "Upgrade"})
