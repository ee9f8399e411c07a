"""Checks of the headers `Host` and `Origin` against attacks through a browser.

A page from any site can make a browser connect to this machine; `Origin` names the site. With DNS rebinding, a foreign
name resolves to this machine; `Host` contains that name.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from fiveways.transports.address import is_loopback
from fiveways.transports.http import Response

_HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_SCHEME: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host_port>.*)")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAX_SHOWN: Final = 100


class _HostPort(NamedTuple):
    host: str
    port: str


def check_origin(
    headers: Mapping[str, str], allowed_origins: Collection[str], allowed_hosts: Collection[str]
) -> str | None:
    """Return why a request is refused and which setting would allow it, or None.

    Args:
        headers: Request headers, keys in lower case.
        allowed_origins: `https://example.com`, or `example.com` for any scheme and port; `*` allows every origin.
        allowed_hosts: `example.com` for any port, or `example.com:7500`; `*` allows every host. Includes our address.
    """
    host = headers.get("host", "")
    if host and not _is_host_allowed(host, allowed_hosts):
        return f"the host {_excerpt(host)} is not allowed; add it to [server] hosts"
    origin = headers.get("origin")
    if origin == "null":
        # Browsers send `null` for local files and sandboxed frames.
        return "the origin null is not allowed; use a page from an origin in [server] origins"
    if origin is None or _is_origin_allowed(origin.lower(), allowed_origins, host, allowed_hosts):
        return None
    return f"the origin {_excerpt(origin)} is not allowed; add it to [server] origins"


def cors_headers(headers: Mapping[str, str], *exposed: str) -> dict[str, str]:
    """Return the CORS headers with which a page of an allowed other origin may read a response.

    Credentials mode is off: the page authenticates with headers, which another page cannot forge, and not with cookies.
    """
    origin = headers.get("origin")
    if origin is None:
        return {}
    readable = {"Access-Control-Expose-Headers": ", ".join(exposed)} if exposed else {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", **readable}


def preflight(headers: Mapping[str, str], method: str, *allowed: str) -> Response:
    """Return the response to a CORS preflight request."""
    response_headers = {
        **cors_headers(headers),
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": ", ".join(allowed),
        "Access-Control-Max-Age": "600",
    }
    if headers.get("access-control-request-private-network") == "true":
        response_headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(204, b"", headers=response_headers)


def _is_host_allowed(host: str, allowed: Collection[str]) -> bool:
    host_port = _parse_host_port(host)
    return host_port is not None and (_is_local(host_port) or _is_configured(host_port, allowed))


def _is_configured(host_port: _HostPort, allowed: Collection[str]) -> bool:
    for entry in allowed:
        if entry == "*":
            return True
        allowed_host = _parse_host_port(f"[{entry}]" if entry.count(":") > 1 and "[" not in entry else entry)
        if (
            allowed_host is not None
            and allowed_host.host == host_port.host
            and allowed_host.port in {"", host_port.port}
        ):
            return True
    return False


def _is_origin_allowed(origin: str, allowed: Collection[str], host: str, allowed_hosts: Collection[str]) -> bool:
    if "*" in allowed or origin in {entry.lower().rstrip("/") for entry in allowed}:
        return True
    match = _SCHEME.fullmatch(origin)
    host_port = _parse_host_port(match["host_port"]) if match is not None else None
    if match is None or host_port is None or match["scheme"] not in _DEFAULT_PORTS:
        return False
    default = _DEFAULT_PORTS[match["scheme"]]
    if _is_local(host_port) or any(_matches_entry(entry, match["scheme"], host_port) for entry in allowed):
        return True
    own = _parse_host_port(host) if host else None
    if own is None or not _is_configured(own, allowed_hosts):
        return False
    # Same origin: the page is served by this hub. A proxy may use another port, but passes it on in Host.
    return (own.host, own.port or default) == (host_port.host, host_port.port or default)


def _matches_entry(allowed: str, scheme: str, host_port: _HostPort) -> bool:
    """Return whether the origin of a page matches an entry. A scheme or port that the entry omits matches any."""
    match = _SCHEME.fullmatch(allowed.lower().rstrip("/"))
    if match is None:
        return _is_configured(host_port, [allowed])
    entry_host_port = _parse_host_port(match["host_port"])
    if entry_host_port is None or match["scheme"] != scheme:
        return False
    default = _DEFAULT_PORTS.get(scheme, "")
    return entry_host_port.host == host_port.host and (entry_host_port.port or default) == (host_port.port or default)


def _parse_host_port(text: str) -> _HostPort | None:
    match = _HOST_PORT.fullmatch(text.lower())
    if match is None:
        return None
    return _HostPort(match["host"].strip("[]").rstrip("."), match["port"] or "")


def _is_local(host_port: _HostPort) -> bool:
    return host_port.host == "localhost" or is_loopback(host_port.host)


def _excerpt(text: str) -> str:
    return repr(text[:_MAX_SHOWN])
