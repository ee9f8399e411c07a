"""Peer addresses, and error texts for failed connections."""

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
"""Status codes with which a hub, or a proxy in front of it, refuses a client."""
_MAX_TEXT: Final = 200
"""Characters of a refusal's body in an error text."""
_IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that identify one client: providers give each customer at least a /64."""


def describe_peer(transport: asyncio.BaseTransport) -> tuple[str, bool]:
    """Return the peer address of a socket for display, and whether it is a loopback address."""
    address = transport.get_extra_info("peername")
    if not isinstance(address, tuple):
        return "local", True  # a Unix socket has no address and is always local
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether this is a loopback address. Host names are not resolved and return False."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # A dual-stack socket reports 127.0.0.1 as ::ffff:127.0.0.1, which older Pythons do not treat as loopback.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def network_address(remote: str) -> str:
    """Return the address that limits count a client by: IPv4 address, or IPv6 /64 prefix.

    `remote` is a peer address from `describe_peer` or `ZmqLink.remote`.
    """
    address = remote.partition(" as ")[0]
    return _network(address.rpartition(":")[0].strip("[]") or address)


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
    """Return the reason of a failed connection attempt as one sentence."""
    address = f"{host}:{port}"
    # asyncio joins the errors of several addresses into one OSError without an errno.
    numbers = {error.errno} if isinstance(error, OSError) and error.errno else _numbers(str(error))
    if isinstance(error, gaierror):
        return f"unknown host {host}"
    if numbers == {errno.ECONNREFUSED}:
        return f"nothing listens on {address}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {address} is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(error):
        return f"{address} {NO_TLS}"
    return str(error) or type(error).__name__


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\[Errno (\d+)\]", text)}


def http_error(server: str, path: str, status: int | None, body: bytes) -> str:
    """Return an error text for an HTTP response that is not from a hub, or that refuses the client."""
    text = " ".join(body.decode(errors="replace").split())
    if status in _REFUSALS and not text.startswith("<"):
        return f"{server} refused: {status} {text[:_MAX_TEXT] or HTTPStatus(status).phrase}"
    answer = "" if status is None else f" ({status} for {path})"
    return f"a web server answers at {server}, but no Fiveways hub{answer}"
