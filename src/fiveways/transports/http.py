"""HTTP requests and responses, and the serializer for responses."""

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
"""Headers that delimit the body: only the serializer may write them."""


class Request(msgspec.Struct, frozen=True):
    """HTTP request. `HEAD` is handled like `GET`; the serializer omits the body of the response."""

    method: str
    path: str
    """As received, with percent-escapes."""
    query: str
    headers: Mapping[str, str]
    """Keys in lower case. Values of a repeated header are joined by commas."""
    body: bytes
    remote: str
    is_loopback: bool
    """Whether the connection is from this machine and has no proxy headers for another client."""
    abandoned: asyncio.Future[None] | None = None
    """Done when the client closes the connection or sends more data: a long poll must then end."""

    def __repr__(self) -> str:
        """Omit headers and body, which may contain secrets."""
        return f"Request({self.method} {self.path} from {self.remote})"


class Response(msgspec.Struct, frozen=True):
    """HTTP response."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = NO_HEADERS

    def __repr__(self) -> str:
        """Omit headers and body, which may contain secrets."""
        return f"Response({self.status}, {len(self.body)} bytes)"


Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]
BodyLimit: TypeAlias = Callable[[Request], tuple[int, bool]]
"""Function that returns the body limit in bytes, and whether the client is authenticated, before the body arrives."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP port. Sizes are in bytes, times in seconds."""

    max_connections: int = 100_000
    """Open connections including WebSocket connections. Further clients get 503."""
    max_connections_per_address: int = 1 << 14
    """Open connections from one address. Further clients get 429."""
    reserved_paths: frozenset[str] = frozenset()
    """Paths that are also served to clients beyond the connection limits."""
    max_header: int = 1 << 14
    """Request line and all headers."""
    max_body: int = 1 << 20
    max_unfinished: int = 256 << 20
    """Incomplete requests and frames of all connections together."""
    max_unfinished_per_address: int = 128 << 20
    """Incomplete requests and frames of all connections from one address."""
    max_pipelined: int = 64
    """Pipelined requests of one client that are handled before other connections get their turn."""
    head_timeout: float = 10.0
    """For the request line and headers; for the first request, from the start of the connection."""
    body_timeout: float = 30.0
    idle_timeout: float = 60.0
    """For an idle connection between two requests."""
    write_timeout: float = 30.0
    """For a client to read some of the unsent response bytes."""
    linger: float = 2.0
    """For a refused client to read the response while it may still be sending."""


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request, or an empty string.

    A page in a browser cannot set headers of a WebSocket, but it can name subprotocols. There the token is the
    subprotocol `bearer.` followed by its base64url encoding. This subprotocol is never selected, so no response
    repeats the token.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for subprotocol in headers.get("sec-websocket-protocol", "").split(","):
        name = subprotocol.strip()
        if name.startswith(_BEARER_SUBPROTOCOL):
            text = name.removeprefix(_BEARER_SUBPROTOCOL)
            try:
                return b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
            except ValueError:
                return text  # matches no token, so authentication refuses it
    return ""


def is_https(headers: Mapping[str, str]) -> bool:
    """Return whether the client's connection to the proxy is encrypted, according to the proxy headers."""
    schemes = headers.get("x-forwarded-proto", "").lower().split(",")
    return schemes[0].strip() == "https" or "proto=https" in headers.get("forwarded", "").lower().partition(",")[0]


def shows_other_credentials(headers: Mapping[str, str]) -> bool:
    """Return whether a request has credentials of another scheme than a bearer token. They are never accepted."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return bool(scheme) and not (scheme.lower() == "bearer" and token.strip())


def proxied_client(request: Request) -> str:
    """Return the client address from the headers of a proxy on this machine, or an empty string."""
    forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    if not forwarded:
        return ""
    try:
        address = ip_address(forwarded.strip("[]"))
    except ValueError:
        return ""
    host = request.remote.rpartition(":")[0].strip("[]")
    return f"[{address}]:0" if is_loopback(host) else ""


def too_many_requests(text: str, seconds: float | None, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return a 429 response for an address that must wait before its next authentication attempt."""
    return Response(429, f"{text}\n".encode(), headers={"Retry-After": f"{seconds or 1:.0f}", **headers})


def unauthorized(text: str, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return a 401 response that asks for a bearer token."""
    return Response(401, f"{text}\n".encode(), headers={"WWW-Authenticate": "Bearer", **headers})


def serialize(response: Response, *, keep_alive: bool, is_head: bool = False, is_old: bool = False) -> bytes:
    """Return the bytes of a response; ValueError if its status or a header is invalid.

    Args:
        response: The response.
        keep_alive: Whether the connection stays open.
        is_head: The request was `HEAD`: omit the body.
        is_old: The client uses HTTP/1.0, which needs an explicit keep-alive header.
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
        raise ValueError(f"{status} is not a final response status")
    return line + _header("Content-Type", content_type) if content_type and status not in _BODILESS else line


def _header(name: str, value: str) -> str:
    # Prevents response splitting: a line break in a value would start another header or response.
    if not (name.isascii() and name.replace("-", "").isalnum()) or name.lower() in _FRAMING_HEADERS:
        raise ValueError(f"{name!r} is not allowed as a response header")
    if not (value.isprintable() or value.replace("\t", "").isprintable()):
        raise ValueError(f"the value of the header {name} has a control character")
    return f"{name}: {value}\r\n"
