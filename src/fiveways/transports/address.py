"""Where the other end of a socket is."""

import asyncio
from ipaddress import IPv6Address, ip_address


def describe(transport: asyncio.BaseTransport) -> tuple[str, bool]:
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
