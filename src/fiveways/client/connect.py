"""The door: from a URL to a `Peer`."""

from collections.abc import Generator

from fiveways.app.app import App
from fiveways.client import handshake, urls
from fiveways.client.keeper import OpenLink
from fiveways.client.peer import Peer
from fiveways.client.settings import HUB_TIMEOUT, Settings
from fiveways.protocols import registry
from fiveways.transports.http_client import open_http
from fiveways.transports.websocket import open_websocket
from fiveways.wire.limits import Limits


class Connecting:
    """What `connect` returns: `peer = await connect(url)`, or `async with connect(url) as peer:`."""

    def __init__(self, settings: Settings, app: App | None = None, open_link: OpenLink = open_websocket) -> None:
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
    backoff: tuple[float, float] = (0.1, 5.0),
    keepalive: float = 20.0,
    app: App | None = None,
    limits: Limits = Limits(),
) -> Connecting:
    """Open a connection to a hub, and close it after use: `async with fiveways.connect(url) as peer:`.

    Args:
        url: `umq+ws://`, `umq36+ws://`, `lrpm+ws://` (`?encoding=cbor`), `nq+ws://` or `nq+http://`, then host and
            port; with TLS `+wss://` or `+https://`. Without a port it is 7500 (443 with TLS), without a path where a
            hub serves that protocol.
        token: who we are, for a hub that wants to know.
        identity: the same with a `secret`, which is never sent; lrpm only.
        secret: belongs to `identity`.
        timeout: seconds for every call that names none itself.
        reconnect: open a new connection when one is lost, and register, subscribe and set there what was before. In nq
            open calls go on over it; elsewhere they are lost.
        backoff: seconds to wait before that, at most: at first, and at last, after twice as many each time.
        keepalive: seconds of silence after which the hub is asked for a sign of life.
        app: an application to serve from the start.
        limits: what this side bears.

    Raises:
        BadUrl, BadLogin: what was given cannot be used. Both are a `ValueError`, which a timeout of 0 gets as well.
        Refused: the hub does not let us in.
        ConnectionLost: it cannot be reached.
    """
    first_wait, longest_wait = backoff
    settings = Settings(
        urls.parse(url),
        token,
        identity,
        secret,
        timeout,
        reconnect,
        first_wait,
        longest_wait,
        keepalive=keepalive,
        limits=limits,
    )
    handshake.check(settings, registry.load(settings.address.protocol))
    return Connecting(settings, app, open_http if settings.address.is_http else open_websocket)
