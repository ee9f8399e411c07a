"""Target hub of a replay: each session uses its recorded protocol."""

import asyncio
import ipaddress
from typing import Final
from urllib.parse import urlsplit

from fiveways.client.urls import DEFAULT_PORT, Address, BadUrl, is_mqtt, parse
from fiveways.errors import ConnectionLost
from fiveways.transports.address import connect_error

_TLS_SCHEMES: Final = frozenset({"wss", "https"})
_PLAIN: Final = frozenset({"ws", "http"})
_SCHEMES: Final = {
    "umq": "umq",
    "umq36": "umq36",
    "lrpm-json": "lrpm",
    "lrpm-cbor": "lrpm",
    "nq": "nq",
}
UNSUPPORTED_TRANSPORTS: Final = {
    "mqtt": "sessions over an MQTT broker are not replayed",
    "memory": "in-process sessions are not replayed",
}


class ReplayTarget:
    """The addresses of a hub, by protocol and transport."""

    def __init__(self, url: str, zmq: str = "") -> None:
        """Create the addresses.

        Args:
            url: http://host:port, or the URL of any client.
            zmq: nq+zmq://host:port for sessions over ZeroMQ; empty to skip them.

        Raises:
            BadUrl: a URL is invalid.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.rpartition("+")[2]
        if is_mqtt(url) or scheme not in _TLS_SCHEMES | _PLAIN:
            raise BadUrl(f"{url!r} is not the URL of a hub, such as http://localhost:7500")
        if parts.username is not None or parts.password is not None:
            raise BadUrl("the URL must not contain a user or a password; use --token")
        if not parts.hostname:
            raise BadUrl(f"{url!r} has no host")
        self._netloc = parts.netloc
        self._host, self._port = parts.hostname, parts.port or (443 if scheme in _TLS_SCHEMES else DEFAULT_PORT)
        self._tls_suffix = "s" if scheme in _TLS_SCHEMES else ""
        self._zmq = zmq
        if zmq and not parse(zmq).is_zmq:
            raise BadUrl(f"{zmq!r} is not the URL of a ZeroMQ port, such as nq+zmq://localhost:7555")
        hosts = [parts.hostname, *([urlsplit(zmq).hostname or ""] if zmq else [])]
        self.remote_host = next((host for host in hosts if not _is_loopback(host)), "")
        """The first host that is not this machine; empty if there is none."""

    async def check_reachable(self) -> None:
        """Open and close a connection; ConnectionLost if nothing listens there."""
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError as exc:
            raise ConnectionLost(f"cannot replay: {connect_error(exc, self._host, self._port)}") from exc
        writer.close()

    def address(self, protocol: str, transport: str | None) -> Address | str:
        """Return the address for a session, or the reason why it cannot be replayed."""
        name = _SCHEMES.get(protocol)
        if transport in UNSUPPORTED_TRANSPORTS:
            return UNSUPPORTED_TRANSPORTS[transport]
        if name is None:
            return f"{protocol} cannot be replayed"
        if transport == "zmq":
            return parse(self._zmq) if self._zmq else "--zmq is required for sessions over ZeroMQ"
        transport_scheme = "http" if transport == "http" else "ws"
        query = "?encoding=cbor" if protocol == "lrpm-cbor" else ""
        return parse(f"{name}+{transport_scheme}{self._tls_suffix}://{self._netloc}{query}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
