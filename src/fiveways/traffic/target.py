"""The hub that receives the traffic."""

import ipaddress
import socket
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from fiveways.client.urls import DEFAULT_PORT, BadUrl

PROTOCOL_SCHEMES: Final = {
    "umq": "umq+ws",
    "umq36": "umq36+ws",
    "lrpm-json": "lrpm+ws",
    "lrpm-cbor": "lrpm+ws",
    "nq+ws": "nq+ws",
    "nq+http": "nq+http",
}
"""URL schemes by protocol."""
_SCHEMES: Final = {"http", "https", "ws", "wss"}


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a hub."""

    host: str
    port: int
    tls: bool = False
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, token: str = "") -> "Target":
        """Parse `localhost:7500`, `http://localhost:7500` or the URL of a client; BadUrl if it is none of these."""
        full_url = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(full_url)
            port = parts.port
        except ValueError as exc:
            raise BadUrl(f"{url!r} is not the address of a hub: {exc}") from exc
        transport = parts.scheme.rpartition("+")[2]
        if transport not in _SCHEMES or not parts.hostname or parts.username is not None:
            raise BadUrl(
                f"{url!r} is not the address of a hub; use localhost:{DEFAULT_PORT} or http://localhost:{DEFAULT_PORT}"
            )
        tls = transport.endswith("s") and transport != "ws"
        return cls(parts.hostname, port or (443 if tls else DEFAULT_PORT), tls, token)

    @property
    def netloc(self) -> str:
        """Host and port."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def url(self, protocol: str) -> str:
        """Return the URL for a client of a protocol in `PROTOCOL_SCHEMES`."""
        encoding = "?encoding=cbor" if protocol == "lrpm-cbor" else ""
        return f"{PROTOCOL_SCHEMES[protocol]}{'s' if self.tls else ''}://{self.netloc}{encoding}"

    def is_local(self) -> bool:
        """Return whether the host is this machine; False if it is unknown."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a host name resolves only to loopback addresses."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(addresses) and all(
        ipaddress.ip_address(str(address[4][0]).partition("%")[0]).is_loopback for address in addresses
    )
