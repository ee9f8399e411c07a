"""Client URLs: which protocol, over which transport, to which hub."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from fiveways.errors import FivewaysError
from fiveways.transports.address import NO_TLS, connect_error
from fiveways.transports.mqtt_broker import Broker

DEFAULT_PORT: Final = 7500
"""Where a hub listens unless it was told otherwise."""

_PORTS: Final = {"ws": DEFAULT_PORT, "wss": 443, "http": DEFAULT_PORT, "https": 443, "zmq": 7555}
_WEBSOCKET_TRANSPORTS: Final = ("ws", "wss")


class BadUrl(FivewaysError, ValueError):
    """A URL that leads to no hub; the message is a sentence for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class _Scheme:
    """One protocol, and where a hub serves it."""

    path: str
    encodings: dict[str, tuple[str, str]]
    """`?encoding=`: the protocol's name in the registry and its WebSocket subprotocol; the first is the default."""
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
    """Where to connect, and what to speak there."""

    protocol: str
    """The protocol's name in the registry."""
    url: str
    """What the transport opens."""
    subprotocol: str
    original_url: str
    """As the user wrote it."""

    @property
    def is_http(self) -> bool:
        """Whether the hub is asked again and again, and has no link to us."""
        return self.url.startswith("http")

    @property
    def is_zmq(self) -> bool:
        """Whether the hub's ZeroMQ port is asked, to which nobody shows who it is."""
        return self.url.startswith("zmq")

    def explain_error(self, error: BaseException) -> str:
        """Return one sentence for a connection that could not be opened."""
        parts = urlsplit(self.url)
        text = connect_error(error, parts.hostname or "", parts.port)
        if text.endswith(NO_TLS):
            return f"{text}; use {self.original_url.partition('://')[0].removesuffix('s')}://"
        # An error of the system came before anybody saw the path.
        return text if getattr(error, "errno", None) else f"{text}{self.path_hint}"

    @property
    def path_hint(self) -> str:
        """What may be wrong with it, if a hub is there and does not understand us; mostly nothing."""
        if self.is_zmq:
            return ""
        name = self.protocol.partition("-")[0]
        usual, path = _SCHEMES[name].path, urlsplit(self.url).path
        return "" if path == usual else f"; a hub serves {name} under {usual}, and the URL says {path}"


def parse(url: str) -> Address:
    """Read a client URL, such as `umq+ws://localhost:7500` or `lrpm+wss://hub.example/lrpm?encoding=cbor`.

    Raises:
        BadUrl: nothing can be reached under it.
    """
    if is_mqtt(url):
        raise BadUrl("the URL leads to a broker, not to a hub: `fiveways.connect` and `connect_mqtt` go there")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise BadUrl(f"{url!r} is no URL: {exc}") from exc
    _check_no_secret(parts)
    scheme, transport = _parse_scheme(parts.scheme, url)
    if not parts.hostname:
        raise BadUrl(f"{url!r} names no host; a URL looks like {parts.scheme}://localhost:{DEFAULT_PORT}")
    protocol, subprotocol, query = _parse_encoding(scheme, parts.query)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{_PORTS[transport] if port is None else port}"
    path = scheme.path if parts.path in {"", "/"} else parts.path
    if transport == "zmq":
        if parts.path not in {"", "/"} or query:
            raise BadUrl(f"{url!r}: ZeroMQ has no paths; a URL looks like {parts.scheme}://{place}")
        return Address(protocol, f"zmq://{place}", subprotocol, url)
    return Address(protocol, urlunsplit((transport, place, path, query, "")), subprotocol, url)


def is_mqtt(url: str) -> bool:
    """Say whether a URL leads to a broker."""
    return url.startswith("mqtt-rpc+")


def parse_mqtt(url: str) -> tuple[Broker, str]:
    """Read the URL of a broker, such as `mqtt-rpc+mqtt://localhost:1883/Greeter`; return it and the service.

    Raises:
        BadUrl: nothing can be reached under it.
    """
    if not url.startswith(_BROKERS):
        written = url.partition("://")[0]
        raise BadUrl(f"{written}:// is no way to a broker; use one of {', '.join(_BROKERS)}")
    try:
        parts = urlsplit(url.removeprefix("mqtt-rpc+"))
        _check_no_secret(parts)
        return Broker.parse(f"{parts.scheme}://{parts.netloc}"), unquote(parts.path).strip("/")
    except ValueError as exc:
        raise BadUrl(str(exc)) from exc


def _check_no_secret(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        # Not shown: URLs get into logs, and so would the secret in this one.
        raise BadUrl("a URL holds no names or secrets: give `token`, or `identity` and `secret`, beside it")


def schemes_of(*protocols: str) -> list[str]:
    """Return what goes before `://` for these protocols."""
    return [f"{protocol}+{transport}" for protocol in protocols for transport in _SCHEMES[protocol].transports]


def _parse_scheme(written: str, url: str) -> tuple[_Scheme, str]:
    protocol, _, transport = written.partition("+")
    if protocol in _SCHEMES and transport in _SCHEMES[protocol].transports:
        return _SCHEMES[protocol], transport
    _, has_scheme, rest = url.partition("://")
    if not has_scheme:
        raise BadUrl(f"{url!r} has no scheme; {_suggest_urls(_SCHEMES, _PORTS, url)}")
    if protocol in _SCHEMES:
        known = f" for {protocol}" if transport in _PORTS else ""
        said = f"{transport} is no transport of this client{known}" if transport else f"{written}:// says no transport"
        raise BadUrl(f"{said}; {_suggest_urls([protocol], _PORTS, rest)}")
    if written in _PORTS:
        raise BadUrl(f"{written}:// says no protocol; {_suggest_urls(_SCHEMES, [written], rest)}")
    if transport in _PORTS:
        raise BadUrl(f"{protocol} is no protocol of this client; {_suggest_urls(_SCHEMES, [transport], rest)}")
    raise BadUrl(f"{written}:// says neither protocol nor transport; {_suggest_urls(_SCHEMES, _PORTS, rest)}")


def _suggest_urls(protocols: Iterable[str], transports: Collection[str], rest: str) -> str:
    """Return the schemes that would do, and the URL with the first of them."""
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
    """Return the protocol, its subprotocol, and the query without what was for us alone."""
    items = parse_qsl(query, keep_blank_values=True)
    chosen = next((value for key, value in items if key == "encoding"), next(iter(scheme.encodings)))
    if chosen not in scheme.encodings:
        names = " or ".join(filter(None, scheme.encodings))
        raise BadUrl(f"?encoding={chosen}: " + (f"it is {names}" if names else "this protocol has only one"))
    rest = [(key, value) for key, value in items if key != "encoding"]
    return *scheme.encodings[chosen], urlencode(rest)
