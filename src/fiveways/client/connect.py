"""`connect`: from a URL to a `Peer`."""

from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from fiveways.app.app import App
from fiveways.client import handshake, urls
from fiveways.client.handshake import BadCredentials
from fiveways.client.hub_reconnector import OpenLink
from fiveways.client.peer import Peer
from fiveways.client.resumable_session import RESUMABLE_PROTOCOLS
from fiveways.client.settings import BAD_TIMEOUT, HUB_TIMEOUT, ClientSettings, check_name
from fiveways.protocols import registry
from fiveways.transports.http_client import open_http
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits

_NOT_FOR_BROKERS: Final = (
    "`token`, `app`, `idle_close` and `name` cannot be used with a broker; it takes `identity` and `secret`"
)


class Connector:
    """Result of `connect`: `peer = await connect(url)`, or `async with connect(url) as peer:`."""

    def __init__(self, settings: ClientSettings, app: App | None = None, open_link: OpenLink = open_websocket) -> None:
        self._settings = settings
        self._app = app
        self._open_link = open_link
        self._peer: Peer | None = None

    def __await__(self) -> Generator[object, None, Peer]:
        return self._open().__await__()

    async def _open(self) -> Peer:
        peer = Peer(self._settings, self._open_link)
        try:
            await peer.open()
            if self._app is not None:
                await peer.serve(self._app)
        except BaseException:
            await peer.close()
            raise
        return peer

    async def __aenter__(self) -> Peer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(self, *_: object) -> None:
        if self._peer is not None:
            await self._peer.close()


def connect(  # noqa: PLR0913  all but the first have a default
    url: str,
    *,
    token: str = "",
    identity: str = "",
    secret: str = "",
    timeout: float = HUB_TIMEOUT,
    reconnect: bool = True,
    wait: float = 0.0,
    backoff: tuple[float, float] = (0.1, 5.0),
    keepalive: float = 20.0,
    idle_close: float | None = None,
    app: App | None = None,
    schema: Iterable[Path | str] = (),
    limits: Limits = Limits(),
    show_errors: bool = False,
    name: str | None = None,
) -> Connector:
    """Open a connection to a hub: `async with fiveways.connect(url) as peer:`, or `await` the result.

    Args:
        url: `umq+ws://`, `umq36+ws://`, `lrpm+ws://` (`?encoding=cbor`), `nq+ws://`, `nq+http://` or `nq+zmq://`, then
            host and port; with TLS `+wss://` or `+https://`. The default port is 7500 (443 with TLS, 7555 for ZeroMQ),
            the default path that of the protocol at a hub. `mqtt-rpc+mqtt://` and `mqtt-rpc+mqtts://` connect to an
            MQTT broker and return an `MqttPeer`; `connect_mqtt` does the same with the right static type.
        token: bearer token for authentication; not over ZeroMQ, not for a broker.
        identity: name for authentication with `secret`; lrpm only. For a broker, the user name.
        secret: secret of `identity`, which is never sent. For a broker, the password.
        timeout: default timeout of calls and other requests, in seconds.
        reconnect: replace a lost connection, and restore registrations, subscriptions and variables. Open calls
            continue over it in nq; in other protocols they raise `CallLost`, or `NotExecuted` if never sent.
        wait: seconds for which the first connection is retried; 0 tries once, `math.inf` retries for ever.
        backoff: seconds; limits of the random wait before a retry: the first, which doubles each time, and the last.
        keepalive: seconds of silence before a ping. The connection is lost after two pings without a response.
        idle_close: seconds without traffic after which the link closes until it is needed again; nq only. Without it,
            nq+http closes idle connections after 5 seconds, and other transports keep theirs.
        app: an application to serve once connected; not for a broker.
        schema: descriptor set files of the services behind a broker; ignored for a hub.
        limits: size and time limits of this client.
        show_errors: send callers of registered functions the class and text of an exception. Otherwise they get the
            text of a `Fail`, and for any other exception a reference to the traceback in this client's log.
        name: session name on the dashboard and in `hub.peers`, at most 64 characters; not for a broker.

    Raises:
        BadUrl: the URL is invalid (a `ValueError`).
        BadCredentials: the credentials are incomplete, or the protocol does not support them (a `ValueError`).
        ValueError: `timeout`, `idle_close` or `name` is invalid.
        SchemaError: a file in `schema` cannot be used.
        Refused: the hub rejects the credentials, or requires some (a `ConnectionLost`).
        ConnectionLost: the hub or broker cannot be reached, or the handshake failed.
        CallError: the hub refuses a registration or subscription of `app`.
    """
    shared: dict[str, Any] = {"timeout": timeout, "reconnect": reconnect, "wait": wait, "keepalive": keepalive}
    shared |= {"limits": limits, "show_errors": show_errors}
    if urls.is_mqtt(url):
        if token or app is not None or idle_close is not None or name is not None:
            raise BadCredentials(_NOT_FOR_BROKERS)
        return _connect_to_broker(url, identity, secret, schema, shared)
    shared |= {"token": token, "identity": identity, "secret": secret, "idle_close": idle_close}
    settings = _make_settings(url, backoff, name, shared)
    return Connector(settings, app, _link_opener(settings))


def _make_settings(url: str, backoff: tuple[float, float], name: str | None, options: dict[str, Any]) -> ClientSettings:
    session_name = check_name(name)
    first_wait, longest_wait = backoff
    settings = ClientSettings(
        urls.parse(url), first_wait=first_wait, longest_wait=longest_wait, name=session_name, **options
    )
    _check_settings(settings)
    return settings


def _connect_to_broker(
    url: str, user: str, password: str, schema: Iterable[Path | str], options: dict[str, Any]
) -> Connector:
    from fiveways.client.mqtt.peer import connect_mqtt  # noqa: PLC0415  few programs need protobuf

    broker, service = urls.parse_mqtt(url)
    connector = connect_mqtt(replace(broker, user=user, password=password), service=service, schema=schema, **options)
    return cast(Connector, connector)  # `connect_mqtt` has the right static type


def _check_settings(settings: ClientSettings) -> None:
    handshake.check_credentials(settings, registry.load(settings.address.protocol))
    if settings.idle_close is None:
        return
    if settings.idle_close <= 0:
        raise ValueError(BAD_TIMEOUT.replace("a timeout", "`idle_close`"))
    if settings.address.protocol not in RESUMABLE_PROTOCOLS:
        supported = ", ".join(urls.schemes_of(*sorted(RESUMABLE_PROTOCOLS)))
        raise ValueError(f"`idle_close` needs {supported}: in other protocols the session ends with its connection")


def _link_opener(settings: ClientSettings) -> OpenLink:
    """Return the function that opens a link of the transport in the URL."""
    if settings.address.is_zmq:
        from fiveways.transports.zmq_client import open_nq_zmq  # noqa: PLC0415  few programs need pyzmq

        return open_nq_zmq
    if not settings.address.is_http:
        return open_websocket
    return open_http if settings.idle_close is None else partial(open_http, idle=settings.idle_close)
