"""The door: from a URL to a `Peer`."""

from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from fiveways.app.app import App
from fiveways.client import handshake, urls
from fiveways.client.handshake import BadCredentials
from fiveways.client.peer import Peer
from fiveways.client.reconnector import OpenLink
from fiveways.client.resumable_session import RESUMABLE_PROTOCOLS
from fiveways.client.settings import BAD_TIMEOUT, HUB_TIMEOUT, ClientSettings, check_name
from fiveways.protocols import registry
from fiveways.transports.http_client import open_http
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits


class Connector:
    """What `connect` returns: `peer = await connect(url)`, or `async with connect(url) as peer:`."""

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
    """Open a connection to a hub, and close it after use: `async with fiveways.connect(url) as peer:`.

    Args:
        url: `umq+ws://`, `umq36+ws://`, `lrpm+ws://` (`?encoding=cbor`), `nq+ws://`, `nq+http://` or `nq+zmq://`, then
            host and port; with TLS `+wss://` or `+https://`. Without a port it is 7500 (443 with TLS, 7555 for
            ZeroMQ), without a path where a hub serves that protocol. `mqtt-rpc+mqtt://` leads to a broker instead, and
            gives an `MqttPeer`; `connect_mqtt` is the same with the right type.
        token: who we are, for a hub that wants to know; not over ZeroMQ.
        identity: the same with a `secret`, which is never sent; lrpm, and as user and password brokers.
        secret: belongs to `identity`.
        timeout: seconds for every call that names none itself.
        reconnect: open a new connection when one is lost, and register, subscribe and set there what was before. In nq
            open calls go on over it; elsewhere they are lost.
        wait: seconds for which the first connection is tried again, with the same backoff as later ones: for programs
            that start before their hub. 0 tries once, `math.inf` for ever; wrong credentials end it at once.
        backoff: seconds to wait before a new try, at most: at first, and at last, after twice as many each time.
        keepalive: seconds of silence after which the hub is asked for a sign of life.
        idle_close: seconds after which a link is closed on which nothing is said or expected, until it is needed;
            nq only. Without it, nq+http closes its connections after 5 seconds, and all others keep theirs.
        app: an application to serve from the start; not by way of a broker.
        schema: descriptor set files of the services behind a broker.
        limits: what this side bears.
        show_errors: tell callers of registered functions the class and text of what these raise. Otherwise they get the
            text of a `Fail` only, and of all else a reference, under which our log has the traceback.
        name: the session's name on the dashboard and in `hub.peers`, at most 64 characters; not by way of a broker.

    Raises:
        BadUrl, BadLogin: what was given cannot be used. Both are a `ValueError`, which a timeout of 0 gets as well,
            `idle_close` where it makes no sense, and a `name` that a hub would not show as it is.
        Refused: the hub refuses our credentials, or requires some.
        ConnectionLost: the hub cannot be reached.
    """
    if urls.is_mqtt(url):
        if token or app is not None or idle_close is not None or name is not None:
            raise BadCredentials(
                "a broker takes `identity` and `secret`, but no `token`, `app`, `idle_close` or `name`"
            )
        usual: dict[str, Any] = {"timeout": timeout, "reconnect": reconnect, "wait": wait, "keepalive": keepalive}
        return _connect_to_broker(
            url, identity, secret, schema, {**usual, "limits": limits, "show_errors": show_errors}
        )
    more: dict[str, Any] = {"keepalive": keepalive, "limits": limits, "wait": wait, "idle_close": idle_close}
    more |= {"show_errors": show_errors, "name": check_name(name)}
    settings = ClientSettings(urls.parse(url), token, identity, secret, timeout, reconnect, *backoff, **more)
    _check_settings(settings)
    return Connector(settings, app, _link_opener(settings))


def _connect_to_broker(
    url: str, user: str, password: str, schema: Iterable[Path | str], usual: dict[str, Any]
) -> Connector:
    from fiveways.client.mqtt.peer import connect_mqtt  # noqa: PLC0415  few need protobuf

    broker, service = urls.parse_mqtt(url)
    opening = connect_mqtt(replace(broker, user=user, password=password), service=service, schema=schema, **usual)
    return cast(Connector, opening)  # whoever wants it typed asks for it by `connect_mqtt`


def _check_settings(settings: ClientSettings) -> None:
    handshake.check_credentials(settings, registry.load(settings.address.protocol))
    if settings.idle_close is None:
        return
    if settings.idle_close <= 0:
        raise ValueError(BAD_TIMEOUT.replace("a timeout", "`idle_close`"))
    if settings.address.protocol not in RESUMABLE_PROTOCOLS:
        able = ", ".join(urls.schemes_of(*sorted(RESUMABLE_PROTOCOLS)))
        raise ValueError(f"`idle_close` is for {able}: elsewhere a conversation ends with its link")


def _link_opener(settings: ClientSettings) -> OpenLink:
    """Return how links are opened."""
    if settings.address.is_zmq:
        from fiveways.transports.zmq_client import open_nq_zmq  # noqa: PLC0415  few need all of ZeroMQ

        return open_nq_zmq
    if not settings.address.is_http:
        return open_websocket
    return open_http if settings.idle_close is None else partial(open_http, idle=settings.idle_close)
