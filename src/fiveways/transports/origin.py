"""Who may reach the hub through a browser.

A page from anywhere can make a browser connect to this machine. Its `Origin` tells which page it was. A name that was
made to point here tells itself in `Host`: no page that came by such a name is one of ours.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from fiveways.transports.address import is_loopback
from fiveways.transports.http import Response

_HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_SCHEME: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>.*)")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAX_SHOWN: Final = 100


class _HostPort(NamedTuple):
    host: str
    port: str


def check_origin(
    headers: Mapping[str, str], allowed_origins: Collection[str], allowed_hosts: Collection[str]
) -> str | None:
    """Return why a request must be refused, and which setting would allow it; None if it may pass.

    Args:
        headers: Those of the request, keys in lower case.
        allowed_origins: `https://example.com`, or only `example.com` for any scheme and port; `*` is every page.
        allowed_hosts: `example.com` for any port, or `example.com:7500`; `*` is every name. Our own address too.
    """
    host = headers.get("host", "")
    if host and not _is_host_allowed(host, allowed_hosts):
        return f"this hub does not answer to the host {_excerpt(host)}; [server] hosts would allow it"
    origin = headers.get("origin")
    if origin == "null":
        # What every local file says, and a frame of any page that wants to hide where it is from.
        return "a page that does not tell where it is from may not connect; one from a place in [server] origins may"
    if origin is None or _is_origin_allowed(origin.lower(), allowed_origins, host, allowed_hosts):
        return None
    return f"pages from {_excerpt(origin)} may not connect; [server] origins would allow them"


def cors_headers(headers: Mapping[str, str], *exposed: str) -> dict[str, str]:
    """Return the headers by which a page from elsewhere, that `check_origin` let pass, may read an answer.

    Cookies are not among what it may send: who it is it says in headers that no other page can make up.
    """
    origin = headers.get("origin")
    if origin is None:
        return {}
    readable = {"Access-Control-Expose-Headers": ", ".join(exposed)} if exposed else {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", **readable}


def preflight(headers: Mapping[str, str], method: str, *allowed: str) -> Response:
    """Answer a browser that asks whether a page from elsewhere may send a request with these headers."""
    answer = {
        **cors_headers(headers),
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": ", ".join(allowed),
        "Access-Control-Max-Age": "600",
    }
    if headers.get("access-control-request-private-network") == "true":
        answer["Access-Control-Allow-Private-Network"] = "true"
    return Response(204, b"", headers=answer)


def _is_host_allowed(host: str, allowed: Collection[str]) -> bool:
    place = _parse_host_port(host)
    return place is not None and (_is_local(place) or _is_configured(place, allowed))


def _is_configured(place: _HostPort, allowed: Collection[str]) -> bool:
    for each in allowed:
        if each == "*":
            return True
        wanted = _parse_host_port(f"[{each}]" if each.count(":") > 1 and "[" not in each else each)
        if wanted is not None and wanted.host == place.host and wanted.port in {"", place.port}:
            return True
    return False


def _is_origin_allowed(origin: str, allowed: Collection[str], host: str, allowed_hosts: Collection[str]) -> bool:
    if "*" in allowed or origin in {each.lower().rstrip("/") for each in allowed}:
        return True
    match = _SCHEME.fullmatch(origin)
    place = _parse_host_port(match["place"]) if match is not None else None
    if match is None or place is None or match["scheme"] not in _DEFAULT_PORTS:
        return False
    default = _DEFAULT_PORTS[match["scheme"]]
    if _is_local(place) or any(_matches_entry(each, match["scheme"], place) for each in allowed):
        return True
    ours = _parse_host_port(host) if host else None
    if ours is None or not _is_configured(ours, allowed_hosts):
        return False
    # The page came from us; a proxy before us may have another port than we have, but says so in Host.
    return (ours.host, ours.port or default) == (place.host, place.port or default)


def _matches_entry(allowed: str, scheme: str, place: _HostPort) -> bool:
    """Return whether a page's scheme and place are those of an entry; what the entry leaves out may be anything."""
    match = _SCHEME.fullmatch(allowed.lower().rstrip("/"))
    if match is None:
        return _is_configured(place, [allowed])
    wanted = _parse_host_port(match["place"])
    if wanted is None or match["scheme"] != scheme:
        return False
    default = _DEFAULT_PORTS.get(scheme, "")
    return wanted.host == place.host and (wanted.port or default) == (place.port or default)


def _parse_host_port(text: str) -> _HostPort | None:
    match = _HOST_PORT.fullmatch(text.lower())
    if match is None:
        return None
    return _HostPort(match["host"].strip("[]").rstrip("."), match["port"] or "")


def _is_local(place: _HostPort) -> bool:
    return place.host == "localhost" or is_loopback(place.host)


def _excerpt(text: str) -> str:
    return repr(text[:_MAX_SHOWN])
