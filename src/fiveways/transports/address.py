"""Where the other end of a socket is, and why it cannot be reached."""

import asyncio
import errno
import re
import ssl
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from socket import gaierror
from typing import Final

NO_TLS: Final = "does not speak TLS"
_REFUSALS: Final = frozenset({400, 401, 403, 413, 415, 429, 503})
"""Statuses by which a hub, or a proxy in front of it, refuses a client."""
_LONGEST_TEXT: Final = 200
"""Characters of a refusal that are shown."""
_IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that belong to one client: providers give each customer at least a /64."""


def describe_peer(transport: asyncio.BaseTransport) -> tuple[str, bool]:
    """Return where the other end of a socket is, for people, and whether that is this machine."""
    address = transport.get_extra_info("peername")
    if not isinstance(address, tuple):
        return "local", True  # a socket without a name of its own cannot have come over a network
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether this is an address of this machine's own loopback; names are not asked for."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # A socket for both families sees 127.0.0.1 as ::ffff:127.0.0.1, which older Pythons take for a foreign address.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def network_address(remote: str) -> str:
    """Return the address by which connections of one client are counted: IPv4, or the first 64 bits of IPv6.

    `remote` is where the other end of a connection is, as `describe` or a ZeroMQ link has it.
    """
    place = remote.partition(" as ")[0]
    return _network(place.rpartition(":")[0].strip("[]") or place)


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = IPv6Address(int(address) >> (128 - _IPV6_PREFIX) << (128 - _IPV6_PREFIX))
    return f"{network}/{_IPV6_PREFIX}"


def connect_error(error: BaseException, host: str, port: int | None) -> str:
    """Return one sentence for a connection that could not be opened."""
    place = f"{host}:{port}"
    # With more than one address asyncio joins the errors to one that has no number.
    numbers = {error.errno} if isinstance(error, OSError) and error.errno else _numbers(str(error))
    if isinstance(error, gaierror):
        return f"unknown host {host}"
    if numbers == {errno.ECONNREFUSED}:
        return f"nothing listens on {place}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {place} is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(error):
        return f"{place} {NO_TLS}"
    return str(error) or type(error).__name__


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\[Errno (\d+)\]", text)}


def http_error(place: str, path: str, status: int | None, body: bytes) -> str:
    """Return one sentence for an HTTP answer that is not from a hub, or that refuses us."""
    text = " ".join(body.decode(errors="replace").split())
    if status in _REFUSALS and not text.startswith("<"):
        return f"{place} refused: {status} {text[:_LONGEST_TEXT] or HTTPStatus(status).phrase}"
    answer = "" if status is None else f" ({status} for {path})"
    return f"a web server answers at {place}, but no Fiveways hub{answer}"
