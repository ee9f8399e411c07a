"""Sentences for those who ask the port for something in plain HTTP."""

from collections.abc import Iterable
from typing import Final

from fiveways.runtime.endpoints import ENDPOINTS, Endpoint
from fiveways.runtime.watching import PATHS
from fiveways.transports.http import Response

READ_ONLY: Final = Response(405, b"only GET is answered here\n", headers={"Allow": "GET, HEAD"})
CLOSING: Final = Response(503, b"the hub is closing\n", headers={"Retry-After": "1"})
PLAIN: Final = ("/", *PATHS)
"""What is there besides the protocols and the pages."""


def welcome(urls: Iterable[tuple[str, str]]) -> str:
    """Say what is served where."""
    lines = [f"{what:8} {url}" for what, url in urls]
    return "\n".join(["This is a Fiveways hub. It speaks:", "", *lines, ""])


def no_such_path(path: str) -> Response:
    """Say what there is instead."""
    paths = ", ".join([*PLAIN, *ENDPOINTS])
    return Response(404, f"nothing is served under {path[:80]}; try one of {paths}\n".encode())


def upgrade_required(endpoint: Endpoint) -> Response:
    """Say who is answered under the path of a protocol."""
    path = endpoint.path
    text = f"{path} is for WebSocket clients: connect to it as {path[1:]}+ws://HOST:PORT{path}\n"
    if endpoint.posts:
        text = f"{path} is for WebSocket clients ({path[1:]}+ws://HOST:PORT{path}), or for POST with messages in JSON\n"
    return Response(426, text.encode(), headers={"Upgrade": "websocket", "Connection": "Upgrade"})
