"""Client URLs: protocol, transport and address of a hub or broker."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from fiveways.errors import FivewaysError
from fiveways.transports.address import NO_TLS, connect_error
from fiveways.transports.mqtt_broker import Broker

DEFAULT_PORT: Final = 7500
"""Default port of a hub."""

_PORTS: Final = {"ws": DEFAULT_PORT, "wss": 443, "http": DEFAULT_PORT, "https": 443, "zmq": 7555}
_WEBSOCKET_TRANSPORTS: Final = ("ws", "wss")


class BadUrl(FivewaysError, ValueError):
    """An invalid client URL; the message explains the problem to its author."""


@dataclass(frozen=True, slots=True)
class _Scheme:
    """One protocol and its default endpoint at a hub."""

    path: str
    encodings: dict[str, tuple[str, str]]
    """Values of `?encoding=`: the protocol's registry name and WebSocket subprotocol; the first is the default."""
    transports: tuple[str, ...] = _WEBSOCKET_TRANSPORTS


_SCHEMES: Final = {
    "umq": _Scheme("/umq", {"": ("umq", "umq.1")}),
    "umq36": _Scheme("/umq36", {"": ("umq36", "umq36.1")}),
    "lrpm": _Scheme("/lrpm", {"json": ("lrpm-json", "lrpm.json"), "cbor": ("lrpm-cbor", "lrpm.cbor")}),
    "nq": _Scheme("/nq", {"": ("nq", "nq.1")}, tuple(_PORTS)),
}
_BROKERS: Final = ("mqtt-rpc+mqtt://", "mqtt-rpc+mqtts://")
SCHEMES: Final = (
    *(f"{protocol}+{transport}://" for protocol, scheme in _SCHEMES.items() for transport in scheme.transports),
    *_BROKERS,
)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a hub, with the protocol to speak there."""

    protocol: str
    """Name of the protocol in the registry."""
    url: str
    """URL for the transport."""
    subprotocol: str
    original_url: str
    """URL as the user wrote it."""

    @property
    def is_http(self) -> bool:
        """Whether the client polls the hub over HTTP."""
        return self.url.startswith("http")

    @property
    def is_zmq(self) -> bool:
        """Whether the URL is for the hub's ZeroMQ port, which has no authentication."""
        return self.url.startswith("zmq")

    def explain_error(self, error: BaseException) -> str:
        """Return a sentence that explains a failed connection attempt."""
        parts = urlsplit(self.url)
        text = connect_error(error, parts.hostname or "", parts.port)
        if text.endswith(NO_TLS):
            return f"{text}; use {self.original_url.partition('://')[0].removesuffix('s')}://"
        # The path cannot be the cause of an operating system error.
        return text if getattr(error, "errno", None) else f"{text}{self.path_hint}"

    @property
    def path_hint(self) -> str:
        """Hint for a handshake that failed because of an unusual path; empty for the default path."""
        if self.is_zmq:
            return ""
        name = self.protocol.partition("-")[0]
        usual, path = _SCHEMES[name].path, urlsplit(self.url).path
        return "" if path == usual else f"; a hub serves {name} under {usual}, and the URL says {path}"


def parse(url: str) -> Address:
    """Parse a client URL, such as `umq+ws://localhost:7500` or `lrpm+wss://hub.example/lrpm?encoding=cbor`.

    Raises:
        BadUrl: the URL is invalid, contains credentials, or belongs to an MQTT broker.
    """
    if is_mqtt(url):
        raise BadUrl("the URL is for an MQTT broker, not a hub: use `fiveways.connect` or `connect_mqtt`")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise BadUrl(f"{url!r} is not a valid URL: {exc}") from exc
    _check_no_secret(parts)
    scheme, transport = _parse_scheme(parts.scheme, url)
    if not parts.hostname:
        raise BadUrl(f"{url!r} has no host; expected a URL such as {parts.scheme}://localhost:{DEFAULT_PORT}")
    protocol, subprotocol, query = _parse_encoding(scheme, parts.query)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authority = f"{host}:{_PORTS[transport] if port is None else port}"
    path = scheme.path if parts.path in {"", "/"} else parts.path
    if transport == "zmq":
        if parts.path not in {"", "/"} or query:
            raise BadUrl(f"{url!r}: ZeroMQ has no paths; expected a URL such as {parts.scheme}://{authority}")
        return Address(protocol, f"zmq://{authority}", subprotocol, url)
    return Address(protocol, urlunsplit((transport, authority, path, query, "")), subprotocol, url)


def is_mqtt(url: str) -> bool:
    """Return whether a URL is for an MQTT broker."""
    return url.startswith("mqtt-rpc+")


def parse_mqtt(url: str) -> tuple[Broker, str]:
    """Parse a broker URL, such as `mqtt-rpc+mqtt://localhost:1883/Greeter`, into broker and service name.

    Raises:
        BadUrl: the URL is invalid, contains credentials, or has another scheme.
    """
    if not url.startswith(_BROKERS):
        written = url.partition("://")[0]
        raise BadUrl(f"{written}:// is not a broker scheme; use one of {', '.join(_BROKERS)}")
    try:
        parts = urlsplit(url.removeprefix("mqtt-rpc+"))
        _check_no_secret(parts)
        return Broker.parse(f"{parts.scheme}://{parts.netloc}"), unquote(parts.path).strip("/")
    except ValueError as exc:
        raise BadUrl(str(exc)) from exc


def _check_no_secret(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        # The error omits the URL, because errors are logged and this URL contains a secret.
        raise BadUrl("a URL must not contain credentials: pass `token`, or `identity` and `secret`, as arguments")


def schemes_of(*protocols: str) -> list[str]:
    """Return the URL schemes of these protocols, without `://`."""
    return [f"{protocol}+{transport}" for protocol in protocols for transport in _SCHEMES[protocol].transports]


def _parse_scheme(scheme: str, url: str) -> tuple[_Scheme, str]:
    protocol, _, transport = scheme.partition("+")
    if protocol in _SCHEMES and transport in _SCHEMES[protocol].transports:
        return _SCHEMES[protocol], transport
    _, has_scheme, rest = url.partition("://")
    if not has_scheme:
        raise BadUrl(f"{url!r} has no scheme; {_suggest_urls(_SCHEMES, _PORTS, url)}")
    if protocol in _SCHEMES:
        suffix = f" for {protocol}" if transport in _PORTS else ""
        problem = f"{transport} is not a supported transport{suffix}" if transport else f"{scheme}:// has no transport"
        raise BadUrl(f"{problem}; {_suggest_urls([protocol], _PORTS, rest)}")
    if scheme in _PORTS:
        raise BadUrl(f"{scheme}:// has no protocol; {_suggest_urls(_SCHEMES, [scheme], rest)}")
    if transport in _PORTS:
        raise BadUrl(f"{protocol} is not a supported protocol; {_suggest_urls(_SCHEMES, [transport], rest)}")
    raise BadUrl(f"{scheme}:// has neither protocol nor transport; {_suggest_urls(_SCHEMES, _PORTS, rest)}")


def _suggest_urls(protocols: Iterable[str], transports: Collection[str], rest: str) -> str:
    """Return a hint with the schemes that are valid here, and the URL with the first of them."""
    schemes = [
        f"{protocol}+{transport}://"
        for protocol in protocols
        for transport in _SCHEMES[protocol].transports
        if transport in transports
    ]
    if protocols is _SCHEMES and transports is _PORTS:
        schemes += _BROKERS
    return f"use one of {', '.join(schemes)}, such as {schemes[0]}{rest or 'localhost'}"


def _parse_encoding(scheme: _Scheme, query: str) -> tuple[str, str, str]:
    """Return protocol name, subprotocol, and the query without the client's own `encoding`."""
    items = parse_qsl(query, keep_blank_values=True)
    chosen = next((value for key, value in items if key == "encoding"), next(iter(scheme.encodings)))
    if chosen not in scheme.encodings:
        names = " or ".join(filter(None, scheme.encodings))
        raise BadUrl(f"?encoding={chosen}: " + (f"use {names}" if names else "this protocol has only one encoding"))
    rest = [(key, value) for key, value in items if key != "encoding"]
    return *scheme.encodings[chosen], urlencode(rest)
