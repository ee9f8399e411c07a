"""HTTP requests and answers, and how an answer is written."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from fiveways.transports.address import is_loopback

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_BODILESS: Final = {204, 304}
_BEARER_SUBPROTOCOL: Final = "bearer."
_FRAMING_HEADERS: Final = {"content-length", "transfer-encoding"}
"""Headers that say where a body ends: nobody else may write them."""


class Request(msgspec.Struct, frozen=True):
    """What a client asks for. `HEAD` is asked like `GET`: the body of the answer is left out later."""

    method: str
    path: str
    """As it was written: percent-escapes are kept."""
    query: str
    headers: Mapping[str, str]
    """Keys in lower case; a header that came more than once is joined by commas."""
    body: bytes
    remote: str
    is_loopback: bool
    """It comes from this machine, and not through a proxy that says it speaks for somebody else."""
    abandoned: asyncio.Future[None] | None = None
    """Done when the client closes its end or sends something else: a long poll must not wait any longer."""

    def __repr__(self) -> str:
        """Show nothing that may hold a secret."""
        return f"Request({self.method} {self.path} from {self.remote})"


class Response(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = NO_HEADERS

    def __repr__(self) -> str:
        """Show nothing that may hold a secret."""
        return f"Response({self.status}, {len(self.body)} bytes)"


Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]
BodyLimit: TypeAlias = Callable[[Request], tuple[int, bool]]
"""Returns, before the body has come, how large it may be and whether the client is authenticated."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Every bound on what a client may make a port hold or wait for. Sizes in bytes, times in seconds."""

    max_connections: int = 100_000
    """Connections at once, those handed over to WebSocket included. A client beyond it gets a 503."""
    max_connections_per_address: int = 1 << 14
    """Of these, those of one address. A client beyond it gets a 429."""
    reserved_paths: frozenset[str] = frozenset()
    """Paths that are answered for clients beyond these two limits as well."""
    max_header: int = 1 << 14
    """The request line and all headers."""
    max_body: int = 1 << 20
    max_unfinished: int = 256 << 20
    """Bytes of requests and frames that have not come completely, of all connections together."""
    max_unfinished_per_address: int = 128 << 20
    """Of these, those of one address."""
    max_pipelined: int = 64
    """Requests of one client that are answered before others have their turn."""
    head_timeout: float = 10.0
    """For a request's line and headers; for the first request, from the moment the connection is there."""
    body_timeout: float = 30.0
    idle_timeout: float = 60.0
    """Between two requests."""
    write_timeout: float = 30.0
    """For a client to read some of what waits for it."""
    linger: float = 2.0
    """For a client whose request was refused to read the answer, though it may still be sending."""


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token that a request shows, empty if it shows none.

    A page cannot set headers of a WebSocket, but name subprotocols: there a token is `bearer.` and its base64url. It is
    never among those agreed on, so that no answer repeats it.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for each in headers.get("sec-websocket-protocol", "").split(","):
        name = each.strip()
        if name.startswith(_BEARER_SUBPROTOCOL):
            text = name.removeprefix(_BEARER_SUBPROTOCOL)
            try:
                return b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
            except ValueError:
                return text  # which is nobody's, so that it is refused like any other wrong token
    return ""


def is_https(headers: Mapping[str, str]) -> bool:
    """Say whether a proxy tells that the client's connection to it is encrypted."""
    schemes = headers.get("x-forwarded-proto", "").lower().split(",")
    return schemes[0].strip() == "https" or "proto=https" in headers.get("forwarded", "").lower().partition(",")[0]


def shows_other_credentials(headers: Mapping[str, str]) -> bool:
    """Say whether a request shows credentials in another form than a bearer token: nobody is identified by them."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return bool(scheme) and not (scheme.lower() == "bearer" and token.strip())


def proxied_client(request: Request) -> str:
    """Return the address of the client that a proxy on this machine tells; empty if there is none."""
    told = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    if not told:
        return ""
    try:
        address = ip_address(told.strip("[]"))
    except ValueError:
        return ""
    host = request.remote.rpartition(":")[0].strip("[]")
    return f"[{address}]:0" if is_loopback(host) else ""


def too_many_requests(text: str, seconds: float | None, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return the answer to somebody whose address has to wait before its next login."""
    return Response(429, f"{text}\n".encode(), headers={"Retry-After": f"{seconds or 1:.0f}", **headers})


def unauthorized(text: str, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return the answer to somebody who has not shown who it is, with how that is done."""
    return Response(401, f"{text}\n".encode(), headers={"WWW-Authenticate": "Bearer", **headers})


def serialize(response: Response, *, keep_alive: bool, is_head: bool = False, is_old: bool = False) -> bytes:
    """Return an answer as it goes over the wire; ValueError if it cannot be said in HTTP.

    Args:
        response: The answer.
        keep_alive: Whether the connection stays open after it.
        is_head: The request was `HEAD`, so the body is left out.
        is_old: The client speaks HTTP/1.0, where keeping a connection open must be said.
    """
    connection = [] if keep_alive and not is_old else ["keep-alive" if keep_alive else "close"]
    lines = [_start(response.status, response.content_type)]
    for name, value in response.headers.items():
        if name.lower() == "connection":
            connection.append(value)
        else:
            lines.append(_header(name, value))
    if connection:
        lines.append(_header("Connection", ", ".join(connection)))
    if response.status in _BODILESS:
        return ("".join(lines) + "\r\n").encode("latin-1")
    head = f"{''.join(lines)}Content-Length: {len(response.body)}\r\n\r\n".encode("latin-1")
    return head if is_head else head + response.body


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> str:
    line = _STATUS_LINES.get(status)
    if line is None or status < 200:
        raise ValueError(f"{status} is no status of an answer")
    return line + _header("Content-Type", content_type) if content_type and status not in _BODILESS else line


def _header(name: str, value: str) -> str:
    # A line break that came from outside must not become a header, or an answer, of its own.
    if not (name.isascii() and name.replace("-", "").isalnum()) or name.lower() in _FRAMING_HEADERS:
        raise ValueError(f"{name!r} is no header for an answer")
    if not (value.isprintable() or value.replace("\t", "").isprintable()):
        raise ValueError(f"the value of {name} holds a character that a header cannot")
    return f"{name}: {value}\r\n"
