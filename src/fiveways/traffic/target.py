"""The hub that gets the traffic: where it is, and whether that is this machine."""

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
"""What is spoken at a hub's port, and how its URL begins."""
_SCHEMES: Final = {"http", "https", "ws", "wss"}


@dataclass(frozen=True, slots=True)
class Target:
    """A hub's port."""

    host: str
    port: int
    tls: bool = False
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, token: str = "") -> "Target":
        """Read `localhost:7500`, `http://localhost:7500` or the URL of a client; BadUrl if it is none of these."""
        written = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(written)
            port = parts.port
        except ValueError as exc:
            raise BadUrl(f"{url!r} is no place of a hub: {exc}") from exc
        transport = parts.scheme.rpartition("+")[2]
        if transport not in _SCHEMES or not parts.hostname or parts.username is not None:
            raise BadUrl(
                f"{url!r} is no place of a hub; one looks like localhost:{DEFAULT_PORT} or http://localhost:{DEFAULT_PORT}"
            )
        tls = transport.endswith("s") and transport != "ws"
        return cls(parts.hostname, port or (443 if tls else DEFAULT_PORT), tls, token)

    @property
    def netloc(self) -> str:
        """Host and port."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def url(self, speaker: str) -> str:
        """Return the URL for a client of one of `SPEAKERS`."""
        encoding = "?encoding=cbor" if speaker == "lrpm-cbor" else ""
        return f"{PROTOCOL_SCHEMES[speaker]}{'s' if self.tls else ''}://{self.netloc}{encoding}"

    def is_local(self) -> bool:
        """Say whether every address of the host is this machine's own; one that is not known is not."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Say whether a name stands for this machine and nothing else."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)
